from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from starling.components.graph.shapes import SIZES, describe, violation


def zeros(*shape, dtype="float32"):
    return np.zeros(shape, dtype)


B, T = SIZES["batch"], SIZES["time"]


@dataclass
class Policy:
    logits: Any
    mask: Any = None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (zeros(), "float32[]"),
        (zeros(B, 4), "float32[B, 4]"),
        (zeros(T, B, 4), "float32[T, B, 4]"),
        (zeros(T * B, 2, dtype="uint8"), "uint8[TB, 2]"),
        (zeros(T, 4), "float32[T, 4]"),
        (zeros(B, 11), "float32[B, 11]"),  # eleven joints, not a time
        (zeros(B, 13), "float32[B, 13]"),
        (zeros(4, B), "float32[4, 13]"),
        ({"b": zeros(B), "a": (zeros(B, 2, dtype="int32"),)}, "{a.0: int32[B, 2], b: float32[B]}"),
        (Policy(zeros(B, 3)), "Policy{logits: float32[B, 3]}"),
        (None, ""),
        (3.5, "float"),
        (np.float32(1), "float32[]"),
    ],
)
def test_values_are_described_in_words(value, words):
    assert describe(value) == words


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        ("* I", zeros(5)),
        ("* I", zeros(2, 3, 5)),
        ("B I", zeros(2, 3)),
        ("* 84 84 C", zeros(2, 84, 84, 1)),
        ("int *", zeros(2, dtype="int64")),
        ("int *", zeros(2, dtype="uint8")),
        ("int", zeros(dtype="int32")),
        ("bool T B", zeros(2, 3, dtype="bool")),
        ("", zeros()),
    ],
)
def test_values_that_follow_a_pattern_pass(pattern, value):
    assert violation(pattern, value) is None


@pytest.mark.parametrize(
    ("pattern", "value", "reason"),
    [
        ("B I", zeros(B), "float32[B] arrived, [B, I] was expected"),
        ("* 84 84 C", zeros(B, 84, 83, 1), "float32[B, 84, 83, 1] arrived, [*, 84, 84, C] was expected"),
        ("int *", zeros(B), "float32[B] arrived, int was expected"),
        ("float B", zeros(B, dtype="bool"), "bool[B] arrived, float was expected"),
        ("int", zeros(2, dtype="int32"), "int32[2] arrived, [] was expected"),
        ("* I", zeros(), "float32[] arrived, [*, I] was expected"),
        ("B", {"a": zeros(B)}, "{a: float32[B]} arrived, one array [B] was expected"),
        ("B", None, "None arrived, one array [B] was expected"),
    ],
)
def test_a_violation_says_what_arrived_and_what_was_expected(pattern, value, reason):
    assert violation(pattern, value) == reason
