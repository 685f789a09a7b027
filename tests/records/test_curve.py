"""The learning curve: what is drawn, and that it can always be drawn."""

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from starling.core.errors import RunDirError
from starling.records.curve import _running, _short, draw_curve

BLUE = (37, 99, 235)


def rows(values, start=1):
    return [{"env_steps": 1000 * i, "seconds": 0.0, "episode_return": v} for i, v in enumerate(values, start)]


def blue_centre_heights(path):
    """For each column of the picture that has line-coloured pixels, their mean height from the bottom."""
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    is_line = np.abs(pixels - BLUE).sum(-1) < 12
    columns = np.flatnonzero(is_line.any(0))
    return [len(pixels) - np.flatnonzero(is_line[:, x]).mean() for x in columns]


@pytest.mark.parametrize("values", [[], [5.0], [5.0, 5.0], [math.nan], [math.inf, 1.0], [-1e30, 1e30], [1e-12] * 50])
def test_any_number_of_points_gives_a_picture(tmp_path, values):
    draw_curve(rows(values), tmp_path / "curve.png", "ppo $on$ CartPole_{v1")
    with Image.open(tmp_path / "curve.png") as image:
        assert image.format == "PNG"
        assert image.size == (1200, 675)


def test_rows_without_returns_and_steps_of_zero_are_fine(tmp_path):
    draw_curve([{"env_steps": 0, "episode_return": 1.0}, {"env_steps": 5, "loss": 2.0}], tmp_path / "c.png", "x")
    assert (tmp_path / "c.png").stat().st_size > 1000


def test_a_rising_return_is_a_rising_line(tmp_path):
    draw_curve(rows(np.linspace(0, 100, 30)), tmp_path / "c.png", "x")
    heights = blue_centre_heights(tmp_path / "c.png")
    line = heights[: int(len(heights) * 0.9)]  # what follows are the end's dot and number
    assert line[-1] - line[0] > 300
    assert all(later >= earlier - 3 for earlier, later in itertools.pairwise(line))


def test_another_key_can_be_drawn(tmp_path):
    draw_curve([{"env_steps": i, "loss": i} for i in range(9)], tmp_path / "c.png", "x", key="loss")
    assert len(blue_centre_heights(tmp_path / "c.png")) > 500


def test_the_running_mean_and_deviation_are_those_of_each_window():
    values = np.random.default_rng(0).normal(1e6, 1, 50)
    mean, spread = _running(values, 3)
    windows = [slice(max(0, i - 3), i + 4) for i in range(50)]
    np.testing.assert_allclose(mean, [values[w].mean() for w in windows], rtol=1e-12)
    residuals = (values - mean) ** 2
    np.testing.assert_allclose(spread, [np.sqrt(residuals[w].mean()) for w in windows], rtol=1e-6)


@pytest.mark.parametrize(("count", "text"), [(0, "0"), (999, "999"), (1500, "1.5k"), (2e6, "2M"), (3e9, "3G")])
def test_steps_are_written_short(count, text):
    assert _short(count) == text


def test_an_unwritable_place_is_explained(tmp_path):
    with pytest.raises(RunDirError, match="cannot write"):
        draw_curve([], tmp_path / "none" / "curve.png", "x")


def test_pyplot_is_never_touched(tmp_path):
    script = """
import sys
from starling.records.curve import draw_curve
assert "matplotlib" not in sys.modules
draw_curve([{"env_steps": 1, "episode_return": 2.0}], sys.argv[1], "x")
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "c.png")], check=True)
