"""The agent inside somebody else's program."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import starling
from starling.core.errors import CheckpointError, ConfigError, DataError, SpaceError, UnknownNameError
from starling.core.spaces import Bool, Dict, Float, Int, Tuple
from starling.core.trees import items
from starling.experience.cadence import Round
from starling.records import checkpoint
from starling.records.hashes import parameter_hash

OBS, ACTIONS = Float((3,)), Int((), high=2)
SETTINGS = {
    "dqn": {"batch_size": 8, "learning_starts": 8, "hidden": [8], "capacity": 100},
    "ppo": {"rollout": 4, "minibatch": 4, "epochs": 2, "hidden": [8]},
    "a2c": {"rollout": 4, "hidden": [8]},
    "sac": {"batch_size": 8, "learning_starts": 8, "hidden": [8], "capacity": 100},
}


def build(algo="dqn", obs=OBS, action=ACTIONS, **more):
    return starling.Agent.build(algo, obs, action, backend="torch", **{**SETTINGS[algo], **more})


def batch_of(agent):
    """What an update would learn from now."""
    return next(agent._feed.batches(Round(0.0, 1))).data


def play(agent, steps, rng, env_id=0):
    """Steps of one environment; every fourth ends an episode."""
    for step in range(steps):
        action = agent.act(rng.standard_normal((1, 3)).astype(np.float32), env_ids=[env_id])
        assert action.shape == (1,)
        agent.observe(1.0, rng.standard_normal(3).astype(np.float32), terminated=step % 4 == 3, env_id=env_id)


@pytest.mark.parametrize("algo", ["dqn", "ppo"])
def test_it_acts_observes_and_learns(algo, rng):
    agent = build(algo)
    before = parameter_hash(agent.get_weights())
    assert agent.update() is None  # nothing was observed yet
    play(agent, 8 if algo == "dqn" else 4, rng)
    metrics = agent.update()
    assert metrics
    assert all(np.isfinite(value) for value in metrics.values())
    assert parameter_hash(agent.get_weights()) != before
    assert agent.steps == (8 if algo == "dqn" else 4)


@pytest.fixture
def rng():
    return np.random.default_rng(4)


@pytest.mark.parametrize("algo", ["dqn", "ppo"])
def test_acting_without_exploring_is_repeatable_and_leaves_nothing_open(algo, rng):
    agent, obs = build(algo), rng.standard_normal((5, 3)).astype(np.float32)
    first = agent.act(obs, explore=False)
    assert first.shape == (5,)
    np.testing.assert_array_equal(first, agent.act(obs, explore=False))
    with pytest.raises(DataError, match="no open action"):
        agent.observe(1.0, obs[0])


def test_two_environments_step_at_their_own_pace_in_dqn(rng):
    agent = build("dqn", n_step=3)
    play(agent, 5, rng, env_id=0)
    play(agent, 2, rng, env_id=7)
    play(agent, 9, rng, env_id=0)
    assert agent.update() is not None
    assert agent.steps == 16


def test_an_n_step_return_never_crosses_from_one_environment_to_the_other():
    agent = build("dqn", n_step=2, gamma=0.5, learning_starts=1, batch_size=4, capacity=10)
    for step in range(3):
        for env_id in (0, 1):
            agent.act(np.full((1, 3), 10 * env_id + step, np.float32), env_ids=[env_id])
            agent.observe(100.0 * env_id + step, np.full(3, 10 * env_id + step + 1, np.float32), env_id=env_id)
    batch = batch_of(agent)
    # r0 + γ r1, r1 + γ r2 of each environment, and γ² to the observation two steps on
    expected = {0.0: 0.5, 1.0: 2.0, 10.0: 150.5, 11.0: 152.0}
    for obs, reward, discount, next_obs in zip(batch["obs"], batch["reward"], batch["discount"], batch["next_obs"]):
        assert reward == expected[float(obs[0])]
        assert discount == 0.25
        assert next_obs[0] == obs[0] + 2


def test_two_environments_step_at_their_own_pace_in_ppo(rng):
    agent = build("ppo", envs=2)
    play(agent, 4, rng, env_id=1)
    assert agent.update() is None  # environment 0 has shown nothing
    play(agent, 3, rng, env_id=0)
    assert agent.update() is None
    play(agent, 1, rng, env_id=0)
    assert agent.update() is not None
    assert agent.update() is None  # learned from once


def test_an_on_policy_agent_that_is_told_too_much_says_so_and_loses_nothing(rng):
    agent = build("ppo", envs=2)
    play(agent, 4, rng, env_id=0)
    agent.act(np.zeros((1, 3), np.float32), env_ids=[0])
    with pytest.raises(DataError, match=r"environment 0 has a whole rollout; environments \[1\] must catch up"):
        agent.observe(1.0, np.zeros(3, np.float32), env_id=0)
    play(agent, 4, rng, env_id=1)
    with pytest.raises(DataError, match=r"call update\(\) first"):
        agent.observe(1.0, np.zeros(3, np.float32), env_id=0)
    assert agent.update() is not None
    agent.observe(1.0, np.zeros(3, np.float32), env_id=0)  # the action is still open
    with pytest.raises(DataError, match=r"env_ids=\[5\]; the agent was built for envs=2"):
        agent.act(np.zeros((1, 3), np.float32), env_ids=[5])


def test_a_cut_episode_is_bootstrapped_and_an_ended_one_is_not():
    for terminated, truncated in ((True, False), (False, True), (True, True)):
        agent = build("a2c", rollout=1, gamma=0.5)
        agent.act(np.zeros((1, 3), np.float32))
        final = np.ones(3, np.float32)
        agent.observe(1.0, final, terminated, truncated)
        value = float(agent._policy.values(final[None], agent._policy.no_memory(1))[0])
        batch = batch_of(agent)
        assert batch["reward"].tolist() == [[1.0]], "the reward is stored as it came"
        assert batch["bootstrap"].tolist() == [[0.0 if terminated else value]]
        reward, discount = agent.algorithm.rewards(None, batch)
        np.testing.assert_allclose(reward, [[1.0 if terminated else 1.0 + 0.5 * value]], rtol=1e-6)
        assert discount == 0.0


def test_it_learns_from_a_batch_that_is_handed_in(rng):
    agent = build("dqn")
    batch = {
        "obs": rng.standard_normal((8, 3)).astype(np.float32),
        "action": np.zeros(8, np.int32),
        "reward": np.ones(8, np.float32),
        "discount": np.zeros(8, np.float32),
        "next_obs": rng.standard_normal((8, 3)).astype(np.float32),
    }
    first = agent.update(batch)["loss.td"]
    for _ in range(400):
        last = agent.update(batch)["loss.td"]
    assert last < 0.1 * first


@pytest.mark.parametrize("algo", ["dqn", "ppo"])
def test_what_was_saved_goes_on_as_if_nothing_had_happened(algo, rng, tmp_path):
    one, other = build(algo), build(algo, seed=9)
    play(one, 8 if algo == "dqn" else 4, rng)
    one.update()
    one.save(tmp_path / "saved")
    other.load(tmp_path / "saved")
    assert parameter_hash(one.get_weights()) == parameter_hash(other.get_weights())
    obs = rng.standard_normal((6, 3)).astype(np.float32)
    np.testing.assert_array_equal(one.act(obs, explore=False), other.act(obs, explore=False))
    if algo == "dqn":  # the optimiser's state and the target came along too
        batch = batch_of(one)
        one.update(batch)
        other.update(batch)
        assert parameter_hash(one.get_weights()) == parameter_hash(other.get_weights())


def test_foreign_torn_and_missing_files_are_refused(tmp_path):
    agent = build("dqn")
    build("ppo").save(tmp_path / "ppo")
    with pytest.raises(ConfigError, match="saved by 'ppo'"):
        agent.load(tmp_path / "ppo")
    build("dqn", hidden=[9]).save(tmp_path / "wider")
    with pytest.raises(CheckpointError, match="shape"):
        agent.load(tmp_path / "wider")
    checkpoint.save(tmp_path, "empty", {}, {"algo": "dqn"})
    with pytest.raises(CheckpointError, match="does not hold what an agent saves"):
        agent.load(tmp_path / "empty")
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        agent.load(tmp_path / "nothing")
    saved = agent.save(tmp_path / "torn")
    arrays = next(saved.glob("*.safetensors"))
    arrays.write_bytes(arrays.read_bytes()[:-8])
    with pytest.raises(CheckpointError, match="torn"):
        agent.load(saved)


@pytest.mark.parametrize("algo", ["dqn", "ppo"])
def test_weights_move_from_one_backend_to_the_other(algo, rng):
    torch = build(algo, seed=1)
    jax = starling.Agent.build(algo, OBS, ACTIONS, backend="jax", act_backend="jax", seed=2, **SETTINGS[algo])
    obs = rng.standard_normal((64, 3)).astype(np.float32)
    jax.set_weights(torch.get_weights())
    np.testing.assert_array_equal(jax.act(obs, explore=False), torch.act(obs, explore=False))
    for (path, one), (_, two) in zip(items(jax.get_weights()), items(torch.get_weights())):
        np.testing.assert_array_equal(one, two, err_msg=path)
    with pytest.raises(CheckpointError, match="do not belong"):
        jax.set_weights({"other": np.zeros(3)})


def test_weights_that_were_taken_do_not_change_with_learning(rng):
    agent = build("dqn")
    play(agent, 8, rng)
    taken = agent.get_weights()
    before = parameter_hash(taken)
    agent.update()
    assert parameter_hash(taken) == before


def test_what_does_not_fit_is_refused_with_the_reason(rng):
    agent = build("dqn")
    with pytest.raises(DataError, match=r"shape \[1, 4\] arrived"):
        agent.act(np.zeros((1, 4), np.float32))
    with pytest.raises(DataError, match="finite"):
        agent.act(np.full((1, 3), np.nan, np.float32))
    with pytest.raises(ConfigError, match="1 observations and 2 env_ids"):
        agent.act(np.zeros((1, 3), np.float32), env_ids=[0, 1])
    agent.act(np.zeros((1, 3)))  # float64 is converted
    for reward in (np.nan, np.inf):
        with pytest.raises(DataError, match="reward"):
            agent.observe(reward, np.zeros(3))
    with pytest.raises(DataError, match="next_obs"):
        agent.observe(1.0, np.zeros(2))
    agent.observe(1.0, np.zeros(3))
    with pytest.raises(DataError, match="dict"):
        build("dqn", obs=Dict(a=Float((2,)))).act(np.zeros((1, 2), np.float32))


def test_unknown_algorithms_and_settings_are_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'dqn'"):
        starling.Agent.build("dqm", OBS, ACTIONS)
    with pytest.raises(UnknownNameError, match="Did you mean 'learning_rate'"):
        starling.Agent.build("dqn", OBS, ACTIONS, learning_rte=1)
    with pytest.raises(SpaceError, match="one of several actions"):
        starling.Agent.build("dqn", OBS, Float((1,), -1, 1))


def test_masked_actions_are_never_chosen(rng):
    agent = build("dqn", obs=Dict(observation=Float((3,)), action_mask=Bool((4,))), action=Int((), high=4))
    mask = np.zeros((50, 4), bool)
    mask[:, 2] = True
    obs = {"observation": rng.standard_normal((50, 3)).astype(np.float32), "action_mask": mask}
    assert (agent.act(obs) == 2).all()
    assert (agent.act(obs, explore=False) == 2).all()


def test_continuous_actions_come_out_in_the_environments_bounds(rng):
    agent = build("sac", action=Float((2,), np.array([0.0, 10.0]), np.array([1.0, 30.0])))
    actions = agent.act(rng.standard_normal((200, 3)).astype(np.float32))
    assert actions.min(axis=0)[0] >= 0
    assert actions.max(axis=0)[0] <= 1
    assert actions.min(axis=0)[1] >= 10
    assert actions.max(axis=0)[1] <= 30
    assert actions[:, 1].std() > 1


@pytest.mark.parametrize("algo", ["dqn", "ppo"])
def test_it_learns_which_arm_of_a_bandit_pays(algo, rng):
    settings = {"dqn": {"total_steps": 150, "learning_rate": 0.02}, "ppo": {"rollout": 16, "learning_rate": 0.05}}[algo]
    agent, obs = build(algo, **settings), np.ones((1, 3), np.float32)
    for _ in range(160):
        action = int(agent.act(obs)[0])
        agent.observe(float(action == 1), obs[0], terminated=True)
        agent.update()
    late = [int(agent.act(obs)[0]) for _ in range(50)]
    assert np.mean(late) > 0.8
    assert agent.act(obs, explore=False)[0] == 1


def test_it_keeps_what_it_saw_though_the_environment_writes_into_the_same_array():
    agent = build("dqn", learning_starts=1, batch_size=4, capacity=10)
    state = np.zeros(3, np.float32)
    for step in range(4):
        agent.act(state[None])
        state += 1  # in place: the observation that was acted on is gone
        agent.observe(float(step), state)
    batch = batch_of(agent)
    np.testing.assert_array_equal(batch["obs"][:, 0], batch["reward"])
    np.testing.assert_array_equal(batch["next_obs"], batch["obs"] + 1)


def test_what_was_loaded_goes_on_exploring_as_much_as_it_did(tmp_path):
    def build_for_100_steps():
        return build("dqn", total_steps=100, epsilon_fraction=1.0, epsilon_end=0.0)

    one, other = build_for_100_steps(), build_for_100_steps()
    for _ in range(100):
        one.act(np.zeros((1, 3), np.float32))
        one.observe(0.0, np.zeros(3))
    one.save(tmp_path / "saved")
    other.load(tmp_path / "saved")
    assert other.steps == 100
    obs = np.zeros((200, 3), np.float32)
    greedy = other.act(obs, explore=False)
    assert (other.act(obs) == greedy).all(), "epsilon is 0 at the end of its fall"
    assert (build_for_100_steps().act(obs) != greedy).any(), "and 1 at the beginning"


def test_noise_is_held_for_as_many_steps_as_sac_is_told():
    agent = build("sac", action=Float((1,), -1.0, 1.0), hold_noise=3)
    obs = np.zeros((2, 3), np.float32)
    actions = np.concatenate([agent.act(obs) for _ in range(6)], axis=1)  # [env, step]
    for held in (actions[:, :3], actions[:, 3:]):
        assert (held == held[:, :1]).all()
    assert (actions[:, 2] != actions[:, 3]).all()
    assert actions[0, 0] != actions[1, 0], "each environment has noise of its own"


def test_it_takes_gymnasium_spaces_and_counts_as_they_do(rng):
    spaces = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2, start=1)
    agent = build("dqn", *spaces)
    actions = agent.act(rng.uniform(-1, 1, (100, 3)).astype(np.float32))
    assert set(actions.tolist()) == {1, 2}
    assert actions.dtype == spaces[1].dtype
    play(agent, 8, rng)
    assert set(batch_of(agent)["action"].tolist()) <= {0, 1}, "inside, actions are counted from 0"
    box = gym.spaces.Box(-2, 2, (1,), np.float32)
    assert build("sac", action=box).act(np.zeros((1, 3), np.float32)).dtype == np.float32


def test_observations_of_discrete_spaces_are_counted_from_their_start():
    agent = build("dqn", gym.spaces.Discrete(3, start=5), gym.spaces.Discrete(2))
    for seen in (5, 6):
        agent.act(np.array([seen]))
        agent.observe(float(seen), seen + 1)
    batch = batch_of(agent)
    np.testing.assert_array_equal(batch["obs"], batch["reward"] - 5)
    np.testing.assert_array_equal(batch["next_obs"], batch["obs"] + 1)
    with pytest.raises(DataError, match="outside"):
        agent.act(np.array([8]))
    with pytest.raises(DataError, match="outside"):
        agent.act(np.array([4]))


def test_a_bound_that_rounding_passes_by_a_hair_is_accepted():
    agent = build("dqn", obs=Float((3,), -1.0, 1.0))
    agent.act(np.full((1, 3), 1 + 1e-7))
    agent.observe(1.0, np.full(3, -1 - 1e-7))
    assert agent.steps == 1


def test_float64_observations_are_stored_as_the_space_says():
    agent = build("dqn", learning_starts=1, batch_size=1)
    agent.act(np.full((1, 3), 0.1))
    agent.observe(1.0, np.full(3, 0.2))
    batch = batch_of(agent)
    assert batch["obs"].dtype == batch["next_obs"].dtype == np.float32
    np.testing.assert_array_equal(batch["obs"], np.full((1, 3), 0.1, np.float32))


def test_masks_may_come_as_integers(rng):
    space = gym.spaces.Dict(observation=gym.spaces.Box(-1, 1, (3,)), action_mask=gym.spaces.Box(0, 1, (4,), np.int8))
    agent = build("dqn", space, gym.spaces.Discrete(4))
    obs = {"observation": np.zeros((50, 3), np.float32), "action_mask": np.tile(np.int8([0, 0, 1, 0]), (50, 1))}
    assert (agent.act(obs) == 2).all()


def test_observations_of_many_parts_keep_their_places():
    """Eleven parts: the names of their places sort as 0, 1, 10, 2 …, which is not their order."""
    agent = build("dqn", obs=Tuple(*(Float(()) for _ in range(11))), learning_starts=1, batch_size=1)
    agent.act(tuple(np.full(1, i, np.float32) for i in range(11)))
    agent.observe(1.0, tuple(np.float32(i) for i in range(11)))
    assert [float(part[0]) for part in batch_of(agent)["obs"]] == list(range(11))


def test_memory_is_carried_for_each_environment_and_forgotten_when_its_episode_ends(rng):
    def remembering(**more):
        return build("ppo", memory="lstm", memory_size=4, envs=2, rollout=2, minibatch=2, **more)

    obs = rng.standard_normal((3, 1, 3)).astype(np.float32)
    agent, alone = remembering(), remembering()
    for step in range(2):  # environment 1 sees other things in between
        agent.act(obs[step], env_ids=[0])
        agent.observe(0.0, obs[step + 1][0], terminated=step == 1, env_id=0)
        agent.act(-obs[step], env_ids=[1])
        agent.observe(0.0, -obs[step + 1][0], env_id=1)
        alone.act(obs[step], env_ids=[0])
        alone.observe(0.0, obs[step + 1][0], env_id=0)
        for mine, its in zip(items(agent._rows[0].memory), items(alone._rows[0].memory)):
            np.testing.assert_array_equal(mine[1], its[1])
    first = batch_of(agent)["memory"]
    assert all((leaf == 0).all() for _, leaf in items(first)), "a rollout begins with what was remembered before it"
    agent.update()
    agent.act(np.tile(obs[2], (2, 1)))
    (_, ended), (_, goes_on) = agent._rows[0].open, agent._rows[1].open
    assert all((leaf == 0).all() for _, leaf in items(ended.memory)), "forgotten"
    assert all((leaf != 0).any() for _, leaf in items(goes_on.memory))


def test_an_algorithm_that_moves_parameters_between_episodes_is_refused():
    with pytest.raises(ConfigError, match=r"es learns from whole episodes.*use starling\.train"):
        starling.Agent.build("es", OBS, ACTIONS)


def test_an_agent_that_remembers_learns_from_sequences(rng):
    small = {"hidden": [8], "memory_size": 4, "length": 4, "burn_in": 0, "overlap": 0, "n_step": 1}
    agent = starling.Agent.build("r2d2", OBS, ACTIONS, backend="torch", batch_size=2, learning_starts=16, **small)
    play(agent, 12, rng)
    assert agent.update() is None
    play(agent, 4, rng)
    assert agent.update()
