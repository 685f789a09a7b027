"""Minari's data sets, to and from datasets of episodes.

Values pass through the codecs of ``starling.envs``, so what is learned from a file looks like what the environment
gives: float64 is carried as float32, and choices count from 0 whatever a Discrete starts at. Rewards keep their
precision.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from starling.core.errors import DataError, MissingExtraError
from starling.data import Dataset, EpisodeWriter, RecordedEpisode, read_episodes
from starling.envs.observations import Codec, observation_codec
from starling.envs.spaces import from_gymnasium, to_gymnasium

__all__ = ["export_minari", "import_minari"]


def import_minari(dataset: Any, directory: str | Path) -> int:
    """Write a Minari dataset (or the name of a local one) as a dataset of episodes; returns their number."""
    found = _minari().load_dataset(dataset) if isinstance(dataset, str) else dataset
    spaces = found.observation_space, found.action_space
    obs, action = (observation_codec(space) for space in spaces)
    with EpisodeWriter(directory, *map(from_gymnasium, spaces)) as writer:
        for data in found.iterate_episodes():
            writer.write(
                RecordedEpisode(
                    _carried(obs, data.observations, f"{dataset}, episode {data.id}: the observations"),
                    _carried(action, data.actions, f"{dataset}, episode {data.id}: the actions"),
                    np.asarray(data.rewards, np.float64),
                    np.asarray(data.terminations, np.bool_),
                    np.asarray(data.truncations, np.bool_),
                )
            )
    return writer.written


def export_minari(directory: str | Path, dataset_id: str, **options: Any) -> Any:
    """Make a local Minari dataset of a dataset of episodes; ``options`` go to Minari (author, algorithm_name …)."""
    minari = _minari()
    signature = Dataset(directory).signature
    collector = importlib.import_module("minari.data_collector")
    buffers = [
        collector.EpisodeBuffer(
            id=i,
            observations=episode.obs,
            actions=episode.action,
            rewards=list(episode.reward),
            terminations=list(episode.terminated),
            truncations=list(episode.truncated),
        )
        for i, episode in enumerate(read_episodes(directory))
    ]
    spaces = {
        "observation_space": to_gymnasium(signature["obs"]),
        "action_space": to_gymnasium(signature["action"]),
    }
    return minari.create_dataset_from_buffers(dataset_id, buffers, **{"data_format": "arrow", **spaces, **options})


def _carried(codec: Codec, values: Any, what: str) -> Any:
    """The values [T, …] as Starling carries them."""
    try:
        return codec.batch(values)
    except ValueError as error:
        raise DataError(f"{what} do not fit the dataset's own space: {error}. Correct the dataset.") from error


def _minari() -> Any:
    try:
        return importlib.import_module("minari")
    except ImportError as error:
        raise MissingExtraError("minari", "offline") from error
