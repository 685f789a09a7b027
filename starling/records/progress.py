"""How a run is getting on: a live bar on a terminal, a plain line now and then elsewhere, nothing when quiet."""

from __future__ import annotations

import importlib.util
import math
import time
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live

__all__ = ["Progress"]

_REFRESH, _PLAIN_EVERY, _RATE_OVER = 0.1, 5.0, 10.0  # seconds


class Progress:
    """Shows progress on standard error.

        with Progress(100_000, "ppo on CartPole-v1") as progress:
            progress.update(2048, episode_return=21.5, losses={"policy": 0.01})

    No thread draws it: ``update`` redraws at most ten times a second, so forking while it is shown is safe.
    """

    def __init__(
        self, total: int, title: str, *, unit: str = "steps", quiet: bool = False, console: Console | None = None
    ) -> None:
        self._total, self._title, self._unit, self._quiet = max(int(total), 1), title, unit, quiet
        self._console = console
        self._live: Live | None = None
        self._steps = 0
        self._episode_return: float | None = None
        self._losses: dict[str, float] = {}
        self._marks: deque[tuple[float, int]] = deque()
        self._started = self._shown = time.monotonic()

    def __enter__(self) -> Progress:
        self._started = self._shown = time.monotonic()
        if self._quiet:
            return self
        from rich.console import Console

        console = self._console = self._console or Console(stderr=True, highlight=False)
        if _can_draw(console):
            from rich.live import Live

            self._live = Live(console=console, auto_refresh=False, redirect_stdout=True, redirect_stderr=True)
            self._live.start()
            self._live.update(self._picture(), refresh=True)
        return self

    def update(
        self, steps: int, *, episode_return: float | None = None, losses: Mapping[str, float] | None = None
    ) -> None:
        """Tell how many environment steps are done, the return of the last episodes and the last losses."""
        now = time.monotonic()
        if len(self._marks) > 1 and now - self._marks[-2][0] < _REFRESH:
            self._marks.pop()  # however often it is told, a mark per redraw is enough
        self._steps = steps
        self._marks.append((now, steps))
        while len(self._marks) > 2 and now - self._marks[1][0] > _RATE_OVER:
            self._marks.popleft()
        self._episode_return = self._episode_return if episode_return is None else episode_return
        self._losses = self._losses if losses is None else dict(losses)
        if self._quiet or self._console is None:
            return
        if self._live is not None:
            if now - self._shown >= _REFRESH:
                self._shown = now
                self._live.update(self._picture(), refresh=True)
        elif now - self._shown >= _PLAIN_EVERY:
            self._print_line()

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        if self._quiet or self._console is None:
            return
        if self._live is None:
            self._print_line()
            return
        try:
            self._live.update(self._picture())
        finally:
            self._live.stop()  # gives the cursor and the standard streams back, also after Ctrl-C
            self._live = None

    def line(self) -> str:
        """The state in one plain line."""
        parts = [f"{self._title}: {self._steps:,}/{self._total:,} {self._unit} ({self._steps / self._total:.0%})"]
        rate = self._rate()
        if rate > 0:
            parts.append(f"{_number(rate)} {self._unit}/s")
        if self._episode_return is not None:
            parts.append(f"return {_number(self._episode_return)}")
        parts += [f"{name} {_number(value)}" for name, value in self._losses.items()]
        if rate > 0 and self._steps < self._total:
            parts.append(f"{_duration((self._total - self._steps) / rate)} left")
        else:
            parts.append(f"{_duration(time.monotonic() - self._started)} taken")
        return "  ".join(parts)

    def _print_line(self) -> None:
        if self._console is not None and self._marks:
            self._shown = time.monotonic()
            self._console.print(self.line(), markup=False, soft_wrap=True)

    def _rate(self) -> float:
        """Steps per second over the last while."""
        if len(self._marks) < 2:
            return 0.0
        (before, then), (now, steps) = self._marks[0], self._marks[-1]
        return max(steps - then, 0) / (now - before) if now > before else 0.0

    def _picture(self) -> Group:
        """Three lines: bar and time left; steps, speed and return; losses. Each is cut, not wrapped, when too long."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        rate, done = self._rate(), min(self._steps, self._total)
        left = f"{_duration((self._total - done) / rate)} left" if rate > 0 else ""
        bar = Table.grid(padding=(0, 1))
        for _ in range(4):
            bar.add_column(no_wrap=True, overflow="ellipsis")
        bar.add_row(
            Text(self._title, style="bold"),
            ProgressBar(total=self._total, completed=done, width=28),
            f"{done / self._total:.0%}",
            Text(left, style="dim"),
        )
        state = Text(f"{self._steps:,}/{self._total:,} {self._unit}", no_wrap=True, overflow="ellipsis")
        if rate > 0:
            state.append(f"   {_number(rate)} {self._unit}/s", style="cyan")
        if self._episode_return is not None:
            state.append(f"   return {_number(self._episode_return)}", style="green")
        losses = "   ".join(f"{name} {_number(value)}" for name, value in self._losses.items())
        return Group(bar, state, Text(losses, style="dim", no_wrap=True, overflow="ellipsis"))


def _can_draw(console: Console) -> bool:
    if console.is_jupyter:  # rich draws in notebooks through ipywidgets
        return importlib.util.find_spec("ipywidgets") is not None
    return console.is_terminal and not console.is_dumb_terminal


def _number(value: float) -> str:
    """Four digits or so: 12,345 · 123.4 · 0.01234 · nan."""
    if math.isfinite(value) and abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _duration(seconds: float) -> str:
    """12 s · 3 min 20 s · 2 h 05 min."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
