"""The data plane: adders write experience, tables keep it, learners draw from them."""

from starling.data.adders.nstep import NStepAdder, TransitionAdder, transition_signature
from starling.data.adders.sequences import EpisodeAdder, SequenceAdder, sequence_signature
from starling.data.datasets.episodes import (
    EpisodeWriter,
    RecordedEpisode,
    episode_signature,
    read_episodes,
    replay_episode,
)
from starling.data.datasets.files import Dataset, DatasetWriter
from starling.data.frames.compressed import CompressedFramePool
from starling.data.frames.pool import FramePool
from starling.data.saving.checkpoints import Checkpointer
from starling.data.server.clients import ask_server
from starling.data.server.samplers import Sampler
from starling.data.server.serving import TableServer
from starling.data.server.shards import ShardedSampler, ShardedWriter
from starling.data.server.wire import ServerLostError
from starling.data.server.writers import Writer
from starling.data.tables.limiters import (
    Limiter,
    MinSize,
    Queue,
    RateLimitTimeout,
    SamplesPerInsert,
    TableClosedError,
)
from starling.data.tables.sample import Beta, Sample
from starling.data.tables.selectors import Selector, prioritized
from starling.data.tables.store import Store
from starling.data.tables.table import Table, queue, stack

__all__ = [
    "Beta",
    "Checkpointer",
    "CompressedFramePool",
    "Dataset",
    "DatasetWriter",
    "EpisodeAdder",
    "EpisodeWriter",
    "FramePool",
    "Limiter",
    "MinSize",
    "NStepAdder",
    "Queue",
    "RateLimitTimeout",
    "RecordedEpisode",
    "Sample",
    "Sampler",
    "SamplesPerInsert",
    "Selector",
    "SequenceAdder",
    "ServerLostError",
    "ShardedSampler",
    "ShardedWriter",
    "Store",
    "Table",
    "TableClosedError",
    "TableServer",
    "TransitionAdder",
    "Writer",
    "ask_server",
    "episode_signature",
    "prioritized",
    "queue",
    "read_episodes",
    "replay_episode",
    "sequence_signature",
    "stack",
    "transition_signature",
]
