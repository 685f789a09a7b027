"""``starling.train`` and its companions, from Python."""

from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest

import starling
from starling.core.errors import ConfigError, EnvError, RunDirError
from tests.experiments.commands import checkpoints, manifest, metrics, summary
from tests.experiments.toys import Cut, Toy

TINY = {"hidden": [4], "envs": 2, "rollout": 8}
QUIET = {"quiet": True, "backend": "torch", "eval_episodes": 4}

SUMMARY = {
    "algorithm", "env", "seed", "backend", "act_backend", "formation", "roles", "executor", "status", "env_steps",
    "updates", "seconds", "env_steps_per_second", "final_return", "final_return_std", "eval_episodes", "parameter_hash",
}  # fmt: skip


def test_a_run_leaves_everything_behind(tmp_path):
    result = starling.train("a2c", Toy, steps=64, seed=7, out=str(tmp_path / "run"), a2c=TINY, **QUIET)
    run = result.directory
    assert run == tmp_path / "run"
    assert result.final_return == 10.0
    assert json.loads((run / "summary.json").read_text()) == result.summary
    assert set(result.summary) == SUMMARY
    assert result.summary["status"] == "finished"
    assert (result.summary["env_steps"], result.summary["updates"], result.summary["seed"]) == (64, 4, 7)
    assert (result.summary["formation"], result.summary["roles"], result.summary["executor"]) == ("single", 1, "inline")
    assert manifest(run)["seed"] == 7
    assert {"numpy", "torch", "jax"} <= set(manifest(run)["packages"])
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert len(list((run / "tensorboard").iterdir())) == 1
    assert metrics(run)[-1]["env_steps"] == 64
    assert checkpoints(run) == [0, 64], "the first is from before anything was learned"
    found = starling.evaluate(run, episodes=3, env=Toy)
    assert found.returns == [10.0] * 3


def test_a_run_without_out_is_named_after_date_algorithm_and_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [starling.train("a2c", "CartPole-v1", steps=16, a2c=TINY, preset="none", **QUIET) for _ in range(2)]
    first, second = (result.directory for result in runs)
    assert first != second
    assert first.parent.name == "runs"
    assert first.name.endswith("-a2c-CartPole-v1")
    assert starling.evaluate(first.name, episodes=1).lengths
    with pytest.raises(RunDirError, match="finished"):
        starling.resume(first.name)


def test_a_vectorised_environment_trains_and_is_evaluated_with_as_many(tmp_path):
    def construct():
        return gym.vector.SyncVectorEnv([Cut, Cut])

    result = starling.train("a2c", construct, steps=64, out=str(tmp_path / "run"), a2c=TINY, **QUIET)
    assert result.final_return == 5.0
    assert manifest(tmp_path / "run")["resume_exact"] is False
    with pytest.raises(ConfigError, match="must agree"):
        starling.train("a2c", construct, a2c={**TINY, "envs": 3}, **QUIET)


