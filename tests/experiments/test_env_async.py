"""Runs whose rows do not wait for the slowest."""

from __future__ import annotations

import gymnasium as gym
import pytest

import starling
from starling.core.errors import ConfigError
from starling.experiments.config import resolve
from tests.executors.programs import SMALL, Watcher, trained
from tests.experiments.commands import manifest, metrics
from tests.experiments.programs import finish, program_of
from tests.experiments.toys import Cut, Toy

TOY = "tests.experiments.toys:Toy-v0"
HERE = [
    ("ppo", "single"),
    ("dqn", "single"),
    ("r2d2", "single"),
    ("reinforce", "single"),
    ("es", "single"),
    ("a2c", "sync"),
    ("impala", "actor_learner"),
    ("dqn", "apex"),
    ("dqn", "async_gradients"),
    ("es", "evolution"),
    ("a2c", "allreduce"),
]


@pytest.mark.parametrize(("algo", "formation"), HERE)
def test_every_plan_runs_to_its_end_wherever_actors_have_a_network(algo, formation):
    actors = {} if formation == "single" else {"actors": 2 if formation == "allreduce" else 1}
    watcher, settings = Watcher(), {"envs": 5} if algo == "dqn" else {}
    trained(
        algo, formation, "inline", watcher, env=TOY, backend="torch", env_workers=1, env_async=True, settings=settings,
        steps=300, log_every=50, **actors,
    )  # fmt: skip
    _, steps, values = [report for report in watcher.reports if report[1] >= 0][-1]
    assert steps >= 300
    assert values["updates"] > 0
    assert values["episode_return"] == values["episode_length"] == 10.0
    assert values["missing_chunks"] == values["doubled_chunks"] == 0


def test_a_run_on_processes_says_that_resuming_it_is_not_exact(tmp_path):
    run = tmp_path / "run"
    settings = {"formation": "actor_learner", "actors": 2, "evaluators": 1, "env_async": True, "env_workers": 1}
    result = starling.train(
        "impala", TOY, steps=400, log_every=100, out=str(run), quiet=True, eval_episodes=2, backend="torch",
        impala=SMALL["impala"], preset="none", **settings,
    )  # fmt: skip
    assert result.final_return == 10.0
    assert manifest(run)["resume_exact"] is False
    assert "which rows are ready first depends on timing (env_async)" in manifest(run)["resume_reason"]
    assert metrics(run)[-1]["episode_return"] == 10.0


def test_an_interrupted_run_goes_on_in_new_episodes(tmp_path):
    settings = {"algo": "dqn", "env_async": True, "env_workers": 1, "steps": 200, "checkpoint_every": 40}
    dqn = {"envs": 4, "hidden": [4], "batch_size": 4, "learning_starts": 8, "capacity": 500, "n_step": 3}
    finish(program_of(Toy, tmp_path, dqn=dqn, **settings), stop_after=80)
    _, heard = finish(program_of(Toy, tmp_path, dqn=dqn, **settings), restore=True)
    assert heard.reports[-1][1] >= 200
    assert heard.checkpoints[0][1] > 40, "it did not begin again"
    assert heard.values["episode_length"] == 10.0


SYNC = {"formation": "sync", "env_async": True}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (SYNC | {"record": True}, "a record cannot be replayed with env_async, .* drop one"),
        (
            {"formation": "central_inference", "env_async": True},
            "env_async does not fit central_inference, .* try single, sync, async_gradients, apex",
        ),
        ({"algo": "bc", "env_async": True}, "env_async has no effect where nobody acts: bc learns from a data set"),
    ],
)
def test_what_needs_all_rows_or_their_order_is_refused(settings, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        program_of(**settings)


def vectors():
    return gym.vector.SyncVectorEnv([Cut, Cut])


@pytest.mark.parametrize("formation", ["single", "sync"])
def test_environments_that_step_their_rows_themselves_are_refused(formation):
    settings = {"algo": "a2c", "a2c": {"envs": 2}, "formation": formation, "env_async": True}
    with pytest.raises(ConfigError, match=r"is a VectorEnv, .* asynchronous are for .* stepped one by one"):
        program_of(vectors, **settings)


def test_it_is_a_setting_of_every_run():
    assert not resolve({}).options.env_async
    assert resolve({"env-async": True}).options.env_async
