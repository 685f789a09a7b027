"""Each process is kept to the devices of its role from its start."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

from starling.core.effects import Sleep
from starling.core.trees import items
from starling.executors import get_executor
from starling.formations import Formation, Placement, RoleId, Roles
from tests.executors.programs import program_of, trained
from tests.executors.scripts import Script
from tests.executors.watchers import Watcher

KINDS = (Roles("learner", 2, learns="learner"), Roles("actor", 1, acts="actor"))
VARIABLES = ("CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS")


class Placed(Script):
    """A script whose roles are given devices."""

    def environment(self, role):
        return Placement(self.formation, {"learner": ("cuda:2", "cuda:5")}).environment(role, os.environ)


def seeing(program, role, start):
    program.say(role, *(os.environ.get(name) for name in VARIABLES), "jax" in sys.modules, "torch" in sys.modules)
    while role.kind == "learner" and not program.said(RoleId("actor", 0)):
        yield Sleep(0.01)
    return {"nothing": np.zeros(1)}


def test_a_process_sees_its_own_gpu_alone_and_an_actor_none(tmp_path, monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    program = Placed("tests.executors.test_devices:seeing", Formation("script", KINDS, (), "learner"), tmp_path)
    get_executor("processes")(program, Watcher(), False)
    seen = {str(role): program.said(role) for role in program.formation}
    assert seen == {
        "learner-0": [["2", None, False, False]],
        "learner-1": [["5", None, False, False]],
        "actor-0": [["", "cpu", False, False]],
    }
    assert os.environ.get(VARIABLES[0]) is None, "this process is left as it is"


@pytest.mark.parametrize("formation", ["sync", "async_gradients", "central_inference"])
def test_roles_on_pytorch_learn_on_two_devices_what_they_learn_on_one(formation):
    who = {"async_gradients": "worker"}.get(formation, "learner")
    options = {"backend": "torch", "steps": 200, "actors": 1}
    one = trained("a2c", formation, "inline", **options)
    two = trained("a2c", formation, "inline", **options, devices={who: "cpu:0,cpu:1"})
    for (path, value), (_, expected) in zip(items(two), items(one), strict=True):
        np.testing.assert_allclose(value, expected, atol=1e-5, err_msg=path)


def test_a_program_gives_each_role_a_graph_on_its_devices(tmp_path):
    given = {"learner": ["cpu:1", "cpu:2"], "actor": "cpu:3"}
    program = program_of("a2c", "sync", tmp_path, backend="torch", act_backend="torch", devices=given)
    learner, actor = RoleId("learner", 0), RoleId("actor", 1)
    assert program.learning_graph(learner).devices == ("cpu:1", "cpu:2")
    assert program.policy(actor).graph.devices == ("cpu:3",)
    assert program.policy(actor).graph is program.policy(RoleId("actor", 0)).graph
    assert program.policy().graph.devices == (), "what acts when the run is over needs none of them"
    assert program.environment(actor)["JAX_PLATFORMS"] == "cpu"