def test_a_configuration_file_names_algorithm_and_environment_unless_the_call_does(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("algo: a2c\nenv: Acrobot-v1\nsteps: 16\na2c: {hidden: [4], envs: 2, rollout: 8}\n")
    settings = {"backend": "torch", "eval_episodes": 0, "quiet": True}
    of_file = starling.train(config=file, out=str(tmp_path / "one"), **settings)
    assert (of_file.summary["algorithm"], of_file.summary["env"]) == ("a2c", "Acrobot-v1")
    of_call = starling.train(env=Toy, config=file, out=str(tmp_path / "two"), **settings)
    assert (of_call.summary["algorithm"], of_call.summary["env"]) == ("a2c", "Toy")


def test_an_episode_limit_reaches_the_environment(tmp_path):
    options = {"max_episode_steps": 3}
    result = starling.train("a2c", Toy, steps=16, out=str(tmp_path / "r"), env_options=options, a2c=TINY, **QUIET)
    assert result.final_return == 3.0


def test_images_dicts_and_masks_train_from_end_to_end(tmp_path):
    class Rich(Toy):
        def __init__(self):
            super().__init__()
            self.action_space = gym.spaces.Discrete(3)
            self.observation_space = gym.spaces.Dict(
                image=gym.spaces.Box(0, 255, (36, 36, 2), np.uint8),
                action_mask=gym.spaces.Box(0, 1, (3,), np.int8),
            )

        def observe(self):
            mask = np.array([1, self.t % 2, 0], np.int8)
            return {"image": np.full((36, 36, 2), self.t, np.uint8), "action_mask": mask}

        def reward(self, action):
            assert action != 2
            return 1.0

    result = starling.train("ppo", Rich, steps=32, out=str(tmp_path / "run"), **QUIET,
                            ppo={"hidden": [4], "envs": 2, "rollout": 8, "minibatch": 8, "epochs": 1})  # fmt: skip
    assert result.final_return == 10.0
    assert result.summary["act_backend"] == "torch", "convolutions act where they learn"


def test_ctrl_c_during_the_evaluation_leaves_a_run_that_resumes(tmp_path, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("starling.experiments.running.play", interrupted)
        with pytest.raises(KeyboardInterrupt):
            starling.train("a2c", Toy, steps=32, out=str(tmp_path / "run"), a2c=TINY, **QUIET)
    before = summary(tmp_path / "run")
    assert (before["status"], before["final_return"]) == ("interrupted", None)
    result = starling.resume(tmp_path / "run", env=Toy, quiet=True)
    assert (result.summary["status"], result.final_return) == ("finished", 10.0)
    assert result.summary["parameter_hash"] == before["parameter_hash"]
    assert [row["env_steps"] for row in metrics(tmp_path / "run")] == [32]


def test_an_interrupted_run_resumes_from_its_newest_whole_checkpoint(tmp_path):
    class Wheel(Toy):
        broken = True

        def step(self, action):
            if Wheel.broken and self.t == 3:
                raise RuntimeError("loose")
            return super().step(action)

    settings = {"steps": 64, "a2c": {**TINY, "rollout": 2}, **QUIET}
    with pytest.raises(EnvError, match="loose"):
        starling.train("a2c", Wheel, out=str(tmp_path / "run"), checkpoint_every=1, **settings)
    Wheel.broken = False
    newest = max((tmp_path / "run" / "checkpoints").iterdir())
    (newest / "manifest.json").write_text("{")
    result = starling.resume(tmp_path / "run", env=Wheel, quiet=True)
    whole = starling.train("a2c", Wheel, out=str(tmp_path / "whole"), **settings)
    assert result.summary["status"] == "finished"
    (note,) = result.notes
    assert "passed over a newer checkpoint" in note
    assert newest.name in note
    assert result.summary["parameter_hash"] == whole.summary["parameter_hash"]


@pytest.mark.parametrize(
    ("algo", "formation", "settings", "updates"),
    [
        ("reinforce", "single", {"episodes": 4, "episode_length": 20}, 3),  # of 10 steps each
        ("r2d2", "single", {"memory_size": 4, "batch_size": 2, "learning_starts": 20, "length": 4, "burn_in": 2}, 3),
        ("es", "single", {"population": 4}, 3),
        ("es", "evolution", {"population": 4}, 3),
    ],
)
def test_every_family_of_algorithms_trains_from_end_to_end(algo, formation, settings, updates, tmp_path):
    """120 steps; updates of r2d2 fall due every 32."""
    small = {"hidden": [4], "envs": 1 if algo == "es" else 2, **settings}
    small |= {"overlap": 2} if algo == "r2d2" else {}
    run = {"formation": formation, "executor": "inline", "steps": 120, "out": str(tmp_path / "run")}
    result = starling.train(algo, Toy, **run, **QUIET, **{algo: small})
    assert (result.summary["env_steps"], result.summary["updates"]) == (120, updates)
    assert result.summary["roles"] == (3 if formation == "evolution" else 1)
    assert result.final_return == 10.0
