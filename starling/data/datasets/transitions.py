"""The transitions of a data set of episodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from starling.core.errors import DataError
from starling.core.spaces import Space
from starling.core.trees import Tree, items
from starling.data.adders.chunks import Chunk
from starling.data.adders.nstep import NStepAdder, transition_signature
from starling.data.datasets.episodes import RecordedEpisode, read_episodes, replay_episode
from starling.data.datasets.files import Dataset

__all__ = ["read_transitions"]

READ = 1_024  # transitions of a batch, at least


def read_transitions(
    directory: str | Path, obs: Space, action: Space, n: int = 1, gamma: float = 0.99
) -> Iterator[Tree]:
    """The n-step transitions of a data set's episodes, in order and in batches [N, …] like ``transition_signature``.

    DataError where the data set has other spaces than these, numbers that are not finite, or no episodes.
    """
    held = Dataset(directory).signature.spaces
    for name, space in (("obs", obs), ("action", action)):
        if name in held and _layout(held[name]) != _layout(space):
            raise DataError(
                f"{directory} has {name} {held[name]}; the environment's is {space}. Take another data set."
            )
    chunk, empty = Chunk(transition_signature(obs, action), READ), True
    adder = NStepAdder(chunk, 1, n, gamma)
    for episode in read_episodes(directory):
        _check_finite(directory, episode)
        replay_episode(replace(episode, reward=np.asarray(episode.reward, np.float32)), adder)
        empty = False
        if len(chunk) >= READ:
            yield chunk.take()[0]
    if empty:
        raise DataError(f"{directory} holds no episodes; there is nothing to learn from.")
    if len(chunk):
        yield chunk.take()[0]


def _check_finite(directory: str | Path, episode: RecordedEpisode) -> None:
    for path, leaf in items({"obs": episode.obs, "action": episode.action, "reward": episode.reward}):
        if not np.isfinite(leaf).all():
            raise DataError(f"{directory}: {path} holds a number that is not finite; mend the data set.")


def _layout(space: Space) -> list[tuple[str, tuple[int, ...], str]]:
    return [(path, leaf.shape, leaf.dtype) for path, leaf in space.items()]
