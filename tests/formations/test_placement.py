"""Which devices each role computes on, and what its process sees."""

from __future__ import annotations

import pytest

from starling.core.errors import UnknownNameError
from starling.formations import FORMATIONS, Counts, Placement, RoleId, form

LEARNER, ACTOR = RoleId("learner", 0), RoleId("actor", 0)
CPU, NONE = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}, {}


def environments(placement):
    return {str(role): placement.environment(role, {}) for role in placement.formation}


def test_a_role_computes_on_the_devices_of_its_kind():
    placement = Placement(form("sync"), {"learner": ("cuda:0", "cuda:1"), "actor": ("cuda:2",)})
    assert placement.of(LEARNER)[0] == ("cuda:0", "cuda:1")
    assert [placement.of(RoleId("actor", i))[1] for i in range(2)] == [("cuda:2",), ("cuda:2",)]


def test_actors_stay_on_the_processor_where_the_learner_has_an_accelerator():
    placement = Placement(form("sync", Counts(evaluators=1)), {"learner": ("cuda:1",)})
    assert placement.of(ACTOR)[1] == ("cpu:0",)
    gpu = {"CUDA_VISIBLE_DEVICES": "1"}
    assert environments(placement) == {"learner-0": gpu, "actor-0": CPU, "actor-1": CPU, "evaluator-0": CPU}
    single = Placement(form("single"), {"learner": ("cuda:1",)})
    assert single.of(LEARNER) == (("cuda:1",), ("cpu:0",))


def test_without_devices_those_that_end_the_run_have_their_backend_s_default():
    assert environments(Placement(form("sync"), {})) == {"learner-0": NONE, "actor-0": CPU, "actor-1": CPU}
    assert Placement(form("sync"), {}).of(LEARNER)[0] == ()
    assert Placement(form("single"), {}).of(LEARNER) == ((), ())
    assert environments(Placement(form("apex"), {"actor": ("cpu:0",)}))["buffer-0"] == CPU
    assert environments(Placement(form("async_gradients"), {})) == {"server-0": NONE, "worker-0": CPU, "worker-1": CPU}


def test_roles_of_one_kind_share_its_devices():
    four = tuple(f"cuda:{i}" for i in range(4))
    placement = Placement(
        form("allreduce", Counts(learners=2, actors=4)), {"learner": four, "actor": ("cpu:0", "cpu:1")}
    )
    assert [placement.of(RoleId("learner", i))[0] for i in range(2)] == [("cuda:0", "cuda:2"), ("cuda:1", "cuda:3")]
    assert [placement.of(RoleId("actor", i))[1] for i in range(4)] == [("cpu:0",), ("cpu:1",), ("cpu:0",), ("cpu:1",)]


def test_a_process_sees_its_own_devices_alone_and_numbers_them_from_zero():
    placement = Placement(form("actor_learner"), {"learner": ("cuda:2", "cuda:3"), "actor": ("cuda:1",)}, apart=True)
    assert placement.of(LEARNER)[0] == ("cuda:0", "cuda:1")
    assert placement.of(ACTOR)[1] == ("cuda:0",)
    assert placement.environment(LEARNER, {}) == {"CUDA_VISIBLE_DEVICES": "2,3"}
    assert placement.environment(ACTOR, {"CUDA_VISIBLE_DEVICES": "7,5"}) == {"CUDA_VISIBLE_DEVICES": "5"}
    both = Placement(form("single"), {"learner": ("cuda:3", "cuda:2"), "actor": ("cuda:2",)}, apart=True)
    assert both.of(LEARNER) == (("cuda:0", "cuda:1"), ("cuda:1",))


@pytest.mark.parametrize("name", FORMATIONS)
def test_a_role_that_is_not_there_or_holds_no_network_is_refused(name):
    formation = form(name)
    for kind in formation.computing:
        Placement(formation, {kind: ("cpu:0",)})
    with pytest.raises(UnknownNameError, match=f"unknown role with devices 'buffer' in {name}"):
        Placement(formation, {"buffer": ("cpu:0",)})


def test_actors_without_a_network_are_given_no_devices():
    assert form("central_inference").computing == ["inference", "learner"]
    assert form("single").computing == ["actor", "learner"]
    assert form("sharded_ps").computing == ["actor", "server", "worker"], "a worker acts and learns"
