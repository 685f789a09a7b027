"""Summaries: the values a run's ``summaries`` names, as means and histograms.

A name is a path with wildcards. It matches metrics (``ppo.loss.policy``) and the results of any component's API in
the compiled update (``q.q_values``, ``policy.torso.__call__``); a leading algorithm name is optional.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["Summaries", "component_patterns"]


def component_patterns(algo: str, patterns: Sequence[str]) -> list[str]:
    """The patterns as the graph knows its components: without the algorithm's name."""
    return [pattern.removeprefix(f"{algo}.") for pattern in patterns]


class Summaries:
    """Picks and condenses the named values."""

    def __init__(self, algo: str, patterns: Sequence[str]) -> None:
        self._algo, self._patterns = algo, list(patterns)

    def take(
        self, metrics: Mapping[str, float], recorded: Mapping[str, Any]
    ) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        """Means by ``summary.NAME``, and the values for histograms by the same names."""
        if not self._patterns:
            return {}, {}
        values = {name: np.asarray(value, np.float32) for name, value in metrics.items() if self._wanted(name)}
        values |= {f"{self._algo}.{name}": np.asarray(value, np.float32) for name, value in recorded.items()}
        means = {f"summary.{name}": float(value.mean()) for name, value in values.items() if value.size}
        return means, {f"summary.{name}": value.ravel() for name, value in values.items() if value.size}

    def _wanted(self, name: str) -> bool:
        short = name.removeprefix(f"{self._algo}.")
        return any(fnmatch.fnmatch(name, p) or fnmatch.fnmatch(short, p) for p in self._patterns)
