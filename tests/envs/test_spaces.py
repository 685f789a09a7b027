"""Gymnasium's spaces, as Starling carries them."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces as g

from starling.core import spaces as s
from starling.core.errors import SpaceError
from starling.core.trees import leaves, map_leaves
from starling.envs import GymEnvs, from_gymnasium, to_gymnasium


@pytest.mark.parametrize(
    ("space", "carried"),
    [
        (g.Box(-1, 2, (3,), np.float32), s.Float((3,), -1.0, 2.0)),
        (g.Box(-np.inf, np.inf, (2, 2), np.float64), s.Float((2, 2))),
        (g.Box(0, 255, (84, 84, 4), np.uint8), s.Int((84, 84, 4), 0, 256, "uint8")),
        (g.Box(-5, 5, (2,), np.int64), s.Int((2,), -5, 6, "int64")),
        (g.Box(0, 1, (10, 10, 4), np.bool_), s.Bool((10, 10, 4))),
        (g.Box(-1e300, 1e300, (2,), np.float64), s.Float((2,))),
        (g.Discrete(4), s.Int((), 0, 4)),
        (g.Discrete(4, start=-2), s.Int((), 0, 4)),
        (g.MultiDiscrete([2, 3]), s.Int((2,), 0, np.array([2, 3]))),
        (g.MultiBinary(5), s.Bool((5,))),
        (g.MultiBinary((2, 3)), s.Bool((2, 3))),
        (g.Dict(a=g.Discrete(2), b=g.MultiBinary(1)), s.Dict(a=s.Int((), 0, 2), b=s.Bool((1,)))),
        (g.Tuple((g.Discrete(2), g.Discrete(3))), s.Tuple(s.Int((), 0, 2), s.Int((), 0, 3))),
        (g.Dict(a=g.Tuple((g.Discrete(2),))), s.Dict(a=s.Tuple(s.Int((), 0, 2)))),
        (g.Dict(action_mask=g.Box(0, 1, (3,), np.int8)), s.Dict(action_mask=s.Bool((3,)))),
    ],
    ids=str,
)
def test_each_supported_space_has_its_counterpart(space, carried):
    assert from_gymnasium(space) == carried


def test_bounds_differ_by_element():
    space = from_gymnasium(g.Box(np.array([0.0, -1.0]), np.array([1.0, 3.0]), dtype=np.float64))
    assert space.low.tolist() == [0.0, -1.0]
    assert space.high.tolist() == [1.0, 3.0]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64])
def test_the_whole_range_of_an_integer_type_is_carried(dtype):
    info = np.iinfo(dtype)
    space = from_gymnasium(g.Box(info.min, info.max, (2,), dtype))
    assert space.dtype == np.dtype(dtype).name
    assert space.low == info.min
    assert space.high == (info.max if dtype == np.uint64 else info.max + 1)


@pytest.mark.parametrize(
    "space", [g.Text(5), g.Sequence(g.Discrete(2)), g.Graph(g.Box(0, 1), None), g.OneOf([g.Discrete(2)])]
)
def test_an_unsupported_space_is_named_with_its_place(space):
    with pytest.raises(SpaceError, match=rf"{type(space).__name__} at 'deep.0' arrived .* supported are Box, Discrete"):
        from_gymnasium(g.Dict(deep=g.Tuple((space,))))


@pytest.mark.parametrize(
    "space",
    [
        s.Float((3,), -1.0, 2.0),
        s.Float((), 0.0),
        s.Float((2,), np.array([0.0, -1.0], np.float32), np.array([1.0, 3.0], np.float32)),
        s.Int((), 0, 4),
        s.Int((), -2, 4),
        s.Int((), 0, 256, "uint8"),
        s.Int((2,), 0, np.array([2, 3])),
        s.Int((84, 84, 4), 0, 256, "uint8"),
        s.Int((2,), -5, 6, "int64"),
        s.Bool((10, 10, 4)),
        s.Bool(),
        s.Dict(a=s.Float((2,)), b=s.Tuple(s.Int((), 0, 3), s.Bool((1,)))),
    ],
    ids=str,
)
def test_a_space_that_goes_to_gymnasium_comes_back_as_it_was_and_holds_the_same_values(space):
    outside = to_gymnasium(space)
    assert from_gymnasium(outside) == space
    rng = np.random.default_rng(0)
    assert all(outside.contains(map_leaves(np.asarray, space.sample(rng))) for _ in range(5))


class Echo(gym.Env):
    """Observes the action it was sent."""

    def __init__(self, space: gym.Space) -> None:
        self.observation_space = self.action_space = space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.action_space.seed(seed)
        return self.action_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        return action, 0.0, False, False, {}


@pytest.mark.parametrize(
    "space",
    [
        g.Box(-1, 2, (3,), np.float32),
        g.Box(-1, 2, (3,), np.float64),
        g.Box(0, 255, (2, 2), np.uint8),
        g.Discrete(4, start=-2),
        g.MultiDiscrete([2, 3], start=[5, -1]),
        g.MultiBinary(5),
        g.Box(0, 1, (2, 2), np.bool_),
        g.Dict(a=g.Discrete(2, start=1), b=g.Box(-1, 1, (2,), np.float32)),
        g.Tuple((g.Discrete(2), g.Dict(x=g.MultiBinary(2)))),
    ],
    ids=str,
)
def test_actions_arrive_as_the_environment_declares_them_and_come_back_unchanged(space):
    """From Starling's action to gymnasium's, and as an observation back."""
    envs = GymEnvs(lambda: Echo(space), 3, 0, "Echo")
    envs.reset()
    rng = np.random.default_rng(0)
    ranked = envs.action_space.ranked(batch=True)
    for _ in range(5):
        action = ranked.sample(rng, (3,))
        step = envs.step(action)
        assert ranked.contains(step.obs)
        for sent, seen in zip(leaves(action), leaves(step.obs), strict=True):
            assert sent.dtype == seen.dtype
            np.testing.assert_array_equal(sent, seen)
    twin = GymEnvs(lambda: Echo(space), 3, 1, "Echo")
    twin.restore(envs.state())
    assert twin.exact_resume


def test_a_tree_of_actions_of_a_wrong_shape_or_key_is_refused():
    envs = GymEnvs(lambda: Echo(g.Dict(a=g.Discrete(2), b=g.Discrete(2))), 3, 0, "Echo")
    envs.reset()
    with pytest.raises(SpaceError, match=r"at 'b' of shape \[2\] arrived, \[3\] was expected"):
        envs.step({"a": np.zeros(3, int), "b": np.zeros(2, int)})
    with pytest.raises(SpaceError, match="actions without 'b' arrived"):
        envs.step({"a": np.zeros(3, int)})


@pytest.mark.parametrize(("start", "value"), [(0, 4), (0, -1), (5, 4)])
def test_a_discrete_observation_out_of_range_is_refused(start, value):
    from starling.envs.observations import Unfit, observation_codec

    codec = observation_codec(g.Discrete(4, start=start))
    with pytest.raises(Unfit, match=f"{start} … {start + 3} was expected"):
        codec.stack([value])
