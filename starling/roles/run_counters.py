"""A run's counters: steps, episodes, how old experience was, and when to report and to save."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from starling.core.effects import AllReduce, Checkpoint, Effect, Pulse, Report
from starling.core.trees import Tree
from starling.envs.protocol import Episode

__all__ = ["EPISODES", "Reporter", "RunCounters", "RunLength", "Tally"]

EPISODES = 64  # returns that fit into a message; further episodes are counted only

Reporter = Callable[[], tuple[dict[str, float], dict[str, Any]]]  # values, and arrays for histograms


@dataclass(frozen=True)
class RunLength:
    """How long a run is and how often it reports and saves, in steps: of environments or, without any, updates."""

    total: int
    report_every: int
    checkpoint_every: int


class RunCounters:
    """Kept by each role that learns; ``learners`` of them share the run and agree on its length."""

    def __init__(self, length: RunLength, max_lag: int | None = None, learners: int = 1) -> None:
        self.length, self.max_lag, self.learners = length, max_lag, learners
        self.own = self.steps = 0  # steps counted here, and in the whole run
        self.episodes = self.dropped = 0
        self.missing = self.doubled = 0  # chunks, by the numbers that actors give them; both stay 0
        self._next: dict[int, int] = {}  # the number of each actor's next chunk
        self.ready = self.stop = False
        self.returns: deque[float] = deque(maxlen=100)
        self.lengths: deque[float] = deque(maxlen=100)
        self._lags: list[np.ndarray] = []
        self.report_at, self._save_at = length.report_every, length.checkpoint_every
        self._reported = self._saved = -1  # at which step
        self._began_at: int | None = 0  # where this stretch of the run began, until it is reported

    @property
    def done(self) -> bool:
        return self.stop or self.steps >= self.length.total

    def count(self, steps: int) -> None:
        """Note steps that were taken."""
        self.own += steps
        if self.learners == 1:
            self.steps = self.own

    def accept(self, about: Tree, version: int) -> bool:
        """Note a chunk; False where it is too old to learn from."""
        if "sequence" in about:
            actor, number = int(about["actor"]), int(about["sequence"])
            expected = self._next.get(actor, number)
            self.missing += max(0, number - expected)
            self.doubled += number < expected
            self._next[actor] = max(expected, number + 1)
        self.count(int(about["steps"]))
        episodes = int(about["episodes"])
        if episodes:
            self.episodes += episodes
            self.returns.extend(about["returns"][:episodes].tolist())
            self.lengths.extend(about["lengths"][:episodes].tolist())
        lag = version - int(about["version"])
        if self.max_lag is not None and lag > self.max_lag:
            self.dropped += 1
            return False
        return True

    def note_lag(self, lag: Any) -> None:
        """How many updates old was what is learned from, [*]."""
        self._lags.append(np.asarray(lag, np.float32).reshape(-1))

    def agree(self, ready: bool) -> Generator[Effect, Any, None]:
        """Before a round of learning: the run's steps, whether all can learn, and whether anyone wants to stop."""
        self.stop = bool((yield Pulse(self.steps)))
        self.ready = ready
        if self.learners > 1:
            mine = {"steps": np.float64(self.own), "ready": np.float64(ready), "stop": np.float64(self.stop)}
            all_of = yield AllReduce("agreement", mine)
            self.steps = round(float(all_of["steps"]) * self.learners)
            self.ready, self.stop = float(all_of["ready"]) == 1.0, float(all_of["stop"]) > 0

    def report(self, values: Reporter, state: Callable[[], Tree], last: bool = False) -> Generator[Effect, Any, None]:
        """After a round: report and save, where it is time; where the run is interrupted it is no time to report, but
        it is told how far it came."""
        due = self.steps >= min(self.report_at, self.length.total)
        if (due or last) and self.steps != self._reported:
            self._reported = self.steps
            if due:
                self.report_at = self.steps + self.length.report_every
            lags = np.concatenate(self._lags) if self._lags else np.zeros(0, np.float32)
            self._lags = []
            numbers, histograms = values()
            marks = {"began_at": self._began_at, "interrupted": None if due else 1}
            numbers = {**numbers, **{name: mark for name, mark in marks.items() if mark is not None}}
            self._began_at = None
            histograms = {**histograms, "lag": lags} if lags.size else histograms
            yield Report(self.steps, {**numbers, **self._values(lags)}, histograms)
        if (last and self._saved != self.steps) or self.steps >= self._save_at:
            yield self.checkpoint(state)

    def checkpoint(self, state: Callable[[], Tree]) -> Checkpoint:
        """Save now."""
        every = self.length.checkpoint_every
        self._save_at, self._saved = (self.steps // every + 1) * every, self.steps
        return Checkpoint(self.steps, state)

    def _values(self, lags: np.ndarray) -> dict[str, float]:
        values: dict[str, float] = {"episodes": self.episodes, "dropped_chunks": self.dropped}
        values |= {"missing_chunks": self.missing, "doubled_chunks": self.doubled}
        if self.returns:
            values |= {"episode_return": float(np.mean(self.returns)), "episode_length": float(np.mean(self.lengths))}
        if lags.size:
            values |= {"lag_mean": float(lags.mean()), "lag_max": float(lags.max())}
        return values

    def state(self) -> Tree:
        numbers = {name: int(getattr(self, name)) for name in _NUMBERS}
        return {**numbers, "returns": list(self.returns), "lengths": list(self.lengths)}

    def restore(self, state: Tree) -> None:
        for name in _NUMBERS:
            setattr(self, name, int(state[name]))
        self.returns.extend(float(x) for x in state["returns"])
        self.lengths.extend(float(x) for x in state["lengths"])
        self._reported = self._saved = self._began_at = self.steps
        self._save_at = (self.steps // self.length.checkpoint_every + 1) * self.length.checkpoint_every


_NUMBERS = ("own", "steps", "episodes", "dropped", "report_at")


class Tally:
    """What was done since it was last taken: steps, and the episodes that ended. So chunks tell of themselves, and
    where what is learned from comes another way than they, it tells of them."""

    def __init__(self) -> None:
        self.version = 0  # of the weights that acted
        self._begin()

    def _begin(self) -> None:
        self.steps = self.episodes = 0
        self._returns: list[float] = []
        self._lengths: list[float] = []

    def note(self, episodes: list[Episode]) -> None:
        """Episodes that ended."""
        self.episodes += len(episodes)
        self._returns += [episode.ret for episode in episodes]
        self._lengths += [episode.length for episode in episodes]

    def add(self, about: Tree) -> None:
        """What a chunk tells of itself."""
        episodes = int(about["episodes"])
        self.steps, self.episodes = self.steps + int(about["steps"]), self.episodes + episodes
        self.version = int(about["version"])
        self._returns += about["returns"][:episodes].tolist()
        self._lengths += about["lengths"][:episodes].tolist()

    def take(self, **more: int) -> dict[str, Any]:
        """All of it as arrays, always in the same layout; of episodes, the first ``EPISODES`` by their returns."""
        returns, lengths = np.zeros(EPISODES, np.float32), np.zeros(EPISODES, np.float32)
        count = min(EPISODES, len(self._returns))
        returns[:count], lengths[:count] = self._returns[:count], self._lengths[:count]
        numbers = {"steps": self.steps, "episodes": self.episodes, "version": self.version, **more}
        self._begin()
        return {**{name: np.int64(number) for name, number in numbers.items()}, "returns": returns, "lengths": lengths}
