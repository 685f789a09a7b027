"""Greedy evaluation plays each environment's first episodes, not whichever are over soonest."""

from __future__ import annotations

import numpy as np
import pytest

from starling.algorithms.a2c import A2C
from starling.algorithms.base import inputs_of
from starling.algorithms.compiled.evaluation import Evaluation, evaluate
from starling.algorithms.compiled.policy import Policy
from starling.backends import get_backend
from starling.components.graph.assembly import assemble
from starling.components.graph.build import build
from starling.envs import make
from tests.experiments.toys import Lengths, Toy


def policy_for(envs):
    config = A2C.Config(envs=envs.count, hidden=(4,))
    algorithm = A2C.compose(config, envs.observation_space, envs.action_space)
    return Policy(build(assemble(algorithm, inputs_of(algorithm), algorithm.traced), get_backend("numpy")))


def test_short_episodes_do_not_push_out_long_ones():
    """Every environment plays episodes of 1, 20, 1, 20 … steps: of the first eight, half are long."""
    with make(Lengths, 2, 0) as envs:
        result = evaluate(policy_for(envs), envs, 8)
    assert sorted(result.lengths) == [1] * 4 + [20] * 4
    assert result.returns == [float(length) for length in result.lengths]
    assert result.mean == 10.5
    assert result.std == 9.5


def test_environments_of_different_pace_play_equal_shares():
    """Environment 0 ends after 2 steps and environment 1 after 50: taking the soonest would never see the latter."""
    lengths = iter([2, 50])

    class Fixed(Toy):
        def __init__(self):
            super().__init__()
            self.length = next(lengths)

    with make(Fixed, 2, 0) as envs:
        result = evaluate(policy_for(envs), envs, 4)
    assert sorted(result.lengths) == [2, 2, 50, 50]


@pytest.mark.parametrize(("episodes", "count"), [(1, 1), (3, 2), (5, 4), (2, 4)])
def test_exactly_as_many_episodes_are_played_as_were_asked_for(episodes, count):
    done = []
    with make(Toy, count, 0) as envs:
        result = evaluate(policy_for(envs), envs, episodes, done.append)
    assert result == Evaluation([10.0] * episodes, [10] * episodes)
    assert done == list(range(1, episodes + 1))


def test_the_same_seed_gives_the_same_returns():
    returns = []
    for seed in (1, 1, 2):
        with make("CartPole-v1", 3, seed) as envs:
            returns.append(evaluate(policy_for(envs), envs, 6).returns)
    assert returns[0] == returns[1] != returns[2]
    assert np.mean(returns[0]) > 5


class Endless(Toy):
    """Without a limit; episodes with ``ends`` are over after three steps, the others never."""

    ends = False

    def step(self, action):
        self.t += 1
        return self.observe(), 1.0, self.ends and self.t == 3, False, {}


def test_an_episode_that_the_greedy_policy_never_ends_counts_as_it_is_after_the_longest():
    with make(Endless, 2, 0) as envs:
        result = evaluate(policy_for(envs), envs, 5, longest=20)
    assert result == Evaluation([20.0] * 5, [20] * 5, cut=5)


def test_episodes_that_end_by_themselves_are_not_cut_by_others_that_do_not():
    ending = iter([True, False])

    class Mixed(Endless):
        def __init__(self):
            super().__init__()
            self.ends = next(ending)

    with make(Mixed, 2, 0) as envs:
        result = evaluate(policy_for(envs), envs, 4, longest=20)
    assert sorted(result.lengths) == [3, 3, 20, 20]
    assert sorted(result.returns) == [3.0, 3.0, 20.0, 20.0]
    assert result.cut == 2


def test_an_episode_of_just_the_longest_ends_by_itself():
    with make(Toy, 1, 0) as envs:
        assert evaluate(policy_for(envs), envs, 2, longest=10) == Evaluation([10.0] * 2, [10] * 2)
