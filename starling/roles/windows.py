"""n-step transitions from a chunk of steps, for whole arrays at a time and with NumPy alone.

The adders of ``starling.data`` take one step after another and need numba; an actor that sends chunks has all its
steps at once, and is smaller without.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from starling.core.trees import Tree, map_leaves

__all__ = ["Windows"]


class Windows:
    """Keeps the steps whose n-step windows are not complete yet, for each environment."""

    def __init__(self, envs: int, n: int, gamma: float) -> None:
        self.n, self._powers = n, gamma ** np.arange(n + 1, dtype=np.float64)
        self._open: list[Tree | None] = [None] * envs

    def complete(self, steps: dict[str, Any]) -> dict[str, Any]:
        """The transitions that ``steps`` completes, as rows, environment by environment.

        ``steps`` holds [T, B] arrays: ``terminated``, ``truncated``, ``valid``, ``reward``, ``next_obs`` (the true
        successors) and whatever goes into each transition as it is (``obs``, ``action``, extras).
        """
        parts = [self._of_one(env, steps) for env in range(len(self._open))]
        return map_leaves(lambda *each: np.concatenate(each), *parts)

    def _of_one(self, env: int, steps: dict[str, Any]) -> dict[str, Any]:
        valid = steps["valid"][:, env]
        path = map_leaves(lambda x: x[:, env][valid], {key: x for key, x in steps.items() if key != "valid"})
        before = self._open[env]
        if before is not None:
            path = map_leaves(lambda old, new: np.concatenate([old, new]), before, path)
        length = len(path["reward"])
        starts = np.arange(length)
        ends = np.where(path["terminated"] | path["truncated"], starts, length)
        over = np.minimum.accumulate(ends[::-1])[::-1]  # where the episode of each step ends, so far as is known
        last = np.minimum(starts + self.n - 1, over)
        complete = int((last < length).sum())  # starts are complete in order
        self._open[env] = map_leaves(lambda x: x[complete:], path)
        starts, last = starts[:complete], last[:complete]
        return {
            **{k: map_leaves(lambda x: x[:complete], v) for k, v in path.items() if k not in _OWN},
            "reward": self._earned(path["reward"], starts, last),
            "discount": np.where(path["terminated"][last], 0.0, self._powers[last - starts + 1]).astype(np.float32),
            "next_obs": map_leaves(lambda x: x[last], path["next_obs"]),
        }

    def _earned(self, reward: np.ndarray, starts: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Σ γ^k r over each window."""
        total = np.zeros(len(starts))
        for k in range(self.n):
            inside = starts + k <= last
            total[inside] += self._powers[k] * reward[starts[inside] + k]
        return total.astype(np.float32)


_OWN = ("reward", "terminated", "truncated", "next_obs")
