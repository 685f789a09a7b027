"""Values that fit what a file must hold, and where others depart from it."""

import math

import pytest

from starling.records.layouts import Exactly, OrAbsent, OrNull, misfit

LAYOUT = {
    "name": str,
    "seconds": float,
    "roles": [{"steps": int, "waiting": OrNull(Exactly({"edges": [str]}))}],
    "passed": {...: int},
    "held": OrAbsent(int),
}
GOOD = {
    "name": "x",
    "seconds": 1,
    "roles": [{"steps": 3, "waiting": None, "more": 1}, {"steps": 0, "waiting": {"edges": ["a", "b"]}}],
    "passed": {"a": 1, "b": 2},
}


def test_what_fits_is_no_misfit():
    assert misfit(GOOD, LAYOUT) == ""
    assert misfit(GOOD | {"held": 3, "more": [], "seconds": 0.5, "passed": {}, "roles": []}, LAYOUT) == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": None}, "name is None, no str"),
        ({"seconds": math.nan}, "seconds is nan, no float"),
        ({"seconds": True}, "seconds is True, no float"),
        ({"seconds": 10**400}, "seconds is 1000000000000000000000000000000000000000, no float"),
        ({"held": None}, "held is None, no int"),
        ({"held": 2**63}, "held is 9223372036854775808, no int"),
        ({"roles": {}}, "roles is {}, no list"),
        ({"roles": [5]}, "roles[0] is 5, no dict"),
        ({"roles": [{"steps": 1, "waiting": None}, {"steps": 1.5}]}, "roles[1].steps is 1.5, no int"),
        ({"roles": [{"steps": 1, "waiting": {"edges": [1]}}]}, "roles[0].waiting.edges[0] is 1, no str"),
        ({"roles": [{"steps": 1, "waiting": {"edges": [], "x": 1}}]}, "roles[0].waiting.x is unknown"),
        ({"roles": [{"steps": 1, "waiting": []}]}, "roles[0].waiting is [], no dict"),
        ({"passed": {"a": "b"}}, "passed.a is 'b', no int"),
    ],
)
def test_the_first_departure_is_named_with_its_place(changes, said):
    assert misfit(GOOD | changes, LAYOUT) == said


def test_a_name_that_is_missing_is_a_misfit():
    assert misfit({name: value for name, value in GOOD.items() if name != "seconds"}, LAYOUT) == "seconds is missing"
