"""The learning curve as a picture."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from starling.core.errors import RunDirError
from starling.records.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_curve"]

_INK, _QUIET, _GRID, _LINE = "#1f2937", "#6b7280", "#e5e7eb", "#2563eb"


def draw_curve(
    rows: Sequence[Mapping[str, Any]], path: Path, title: str, *, key: str = "episode_return", label: str = ""
) -> None:
    """Draw ``key`` of the rows of ``metrics.read`` over environment steps, as a PNG.

    Dots are the reports, the line is their running mean and the band one standard deviation around it.
    """
    # The object interface: no pyplot, so no window system and no state shared with the caller's own plots.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    points = [(row["env_steps"], row[key]) for row in rows if math.isfinite(row.get(key, math.nan))]
    figure = Figure(
        figsize=(8, 4.5), dpi=150, facecolor="white", layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.12)
    )
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if points:
        _draw_points(axes, np.array(points, np.float64))
    else:
        _say_nothing_yet(axes)
    _dress(axes, title, label or key.replace("_", " "))
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    write_atomic(Path(path), picture.getvalue(), RunDirError)


def _draw_points(axes: Axes, points: np.ndarray) -> None:
    steps, values = points[np.argsort(points[:, 0], kind="stable")].T
    few = len(steps) <= 40
    axes.plot(
        steps, values, "o", color=_LINE, markersize=5 if few else 3, alpha=0.45 if few else 0.2, markeredgewidth=0
    )
    half = len(values) // 20
    mean, spread = _running(values, half)
    axes.fill_between(steps, mean - spread, mean + spread, color=_LINE, alpha=0.14, linewidth=0)
    axes.plot(steps, mean, color=_LINE, linewidth=2, solid_capstyle="round")
    end: dict[str, Any] = {
        "markersize": 7,
        "markeredgecolor": "white",
        "markeredgewidth": 1.2,
        "clip_on": False,
        "zorder": 5,
    }
    axes.plot(steps[-1], mean[-1], "o", color=_LINE, **end)
    if half:
        caption = "line: running mean · band: one standard deviation · dots: reports"
        axes.text(0, 1.03, caption, transform=axes.transAxes, va="bottom", color=_QUIET, fontsize=8.5)
    axes.annotate(
        _number(mean[-1]),
        (steps[-1], mean[-1]),
        xytext=(8, 0),
        textcoords="offset points",
        va="center",
        color=_LINE,
        fontweight="bold",
        annotation_clip=False,
    )
    if len(steps) > 1 and steps[0] < steps[-1]:
        axes.set_xlim(min(0.0, steps[0]), steps[-1])
    else:
        axes.set_xlim(0, max(2 * steps[0], 1))


def _running(values: np.ndarray, half: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean over ``half`` reports to each side, fewer at the ends, and the standard deviation around that mean."""
    index = np.arange(len(values))
    start, stop = np.maximum(index - half, 0), np.minimum(index + half + 1, len(values))

    def window_mean(numbers: np.ndarray) -> np.ndarray:
        centre = numbers.mean()  # taken off first, or the running sum of large returns would lose digits
        sums = np.concatenate([[0.0], np.cumsum(numbers - centre)])
        return (sums[stop] - sums[start]) / (stop - start) + centre

    mean = window_mean(values)
    return mean, np.sqrt(np.maximum(window_mean((values - mean) ** 2), 0.0))


def _say_nothing_yet(axes: Axes) -> None:
    axes.text(0.5, 0.5, "no episode has ended yet", transform=axes.transAxes, ha="center", va="center", color=_QUIET)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.set_xticks([0])


def _dress(axes: Axes, title: str, label: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    # parse_math=False: an environment's name may hold a dollar sign.
    axes.set_title(title, loc="left", color=_INK, fontsize=12, fontweight="bold", pad=26, parse_math=False)
    axes.set_xlabel("environment steps", color=_QUIET)
    axes.set_ylabel(label, color=_QUIET)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _short(x)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _number(y)))
    if len(axes.get_xticks()) > 1:
        axes.xaxis.set_major_locator(MaxNLocator(7, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axes.tick_params(colors=_QUIET, length=0, labelsize=9)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(_GRID)


def _number(value: float) -> str:
    """Four digits, or all before the point; with a real minus sign."""
    text = f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:,.4g}"
    return text.replace("-", "\N{MINUS SIGN}", 1) if value < 0 else text


def _short(count: float) -> str:
    """1500 as 1.5k, 2 000 000 as 2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(count) >= size:
            return f"{count / size:g}{letter}"
    return f"{count:g}"
