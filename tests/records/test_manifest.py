"""Settings that were changed since a run began."""

import math

import pytest

from starling.records.manifest import changed_settings

BEGAN = {"seed": 1, "out": None, "ppo": {"gamma": 0.99, "hidden": [64], "torso": None}, "env_options": {}}


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({}, ()),
        ({"out": "there", "quiet": True, "eval_episodes": 5, "keep_checkpoints": 9, "preset": "x"}, ()),
        ({"seed": 2}, ("seed was 1 when the run began and is 2 now",)),
        (
            {"ppo": {"gamma": 0.9, "hidden": (64,), "torso": None}},
            ("ppo.gamma was 0.99 when the run began and is 0.9 now",),
        ),
        (
            {"ppo": {"gamma": 0.99, "hidden": (64,), "torso": {"type": "mlp"}}},
            (
                "ppo.torso was None when the run began and is not set now",
                "ppo.torso.type was not set when the run began and is mlp now",
            ),
        ),
        ({"env_options": {"a": 1}}, ("env_options.a was not set when the run began and is 1 now",)),
        ({"seed": math.nan}, ("seed was 1 when the run began and is nan now",)),
        ({"seed": "x" * 200}, (f"seed was 1 when the run began and is {'x' * 60} now",)),
    ],
)
def test_what_changed_is_said_with_both_values(now, said):
    assert changed_settings(BEGAN, BEGAN | now) == said


def test_nothing_is_said_of_a_run_that_kept_no_settings():
    assert changed_settings(None, BEGAN) == ()
