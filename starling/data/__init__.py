"""The data plane: adders write experience, tables keep it, learners draw from them."""

from typing import TYPE_CHECKING, Any

__all__ = [
    "Checkpointer",
    "Chunk",
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
    "ServerLimits",
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

_HOMES = {
    "Checkpointer": "starling.data.saving.checkpoints",
    "Chunk": "starling.data.adders.chunks",
    "CompressedFramePool": "starling.data.frames.compressed",
    "Dataset": "starling.data.datasets.files",
    "DatasetWriter": "starling.data.datasets.files",
    "EpisodeAdder": "starling.data.adders.sequences",
    "EpisodeWriter": "starling.data.datasets.episodes",
    "FramePool": "starling.data.frames.pool",
    "Limiter": "starling.data.tables.limiters",
    "MinSize": "starling.data.tables.limiters",
    "NStepAdder": "starling.data.adders.nstep",
    "Queue": "starling.data.tables.limiters",
    "RateLimitTimeout": "starling.data.tables.limiters",
    "RecordedEpisode": "starling.data.datasets.episodes",
    "Sample": "starling.data.tables.sample",
    "Sampler": "starling.data.server.samplers",
    "SamplesPerInsert": "starling.data.tables.limiters",
    "Selector": "starling.data.tables.selectors",
    "SequenceAdder": "starling.data.adders.sequences",
    "ServerLimits": "starling.data.server.limits",
    "ServerLostError": "starling.data.server.wire",
    "ShardedSampler": "starling.data.server.shards",
    "ShardedWriter": "starling.data.server.shards",
    "Store": "starling.data.tables.store",
    "Table": "starling.data.tables.table",
    "TableClosedError": "starling.data.tables.limiters",
    "TableServer": "starling.data.server.serving",
    "TransitionAdder": "starling.data.adders.nstep",
    "Writer": "starling.data.server.writers",
    "ask_server": "starling.data.server.clients",
    "episode_signature": "starling.data.datasets.episodes",
    "prioritized": "starling.data.tables.selectors",
    "queue": "starling.data.tables.table",
    "read_episodes": "starling.data.datasets.episodes",
    "replay_episode": "starling.data.datasets.episodes",
    "sequence_signature": "starling.data.adders.sequences",
    "stack": "starling.data.tables.table",
    "transition_signature": "starling.data.adders.nstep",
}

if TYPE_CHECKING:
    from starling.data.adders.chunks import Chunk
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
    from starling.data.server.limits import ServerLimits
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
    from starling.data.tables.sample import Sample
    from starling.data.tables.selectors import Selector, prioritized
    from starling.data.tables.store import Store
    from starling.data.tables.table import Table, queue, stack


def __getattr__(name: str) -> Any:
    """Public names load what they need when first used: adders need NumPy alone, tables compiled loops."""
    if name not in _HOMES:
        raise AttributeError(f"module 'starling.data' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
