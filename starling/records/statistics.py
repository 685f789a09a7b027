"""Numbers that sum up runs.

Of several: how good, and how sure, by interquartile means and stratified bootstrap intervals (Agarwal et al., 2021).
Of one that goes on: how fast it is of late, and how old its experience, from its reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from starling.core.errors import DataError
from starling.core.random import stream

__all__ = ["Summary", "bootstrap_interval", "interquartile_mean", "recent_lag", "recent_speed", "summarise"]

Statistic = Callable[[np.ndarray], np.ndarray]
Reports = Sequence[Mapping[str, Any]]  # the rows of a run's metrics, oldest first


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a set of runs scored: one number, and how far it may be off."""

    runs: int
    mean: float
    std: float  # between runs, n − 1 in the denominator; 0 for a single run
    median: float
    iqm: float
    low: float  # of the interval of the iqm
    high: float
    minimum: float
    maximum: float


def interquartile_mean(scores: Any, axis: int | None = None) -> Any:
    """The mean of the middle half: a quarter of the values, rounded down, is cut off at each end."""
    ordered = np.sort(np.asarray(scores, np.float64), axis=axis)
    last = np.moveaxis(ordered, -1 if axis is None else axis, -1)
    cut = last.shape[-1] // 4
    return last[..., cut : last.shape[-1] - cut].mean(-1)


def bootstrap_interval(
    scores: Any,
    statistic: Statistic = lambda samples: interquartile_mean(samples, axis=-1),
    *,
    level: float = 0.95,
    repetitions: int = 2_000,
    seed: int = 0,
) -> tuple[float, float]:
    """The percentile interval of ``statistic`` over ``scores`` [runs] or [runs, tasks].

    The runs of each task are drawn again with replacement, apart from the other tasks (the strata). ``statistic``
    maps [repetitions, runs · tasks] to [repetitions].
    """
    table = _table(scores)
    if not 0 < level < 1:
        raise DataError(f"level={level} is not a share of the resamples; choose one between 0 and 1, such as 0.95.")
    runs, tasks = table.shape
    drawn = stream(seed, "bootstrap").integers(0, runs, (repetitions, runs, tasks))
    resampled = table[drawn, np.arange(tasks)]  # [repetitions, runs, tasks]
    values = statistic(resampled.reshape(repetitions, -1))
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def summarise(returns: Any, *, level: float = 0.95, seed: int = 0) -> Summary:
    """The summary of the final returns of several runs, [runs] or [runs, tasks]."""
    table = _table(returns)
    low, high = bootstrap_interval(table, level=level, seed=seed)
    return Summary(
        runs=len(table),
        mean=float(table.mean()),
        std=float(table.mean(1).std(ddof=1)) if len(table) > 1 else 0.0,
        median=float(np.median(table)),
        iqm=float(interquartile_mean(table)),
        low=low,
        high=high,
        minimum=float(table.min()),
        maximum=float(table.max()),
    )


def recent_speed(reports: Reports, over: float = 10.0) -> float | None:
    """Steps per second over so many seconds, or over the last two reports; None where there are fewer."""
    if len(reports) < 2:
        return None
    last = reports[-1]
    first = next(row for row in reports if row["seconds"] >= last["seconds"] - over or row is reports[-2])
    return float(last["env_steps"] - first["env_steps"]) / max(last["seconds"] - first["seconds"], 1e-9)


def recent_lag(reports: Reports, over: int = 20) -> dict[str, float]:
    """How many updates old experience was in so many reports, how much was dropped for it; empty where none tells."""
    rows = [row for row in reports[-over:] if "lag_mean" in row and "lag_max" in row]
    if not rows:
        return {}
    mean, most = float(np.mean([row["lag_mean"] for row in rows])), max(row["lag_max"] for row in rows)
    return {"mean": mean, "max": most, "dropped_chunks": float(reports[-1].get("dropped_chunks", 0.0))}


def _table(scores: Any) -> np.ndarray:
    """Scores as [runs, tasks], checked."""
    table = np.asarray(scores, np.float64)
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or table.size == 0 or not np.isfinite(table).all():
        raise DataError(
            f"scores of shape {list(np.shape(scores))} arrived ({int((~np.isfinite(table)).sum())} not finite); "
            "finite numbers [runs] or [runs, tasks] were expected, at least one run."
        )
    return table
