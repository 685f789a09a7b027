"""Values named in ``summaries`` are recorded without a word in the algorithm."""

from __future__ import annotations

import numpy as np
import pytest
from tensorboardX.proto import event_pb2

import starling
from starling.core.errors import UnknownNameError
from tests.experiments.commands import metrics

SMALL = {
    "ppo": {"hidden": [8], "envs": 2, "rollout": 16, "minibatch": 16, "epochs": 2},
    "dqn": {"hidden": [8], "learning_starts": 32, "batch_size": 16, "train_every": 8, "updates": 2},
}


def train(algo, out, patterns, backend="jax", **more):
    return starling.train(
        algo, "CartPole-v1", steps=256, out=str(out), quiet=True, eval_episodes=0, log_every=128, backend=backend,
        summaries=patterns, **{algo: SMALL[algo]}, **more,
    )  # fmt: skip


def histograms(run):
    """Tag -> how many values each of its histograms holds."""
    found = {}
    for file in (run / "tensorboard").iterdir():
        data = file.read_bytes()
        at = 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 8], "little")
            event = event_pb2.Event.FromString(data[at + 12 : at + 12 + size])
            at += 16 + size
            for value in event.summary.value:
                if value.HasField("histo"):
                    found.setdefault(value.tag, []).append(value.histo.num)
    return found


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_losses_and_inner_values_of_ppo_become_means_and_histograms(backend, tmp_path):
    train("ppo", tmp_path / "run", ["ppo.loss.*", "policy.torso.__call__"], backend)
    row = metrics(tmp_path / "run")[-1]
    for name in ("total", "policy", "value", "entropy"):
        assert row[f"summary.ppo.loss.{name}"] == pytest.approx(row[f"ppo.loss.{name}"])
    assert -1 < row["summary.ppo.policy.torso.__call__"] < 1  # of tanh
    named = {name for name in row if name.startswith("summary.")}
    assert len(named) == 5
    drawn = histograms(tmp_path / "run")
    assert set(drawn) == {*named, "lag"}  # how old experience was is drawn in every run
    # 2 epochs of 2 minibatches of 16 steps through 8 units
    assert drawn["summary.ppo.policy.torso.__call__"][-1] == 2 * 2 * 16 * 8


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_q_values_of_dqn_are_recorded_by_path_and_api(backend, tmp_path):
    train("dqn", tmp_path / "run", ["q.q_values"], backend)
    row = metrics(tmp_path / "run")[-1]
    assert np.isfinite(row["summary.dqn.q.q_values"])
    assert histograms(tmp_path / "run")["summary.dqn.q.q_values"][-1] == 2 * 16 * 2  # updates · batch · actions


@pytest.mark.parametrize(("formation", "backend"), [("allreduce", "jax"), ("sharded_ps", "torch")])
def test_roles_that_exchange_gradients_record_what_is_asked_for(formation, backend, tmp_path):
    small = {**SMALL["ppo"], "envs": 4}
    starling.train(
        "ppo", "CartPole-v1", steps=4_000, out=str(tmp_path / "run"), quiet=True, eval_episodes=0, log_every=500,
        backend=backend, formation=formation, executor="inline", summaries=["ppo.loss.*", "policy.torso.__call__"],
        ppo=small,
    )  # fmt: skip
    named = {name for row in metrics(tmp_path / "run") for name in row if name.startswith("summary.")}
    assert named == {f"summary.ppo.{name}" for name in (
        "loss.total", "loss.policy", "loss.value", "loss.entropy", "policy.torso.__call__"
    )}  # fmt: skip
    drawn = histograms(tmp_path / "run")
    assert named < set(drawn)
    assert (
        drawn["summary.ppo.policy.torso.__call__"][-1] == 16 // 2 * 8
    )  # of one gradient step: its half of a minibatch · units


def test_recording_changes_nothing_that_is_learned(tmp_path):
    plain = train("dqn", tmp_path / "plain", [])
    watched = train("dqn", tmp_path / "watched", ["*"])
    assert watched.summary["parameter_hash"] == plain.summary["parameter_hash"]
    assert not any(name.startswith("summary.") for name in metrics(tmp_path / "plain")[-1])


def test_a_pattern_that_matches_nothing_is_refused_with_what_there_is(tmp_path):
    with pytest.raises(UnknownNameError, match=r"'q.q_value' in summaries. Did you mean 'dqn.q.q_values'"):
        train("dqn", tmp_path / "run", ["dqn.loss.*", "q.q_value"])
    with pytest.raises(UnknownNameError, match=r"Known: .*ppo\.loss\.entropy.*ppo\.policy\.torso\.__call__"):
        train("ppo", tmp_path / "run", ["act.*"])  # acting is not part of an update
    assert not (tmp_path / "run").exists()
