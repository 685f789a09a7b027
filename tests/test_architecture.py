"""What the layout promises: nobody asks which plan or formation it has, and files have one subject."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from starling.algorithms import ALGORITHMS
from starling.formations import FORMATIONS

ROOT = Path(__file__).parents[1] / "starling"
FILES = sorted(ROOT.rglob("*.py"))
PLANS = "Plan|Rollouts|Transitions|Sequences|Episodes|Evaluations|DataSet|Demonstrated|Replayed"


def offending(pattern, outside):
    """Lines that match, but for those in the folders that define what they speak of."""
    found = []
    for file in FILES:
        if file.relative_to(ROOT).parts[0] in outside:
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if re.search(pattern, line):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()}")
    return found


def test_nobody_asks_which_plan_it_has():
    assert offending(rf"isinstance\([^)]*(\bplan\b|\b({PLANS})\b)", {"experience"}) == []


@pytest.mark.parametrize("names", [FORMATIONS, ALGORITHMS], ids=["formations", "algorithms"])
def test_nobody_compares_a_name(names):
    quoted = "|".join(f"[\"']{name}[\"']" for name in names)
    assert offending(rf"(==|!=|\bin\b) *\(?({quoted})", {"formations", "algorithms"}) == []


def test_no_file_is_longer_than_four_hundred_lines():
    assert [str(f.relative_to(ROOT)) for f in FILES if len(f.read_text().splitlines()) > 400] == []


def test_the_middle_stays_small():
    middle = ("roles", "experiments", "insight", "executors", "experience")
    lines = {part: sum(len(f.read_text().splitlines()) for f in ROOT.glob(f"{part}/**/*.py")) for part in middle}
    assert sum(lines.values()) < 7_000, lines


def test_no_two_classes_share_a_name():
    names = [name for file in FILES for name in re.findall(r"^class (\w+)", file.read_text(), re.MULTILINE)]
    assert [name for name, count in Counter(names).items() if count > 1] == []
