"""Summaries: the values a run's ``summaries`` names, as means and histograms.

A name is a path with wildcards. It matches metrics (``ppo.loss.policy``) and the results of any component's API in
the compiled update (``q.q_values``, ``policy.torso.__call__``); a leading algorithm name is optional.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from starling.components.graph.assembly import Assembly
from starling.core.errors import UnknownNameError
from starling.core.trees import items

__all__ = ["Summaries", "check_summaries", "component_patterns"]

RUN_VALUES = ("episode_return", "episode_length", "episodes", "updates")  # reported whatever the algorithm


def component_patterns(algo: str, patterns: Sequence[str]) -> list[str]:
    """The patterns as the graph knows its components: without the algorithm's name."""
    return [pattern.removeprefix(f"{algo}.") for pattern in patterns]


def check_summaries(algo: str, patterns: Sequence[str], assembly: Assembly) -> None:
    """Refuse a pattern that matches nothing, naming what there is."""
    metrics = assembly.outputs["learn"][1].metrics if "learn" in assembly.outputs else {}
    known = {*RUN_VALUES, *(f"{algo}.{path}" for path, _ in items(metrics))}
    learning: set[int] = set()  # calls inside an API that learns: the others are not part of an update
    for call in assembly.calls:
        if call.parent in learning or (call.parent is None and "obs" not in call.inputs):
            learning.add(call.index)
            known.add(f"{algo}.{call.path}.{call.api}" if call.path else f"{algo}.{call.api}")
    for pattern in patterns:
        if not any(_matches(algo, name, pattern) for name in known):
            raise UnknownNameError("value", pattern, known, "summaries")


def _matches(algo: str, name: str, pattern: str) -> bool:
    return fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(name.removeprefix(f"{algo}."), pattern)


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
        return any(_matches(self._algo, name, pattern) for pattern in self._patterns)
