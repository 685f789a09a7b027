"""The data plane: adders write experience, tables keep it, learners draw from them."""

from starling.data.limiters import (
    Limiter,
    MinSize,
    Queue,
    RateLimitTimeout,
    SamplesPerInsert,
    TableClosedError,
)
from starling.data.nstep import NStepAdder, TransitionAdder, transition_signature
from starling.data.sample import Beta, Sample
from starling.data.selectors import Selector, prioritized
from starling.data.table import Table

__all__ = [
    "Beta",
    "Limiter",
    "MinSize",
    "NStepAdder",
    "Queue",
    "RateLimitTimeout",
    "Sample",
    "SamplesPerInsert",
    "Selector",
    "Table",
    "TableClosedError",
    "TransitionAdder",
    "prioritized",
    "transition_signature",
]
