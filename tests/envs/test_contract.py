"""What every implementation promises, on CartPole: its physics tell whether a transition is a true one."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from starling.core.errors import SpaceError
from starling.core.spaces import Dict, Float, Int
from starling.core.trees import leaves
from starling.envs import Envs, GymEnvs, PoolEnvs, VectorEnvs, make

from .cart import verify_physics

B = 4
LIMIT = 25


def sync(mode: AutoresetMode) -> gym.vector.VectorEnv:
    return gym.make_vec(
        "CartPole-v1",
        B,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
        max_episode_steps=LIMIT,
    )


def native() -> gym.vector.VectorEnv:
    return gym.make_vec("CartPole-v1", B, vectorization_mode="vector_entry_point", max_episode_steps=LIMIT)


MAKERS = {
    "gym": lambda seed: make("CartPole-v1", B, seed, max_episode_steps=LIMIT),
    "pool": lambda seed: make("CartPole-v1", B, seed, max_episode_steps=LIMIT, workers=2),
    "sync next step": lambda seed: make(sync(AutoresetMode.NEXT_STEP), B, seed),
    "sync same step": lambda seed: make(sync(AutoresetMode.SAME_STEP), B, seed),
    "sync disabled": lambda seed: make(sync(AutoresetMode.DISABLED), B, seed),
    "native vector": lambda seed: make(native, B, seed),
    "native vector, kept": lambda seed: VectorEnvs(native(), seed, "CartPole-v1", exact=True),
    "envpool": lambda seed: make("envpool:CartPole-v1", B, seed, max_episode_steps=LIMIT),
}


@pytest.fixture(params=MAKERS)
def maker(request):
    if request.param == "envpool":
        pytest.importorskip("envpool")
    return MAKERS[request.param]


@pytest.fixture
def envs(maker):
    with maker(0) as made:
        yield made


def play(envs: Envs, steps: int, seed: int = 0):
    """Yield (obs, action, step): mostly balancing, so that some episodes terminate and some reach the limit."""
    rng = np.random.default_rng(seed)
    obs = envs.reset()
    for _ in range(steps):
        balanced = (obs[:, 2] + obs[:, 3] > 0).astype(np.int32)
        action = np.where(rng.random(B) < 0.5, balanced, np.arange(B) % 2).astype(np.int32)
        step = envs.step(action)
        yield obs, action, step
        obs = step.obs


def test_spaces_say_what_one_environment_has(envs):
    assert isinstance(envs.observation_space, Float)
    assert envs.observation_space.shape == (4,)
    assert envs.action_space == Int((), 0, 2)
    assert envs.reward_space == Float()
    assert envs.extras_space == Dict()
    assert envs.count == B


def test_observations_rewards_and_flags_have_their_types(envs):
    space = envs.observation_space.ranked(batch=True)
    for _, _, step in play(envs, 60):
        assert space.mismatch(step.obs) is None
        assert step.obs.shape == (B, 4)
        assert (step.reward.dtype, step.reward.shape) == (np.float32, (B,))
        for flags in (step.terminated, step.truncated, step.valid):
            assert (flags.dtype, flags.shape) == (np.bool_, (B,))
        assert envs.reward_space.ranked(batch=True).contains(step.reward)
        assert step.extras == {}


def test_every_valid_transition_obeys_the_physics(envs):
    seen = {"terminated": 0, "truncated": 0}
    for obs, action, step in play(envs, 300):
        verify_physics(obs, action, step)
        seen["terminated"] += int(step.terminated[step.valid].sum())
        seen["truncated"] += int(step.truncated[step.valid].sum())
    assert min(seen.values()) > 5


def test_episodes_add_up_the_valid_rewards(envs):
    returns, lengths, finished = np.zeros(B), np.zeros(B, int), 0
    for _, _, step in play(envs, 200):
        returns += np.where(step.valid, step.reward, 0)
        lengths += step.valid
        over = np.flatnonzero((step.terminated | step.truncated) & step.valid)
        assert [tuple(e) for e in step.episodes] == [(i, returns[i], lengths[i]) for i in over]
        returns[over], lengths[over] = 0, 0
        finished += len(over)
        assert lengths.max() <= LIMIT
    assert finished > 20


def test_truncation_comes_at_the_limit_alone(envs):
    lengths = [e.length for _, _, step in play(envs, 300) for e in step.episodes if step.truncated[e.env]]
    assert lengths
    assert set(lengths) == {LIMIT}


def test_the_seed_decides_everything(maker):
    runs = []
    for seed in (3, 3, 4):
        with maker(seed) as envs:
            runs.append(np.stack([step.obs for _, _, step in play(envs, 50)]))
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_environments_differ_from_each_other(envs):
    assert len({row.tobytes() for row in envs.reset()}) == B


@pytest.mark.parametrize("action", [np.zeros(B + 1, np.int32), np.zeros((B, 1), np.int32), 0])
def test_actions_of_a_wrong_shape_are_refused(envs, action):
    envs.reset()
    with pytest.raises(SpaceError, match=r"shape .* arrived, \[4\] was expected"):
        envs.step(action)


def test_continuous_numbers_for_a_discrete_action_are_refused(envs):
    envs.reset()
    with pytest.raises(SpaceError, match="discrete"):
        envs.step(np.full(B, 0.5))


def test_the_callers_actions_are_left_alone(envs):
    envs.reset()
    action = np.ones(B, np.int64)
    envs.step(action)
    assert action.tolist() == [1] * B


def test_state_holds_arrays_numbers_and_strings_alone(envs):
    for _ in play(envs, 10):
        pass
    for leaf in leaves(envs.state()):
        assert isinstance(leaf, (np.ndarray, int, float, str))
        assert not isinstance(leaf, np.ndarray) or leaf.dtype.kind in "biuf"


def test_restore_goes_on_from_observations_of_the_space(maker):
    with maker(0) as envs:
        for _ in play(envs, 30):
            pass
        state = envs.state()
    with maker(0) as other:
        obs = other.restore(state)
        assert other.observation_space.ranked(batch=True).contains(obs)
        assert other.exact_resume == (isinstance(other, (GymEnvs, PoolEnvs)) or maker is MAKERS["native vector, kept"])
        if maker is not MAKERS["native vector, kept"]:  # it may come back in the middle of a NEXT_STEP reset
            assert other.step(np.zeros(B, np.int32)).valid.all()


def test_a_restore_is_exact_or_begins_episodes_not_seen_before(maker):
    with maker(0) as envs:
        first = envs.reset()
        second = envs.restore(envs.state())
        third = envs.restore(envs.state())
        assert np.array_equal(first, second) == envs.exact_resume
        assert np.array_equal(second, third) == envs.exact_resume
