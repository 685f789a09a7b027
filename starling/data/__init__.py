"""The data plane: adders write experience, tables keep it, learners draw from them."""

from starling.data.checkpoints import Checkpointer
from starling.data.clients import ask_server
from starling.data.datasets import Dataset, DatasetWriter
from starling.data.episodes import (
    Episode,
    EpisodeWriter,
    episode_signature,
    export_minari,
    import_minari,
    read_episodes,
    replay,
)
from starling.data.frames import FramePool
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
from starling.data.samplers import Sampler
from starling.data.selectors import Selector, prioritized
from starling.data.sequences import EpisodeAdder, SequenceAdder, sequence_signature
from starling.data.server import TableServer
from starling.data.shards import ShardedSampler, ShardedWriter
from starling.data.squeezed import SqueezedFramePool
from starling.data.store import Store
from starling.data.table import Table, queue, stack
from starling.data.wire import ServerLostError
from starling.data.writers import Writer

__all__ = [
    "Beta",
    "Checkpointer",
    "Dataset",
    "DatasetWriter",
    "Episode",
    "EpisodeAdder",
    "EpisodeWriter",
    "FramePool",
    "Limiter",
    "MinSize",
    "NStepAdder",
    "Queue",
    "RateLimitTimeout",
    "Sample",
    "Sampler",
    "SamplesPerInsert",
    "Selector",
    "SequenceAdder",
    "ServerLostError",
    "ShardedSampler",
    "ShardedWriter",
    "SqueezedFramePool",
    "Store",
    "Table",
    "TableClosedError",
    "TableServer",
    "TransitionAdder",
    "Writer",
    "ask_server",
    "episode_signature",
    "export_minari",
    "import_minari",
    "prioritized",
    "queue",
    "read_episodes",
    "replay",
    "sequence_signature",
    "stack",
    "transition_signature",
]
