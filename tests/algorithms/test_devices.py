"""One learner on several devices learns what it learns on one; arrays are where they were asked to be."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from starling.backends import get_backend
from starling.backends.shares import batch_axes
from starling.components.graph.build import build
from starling.components.graph.shapes import batch_axis
from starling.components.targets import Copy
from starling.core.trees import items, map_leaves
from tests.algorithms.cases import assembled, batch_for, built, root
from tests.algorithms.sharing import CASES, COUNTS, differences, learned


@pytest.mark.parametrize("case", CASES, ids=str)
def test_devices_that_share_a_batch_learn_what_one_learns_on_pytorch(case):
    found = differences(case, "torch")
    assert all(found[count] <= 1e-5 for count in COUNTS), found


def on_jax(*cases):
    """The same in a process that has three devices."""
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={max(COUNTS)}", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "tests.algorithms.sharing", "jax", *cases]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **flags}, timeout=1200)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


def test_devices_that_share_a_batch_learn_what_one_learns_on_jax():
    found = on_jax("dqn-vector-discrete", "ppo-vector-discrete-envs=4-minibatch=8")
    assert len(found) == 2
    assert all(difference <= 1e-5 for each in found.values() for difference in each.values()), found


@pytest.mark.slow
def test_every_algorithm_learns_on_several_devices_what_it_learns_on_one_on_jax():
    found = on_jax()
    assert list(found) == [str(case) for case in CASES]
    assert all(difference <= 1e-5 for each in found.values() for difference in each.values()), found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_device_computes_the_loss_of_its_own_rows(case, monkeypatch):
    cls, rows = type(root(case)), []
    loss, axis = cls.loss, batch_axis(assembled(case).arguments["loss"]["batch"]["action"])

    @functools.wraps(loss)
    def watched(self, p, state, batch, draws):
        rows.append(batch["action"].shape[axis])
        return loss(self, p, state, batch, draws)

    monkeypatch.setattr(cls, "loss", watched)
    learned(case, "torch", ("cpu:0", "cpu:1", "cpu:2"), updates=1)
    assert [rows[i::3] for i in range(3)] in ([[n] * (len(rows) // 3) for n in each] for each in ((1, 1, 2), (2, 3, 3)))


@pytest.mark.parametrize("devices", [("meta",), ("meta:0", "meta:1")])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_array_of_a_learner_is_on_the_device_that_was_asked_for(case, devices):
    graph, (batch, draws) = build(assembled(case), get_backend("torch"), seed=3, devices=devices), batch_for(case)
    state, algorithm = graph.init(graph.initial), root(case)
    prepared = graph.function("prepare")(state, batch)
    made = [state, prepared, graph.function("gradients")(state, prepared, algorithm.steps_of(draws)[0])]
    if not any(isinstance(follow, Copy) for follow in algorithm.targets.values()):  # whether one is due is not known
        made.append(graph.function("update", donate=(0,))(state, batch, draws))
    assert {leaf.device.type for _, leaf in items(made)} == {"meta"}


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.algo in ("a2c", "bc", "dqn", "impala", "r2d2")], ids=str
)
def test_gradients_of_parts_of_a_batch_averaged_by_weight_are_those_of_the_whole(case):
    graph, (batch, draws) = built(case, "torch"), batch_for(case)
    state, axes = graph.init(graph.initial), batch_axes(batch, graph.assembly.inputs["batch"])
    rows = batch["action"].shape[axes["action"]]

    def gradients(chosen):
        part = map_leaves(lambda x, axis: np.take(x, chosen, axis=axis), batch, axes)
        prepared = graph.function("prepare")(state, part)
        found, _, weight = graph.function("gradients")(state, prepared, draws)
        return dict(items(graph.backend.to_numpy(found))), float(weight)

    (first, a), (second, b), (whole, both) = (gradients(n) for n in (range(1), range(1, rows), range(rows)))
    assert a + b == both
    for path, value in whole.items():
        np.testing.assert_allclose((a * first[path] + b * second[path]) / both, value, atol=1e-6, err_msg=path)
