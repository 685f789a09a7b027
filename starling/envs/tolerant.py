"""Environments that may crash or hang without taking the others with them.

An environment that raises, or takes longer than it may, is made anew: its episode counts as cut short where it was last
seen. Only a role that acts on its own can do this, since such an episode cannot be replayed.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym

from starling.envs.extras import CRASHED

__all__ = ["RepeatedCrashes", "StepTimeout", "Tolerance", "Tolerant"]


class StepTimeout(Exception):
    """A step took longer than it may."""


class RepeatedCrashes(Exception):
    """Environments crashed too often."""


class Tolerance:
    """How much is put up with: ``most`` crashes of all environments of a role ``within`` so many seconds end it."""

    def __init__(self, timeout: float = 0.0, most: int = 5, within: float = 60.0) -> None:
        self.timeout, self.most, self.within = timeout, most, within
        self._crashes: deque[float] = deque()

    def settings(self) -> dict[str, Any]:
        """What another process makes the same tolerance from."""
        return {"timeout": self.timeout, "most": self.most, "within": self.within}

    def crashed(self, error: Exception) -> None:
        """Note a crash; raises where it was one too many."""
        now = time.monotonic()
        self._crashes.append(now)
        while self._crashes[0] < now - self.within:
            self._crashes.popleft()
        if len(self._crashes) >= self.most:
            times = f"{len(self._crashes)} times within {self.within:g} s"
            raise RepeatedCrashes(f"{type(error).__name__}: {error} (environments crashed {times})") from error

    @contextmanager
    def limit(self) -> Iterator[None]:
        """Interrupt what takes longer than it may; only the main thread can be interrupted."""
        if not self.timeout or threading.current_thread() is not threading.main_thread():
            yield
            return

        def ring(number: int, frame: Any) -> None:
            raise StepTimeout(f"took longer than {self.timeout:g} s")

        before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, self.timeout)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


class Tolerant(gym.Env[Any, Any]):
    """An environment that is made anew when it crashes or hangs."""

    def __init__(self, construct: Callable[[], gym.Env[Any, Any]], name: str, tolerance: Tolerance) -> None:
        self._construct, self._name, self._tolerance = construct, name, tolerance
        self._env = construct()
        self.observation_space, self.action_space = self._env.observation_space, self._env.action_space
        self.metadata = self._env.metadata
        self._last: Any = None  # what the last call gave, which whoever called it refuses where it is no result

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        while True:
            try:
                with self._tolerance.limit():
                    result = self._env.reset(seed=seed, options=options)
            except Exception as error:
                self._anew(error, "reset")
            else:
                self._last = result
                return result

    def step(self, action: Any) -> Any:
        try:
            if self._tolerance.timeout:
                with self._tolerance.limit():
                    result = self._env.step(action)
            else:
                result = self._env.step(action)
        except Exception as error:
            self._anew(error, "step")
            return self._cut_short()
        self._last = result
        return result

    def _cut_short(self) -> Any:
        """The result of a step that crashed: what was last seen, and the end of the episode."""
        seen, info = self._last[0], self._last[-1]
        return seen, 0.0, False, True, {**(info if isinstance(info, dict) else {}), CRASHED: True}

    def _anew(self, error: Exception, method: str) -> None:
        self._tolerance.crashed(error)
        print(f"{self._name}: {method}() raised {type(error).__name__}: {error}; made anew", file=sys.stderr)
        with contextlib.suppress(Exception):
            self._env.close()
        self._env = self._construct()

    def close(self) -> None:
        self._env.close()
