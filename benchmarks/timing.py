"""What the benchmarks share: contestants measured in turns, medians, tables and verdicts.

Turns matter: a machine's speed drifts, and two contestants measured one after the other are compared across the
drift. Measured A B A B, each pair sees the same machine.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

__all__ = ["Verdict", "finish", "interleaved", "median", "seconds_per_call"]


@dataclass(frozen=True)
class Verdict:
    """One requirement and what was measured."""

    what: str
    ours: float
    other: float | None  # what ours is compared with, if it is
    unit: str
    measured: float  # the number that the requirement is about
    required: float
    at_least: bool = True  # else at most
    note: str = ""

    @property
    def holds(self) -> bool:
        return self.measured >= self.required if self.at_least else self.measured <= self.required


def interleaved(contestants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Each contestant's results, one a round; every other round goes backwards so that no place is an advantage."""
    results: dict[str, list[float]] = {name: [] for name in contestants}
    for i in range(rounds):
        names = list(contestants)[:: 1 if i % 2 == 0 else -1]
        for name in names:
            results[name].append(contestants[name]())
    return results


def seconds_per_call(fn: Callable[[], object], calls: int) -> float:
    """The mean over ``calls`` calls in a row."""
    started = time.perf_counter()
    for _ in range(calls):
        fn()
    return (time.perf_counter() - started) / calls


def finish(title: str, verdicts: Sequence[Verdict], as_json: bool) -> int:
    """Print what was measured; the exit code says whether every requirement holds."""
    load = os.getloadavg()[0]
    if as_json:
        rows = [{**asdict(verdict), "holds": verdict.holds} for verdict in verdicts]
        print(json.dumps({"title": title, "load": load, "cores": os.cpu_count(), "results": rows}, indent=2))
    else:
        compared = any(verdict.other is not None for verdict in verdicts)
        table = Table(title=f"{title} (load {load:.1f} on {os.cpu_count()} cores)")
        for column in ("", "ours", *(("other",) if compared else ()), "unit", "measured", "required", "", "note"):
            table.add_column(column, justify="right" if column in ("ours", "other", "measured", "required") else "left")
        for verdict in verdicts:
            table.add_row(*_cells(verdict, compared))
        Console(width=None if Console().is_terminal else 140).print(table)
    return 0 if all(verdict.holds for verdict in verdicts) else 1


def _cells(verdict: Verdict, compared: bool) -> list[str]:
    sign, times = ("≥" if verdict.at_least else "≤"), ("" if verdict.other is None else "×")
    return [
        verdict.what,
        _number(verdict.ours),
        *([_number(verdict.other)] if compared and verdict.other is not None else [""] if compared else []),
        verdict.unit,
        f"{verdict.measured:.2f}{times}",
        f"{sign} {verdict.required:g}{times}",
        "[green]holds[/]" if verdict.holds else "[red]fails[/]",
        verdict.note,
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def median(values: Sequence[float]) -> float:
    return statistics.median(values)
