"""Episodes as datasets: written and read as steps, replayed into adders.

The rows of an episode are its steps and one more for the observation behind the last; ``last`` marks that row, whose
action and reward mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from starling.core.errors import ConfigError, DataError
from starling.core.spaces import Bool, Dict, Float, Int, Space
from starling.core.trees import leaves, map_leaves
from starling.data.adders.base import Adder
from starling.data.datasets.files import Dataset, DatasetWriter

__all__ = ["EpisodeWriter", "RecordedEpisode", "episode_signature", "read_episodes", "replay_episode"]


@dataclass(frozen=True)
class RecordedEpisode:
    """One episode of T steps: ``obs`` has T + 1 rows, the others T. How it ended is in its last step."""

    obs: Any
    action: Any
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    extras: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.reward.shape[0])

    @classmethod
    def of(cls, steps: list[dict[str, Any]], last: Any, action_dtype: np.dtype) -> RecordedEpisode:
        """The episode of these steps, each with ``obs``, ``action``, ``reward`` and its ends, and the ``last``
        observation."""
        parts = map_leaves(lambda *x: np.stack(x), *steps)
        obs = map_leaves(lambda *x: np.stack(x), *[step["obs"] for step in steps], last)
        ends = parts["terminated"], parts["truncated"]
        return cls(obs, parts["action"].astype(action_dtype), parts["reward"].astype(np.float64), *ends)


def episode_signature(obs: Space, action: Space, **extras: Space) -> Dict:
    """The signature of a dataset of episodes."""
    flags = {"terminated": Bool(()), "truncated": Bool(()), "last": Bool(()), "episode": Int((), 0, 2**62, "int64")}
    return Dict({"obs": obs, "action": action, "reward": Float((), dtype="float64"), **flags, **extras})


class EpisodeWriter:
    """Writes episodes to a dataset directory."""

    def __init__(self, directory: str | Path, obs: Space, action: Space, **extras: Space) -> None:
        self._writer = DatasetWriter(directory, episode_signature(obs, action, **extras))
        self._extras = sorted(extras)
        self.written = 0

    def write(self, episode: RecordedEpisode) -> None:
        steps = len(episode)
        if steps < 1 or any(np.shape(leaf)[0] != steps + 1 for leaf in leaves(episode.obs)):
            shapes = [np.shape(leaf) for leaf in leaves(episode.obs)]
            raise DataError(f"observations {shapes} arrived for {steps} steps; one more than steps was expected.")

        def with_last(value: Any) -> Any:
            return map_leaves(lambda leaf: np.concatenate([leaf, np.zeros_like(leaf[:1])]), value)

        rows = {name: with_last(getattr(episode, name)) for name in ("action", "terminated", "truncated")}
        rows["reward"] = with_last(np.asarray(episode.reward, np.float64))
        rows |= {name: with_last(episode.extras[name]) for name in self._extras}
        rows["obs"] = episode.obs
        rows["last"] = np.arange(steps + 1) == steps
        rows["episode"] = np.full(steps + 1, self.written, np.int64)
        self._writer.write(rows)
        self.written += 1

    def close(self) -> None:
        self._writer.close()

    def __enter__(self) -> EpisodeWriter:
        return self

    def __exit__(self, kind: Any, error: Any, at: Any) -> None:
        if kind is None:
            self.close()


def read_episodes(directory: str | Path) -> Iterator[RecordedEpisode]:
    """The episodes of a dataset, in order."""
    dataset = Dataset(directory)
    needed = set(episode_signature(Float(()), Float(())).spaces)
    if not needed <= set(dataset.signature.spaces):
        raise DataError(f"{directory} holds {sorted(dataset.signature.spaces)}; episodes need {sorted(needed)}.")
    extras = sorted(set(dataset.signature.spaces) - needed)
    left: Any = None
    for batch in dataset.batches():
        rows = batch if left is None else map_leaves(lambda a, b: np.concatenate([a, b]), left, batch)
        start = 0
        for end in np.flatnonzero(rows["last"]).tolist():
            part = map_leaves(lambda leaf, s=start, e=end: leaf[s : e + 1], rows)
            steps = {name: map_leaves(lambda leaf: leaf[:-1], part[name]) for name in part}
            ended = (steps["reward"], steps["terminated"], steps["truncated"])
            yield RecordedEpisode(part["obs"], steps["action"], *ended, {name: steps[name] for name in extras})
            start = end + 1
        left = map_leaves(lambda leaf, s=start: leaf[s:], rows)
    if left is not None and left["last"].shape[0]:
        raise DataError(f"{directory} ends in the middle of an episode; it is cut short.")


def replay_episode(episode: RecordedEpisode, adder: Adder) -> int:
    """Feed an episode through an adder of one environment; returns how many items it made.

    An episode that neither terminated nor was truncated counts as truncated: it ends here.
    """
    if adder.num_envs != 1:
        raise ConfigError(f"the adder is for {adder.num_envs} environments; episodes are replayed one by one.")
    made = 0
    for t in range(len(episode)):
        now, after = (map_leaves(lambda leaf, k=k: leaf[k : k + 1], episode.obs) for k in (t, t + 1))
        action, extras = (map_leaves(lambda leaf, k=t: leaf[k : k + 1], x) for x in (episode.action, episode.extras))
        terminated = episode.terminated[t : t + 1]
        final = t == len(episode) - 1 and not terminated[0]
        truncated = episode.truncated[t : t + 1] | final
        made += adder.add(now, action, extras, episode.reward[t : t + 1], terminated, truncated, after, after)
    return made
