"""A run's accounts: steps, episodes, how old experience was, and when to report and to save."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from starling.core.effects import AllReduce, Checkpoint, Effect, Pulse, Report
from starling.core.trees import Tree

__all__ = ["Accounts", "Metrics", "Pace"]

Metrics = Callable[[], tuple[dict[str, float], dict[str, Any]]]  # values, and arrays for histograms


@dataclass(frozen=True)
class Pace:
    """How long a run is and how often it tells, in environment steps."""

    total: int
    report_every: int
    checkpoint_every: int


class Accounts:
    """Kept by each role that learns; ``learners`` of them share the run and agree on its length."""

    def __init__(self, pace: Pace, max_lag: int | None = None, learners: int = 1) -> None:
        self.pace, self.max_lag, self.learners = pace, max_lag, learners
        self.own = self.steps = 0  # steps heard of here, and in the whole run
        self.episodes = self.dropped = 0
        self.missing = self.doubled = 0  # chunks, by the numbers that actors give them; both stay 0
        self._next: dict[int, int] = {}  # the number of each actor's next chunk
        self.ready = self.stop = False
        self.recent: deque[float] = deque(maxlen=100)
        self._lags: list[int] = []
        self._report_at, self._save_at = pace.report_every, pace.checkpoint_every

    @property
    def done(self) -> bool:
        return self.stop or self.steps >= self.pace.total

    def accept(self, about: Tree, version: int) -> bool:
        """Note a chunk; False where it is too old to learn from."""
        if "sequence" in about:
            actor, number = int(about["actor"]), int(about["sequence"])
            expected = self._next.get(actor, number)
            self.missing += max(0, number - expected)
            self.doubled += number < expected
            self._next[actor] = max(expected, number + 1)
        lag = version - int(about["version"])
        steps, episodes = int(about["steps"]), int(about["episodes"])
        self.own += steps
        if self.learners == 1:
            self.steps = self.own
        self.episodes += episodes
        self.recent.extend(float(ret) for ret in about["returns"][:episodes])
        if self.max_lag is not None and lag > self.max_lag:
            self.dropped += 1
            return False
        self._lags.append(lag)
        return True

    def agree(self, ready: bool) -> Generator[Effect, Any, None]:
        """Before a round of learning: the run's steps, whether all can learn, and whether anyone wants to stop."""
        self.stop = bool((yield Pulse(self.steps)))
        self.ready = ready
        if self.learners > 1:
            mine = {"steps": np.float64(self.own), "ready": np.float64(ready), "stop": np.float64(self.stop)}
            all_of = yield AllReduce("agreement", mine)
            self.steps = round(float(all_of["steps"]) * self.learners)
            self.ready, self.stop = float(all_of["ready"]) == 1.0, float(all_of["stop"]) > 0

    def tell(self, metrics: Metrics, state: Callable[[], Tree], last: bool = False) -> Generator[Effect, Any, None]:
        """After a round: report and save, where it is time."""
        if last or self.steps >= self._report_at:
            self._report_at = self.steps + self.pace.report_every
            lags, self._lags = np.asarray(self._lags, np.float32), []
            values, histograms = metrics()
            histograms = {**histograms, "lag": lags} if lags.size else histograms
            yield Report(self.steps, {**values, **self._values(lags)}, histograms)
        if last or self.steps >= self._save_at:
            self._save_at = (self.steps // self.pace.checkpoint_every + 1) * self.pace.checkpoint_every
            yield Checkpoint(self.steps, state)

    def _values(self, lags: np.ndarray) -> dict[str, float]:
        values: dict[str, float] = {"episodes": self.episodes, "dropped_chunks": self.dropped}
        values |= {"missing_chunks": self.missing, "doubled_chunks": self.doubled}
        if self.recent:
            values["episode_return"] = float(np.mean(self.recent))
        if lags.size:
            values |= {"lag_mean": float(lags.mean()), "lag_max": float(lags.max())}
        return values

    def state(self) -> Tree:
        numbers = {name: int(getattr(self, name)) for name in _NUMBERS}
        return {**numbers, "recent": list(self.recent)}

    def restore(self, state: Tree) -> None:
        for name in _NUMBERS:
            setattr(self, name, int(state[name]))
        self.recent.extend(float(x) for x in state["recent"])
        self._report_at = self.steps + self.pace.report_every
        self._save_at = (self.steps // self.pace.checkpoint_every + 1) * self.pace.checkpoint_every


_NUMBERS = ("own", "steps", "episodes", "dropped")
