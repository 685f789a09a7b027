"""How a role begins again after a crash, from nothing but its queues."""

from __future__ import annotations

import numpy as np
import pytest

from starling.executors.memory_edges import MemoryEdges
from starling.executors.restarts import restart_of
from starling.executors.shared_edges import SharedEdges
from starling.formations import Edge, Formation, RoleId, Roles

EDGES = (
    Edge("gradients", "queue", "worker", "server", depth=4, counted=True),
    Edge("notes", "queue", "worker", "server", depth=9),
    Edge("requests", "queue", "worker", "server", depth=4),
    Edge("replies", "queue", "server", "worker", depth=4, answers="requests"),
)
FORMATION = Formation("script", (Roles("server", 2), Roles("worker", 2)), EDGES, "server")
WORKER, SERVER = RoleId("worker", 0), RoleId("server", 0)


@pytest.fixture(params=["memory", "shared"])
def storage(request):
    if request.param == "memory":
        yield MemoryEdges(FORMATION)
        return
    shared = SharedEdges(FORMATION, {edge.name: np.int64(0) for edge in EDGES})
    yield shared
    shared.close()


def put(storage, edge, source, target, *numbers):
    assert all(storage.lane(edge, source, target).put(np.int64(number)) for number in numbers)


def taken(storage, edge, source, target, count):
    lane = storage.lane(edge, source, target)
    return [int(lane.take(False)) for _ in range(min(count, lane.filled()))]


def test_a_round_through_several_receivers_that_not_all_have_begins_again(storage):
    put(storage, "gradients", 0, 0, 1, 2, 3)
    put(storage, "gradients", 0, 1, 1, 2)
    put(storage, "notes", 0, 0, *range(9))
    assert restart_of(FORMATION, WORKER, 1, storage, lambda role: False).sent == 2


def test_a_client_learns_how_many_answers_each_server_owes_it(storage):
    put(storage, "requests", 0, 0, 1, 2, 3)
    taken(storage, "requests", 0, 0, 2)
    put(storage, "replies", 0, 0, 1, 2)
    taken(storage, "replies", 0, 0, 1)
    put(storage, "requests", 0, 1, 1)
    assert restart_of(FORMATION, WORKER, 1, storage, lambda role: False).unanswered == (2, 1)


def test_requests_that_a_server_did_not_answer_are_offered_to_it_again(storage):
    for worker in range(2):
        put(storage, "requests", worker, 0, 1, 2, 3)
    assert taken(storage, "requests", 0, 0, 2) == [1, 2]
    assert taken(storage, "requests", 1, 0, 2) == [1, 2]
    put(storage, "replies", 0, 0, 1)
    storage.lane("requests", 0, 0).release()
    start = restart_of(FORMATION, SERVER, 1, storage, lambda role: role == RoleId("worker", 1))
    assert (start.incarnation, start.restore, start.unanswered) == (1, True, ())
    assert taken(storage, "requests", 0, 0, 9) == [2, 3]
    assert taken(storage, "requests", 1, 0, 9) == [3], "its sender is done: nobody waits for the answers"
