"""Whole runs of one learner on two devices, from the command line: they come to what one device comes to."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

from starling.core.trees import items
from starling.records.run_dir import RunDir
from tests.experiments.commands import arguments, finish, launch, summary

SLOW = pytest.mark.slow
OTHERS = [("ppo", "single"), ("ppo", "sync"), ("dqn", "single")]


def weights(run):
    return dict(items(RunDir.open(run, lock=False).load_policy()[0]))


@pytest.mark.parametrize(
    ("algo", "formation"), [("dqn", "sync"), *(pytest.param(*each, marks=SLOW) for each in OTHERS)]
)
def test_a_run_on_two_devices_comes_to_the_weights_of_one(algo, formation, tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    more = ["--formation", formation, "--backend", "jax", "--quiet"]
    devices = {"one": [], "two": ["--devices.learner", "cpu:0,cpu:1", "--devices.actor", "cpu"]}
    running = {n: launch(arguments(algo, tmp_path / n, 512, *more, *flags)) for n, flags in devices.items()}
    for name, process in running.items():
        code, _, err = finish(process)
        assert code == 0, (name, err)
        assert summary(tmp_path / name)["executor"] == {"single": "inline", "sync": "processes"}[formation]
        assert summary(tmp_path / name)["updates"] > 3
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert one.keys() == two.keys()
    for path, value in one.items():
        np.testing.assert_allclose(two[path], value, atol=1e-5, err_msg=path)
    kept = yaml.safe_load((tmp_path / "two" / "config.yaml").read_text())["devices"]
    assert kept == {"learner": "cpu:0,cpu:1", "actor": "cpu"}
