"""Heads: from features [*, F] to values of actions, to policies, to values of states.

q = head.q_values(p.head, features)                  # [*, A]
policy = head.distribution(p.head, features, mask)   # of maths.distributions
value = head(p.head, features)                       # [*]
"""

from starling.components.networks.policy_heads import (
    BernoulliHead,
    CategoricalHead,
    DeterministicHead,
    GaussianHead,
    MultiDiscreteHead,
    TanhGaussianHead,
    policy_head_for,
    squashed_head_for,
)
from starling.components.networks.value_heads import (
    ActionCritic,
    CategoricalQHead,
    DuelingHead,
    ImplicitQuantileHead,
    QHead,
    QuantileHead,
    TwinCritics,
    ValueHead,
)

__all__ = [
    "ActionCritic",
    "BernoulliHead",
    "CategoricalHead",
    "CategoricalQHead",
    "DeterministicHead",
    "DuelingHead",
    "GaussianHead",
    "ImplicitQuantileHead",
    "MultiDiscreteHead",
    "QHead",
    "QuantileHead",
    "TanhGaussianHead",
    "TwinCritics",
    "ValueHead",
    "policy_head_for",
    "squashed_head_for",
]
