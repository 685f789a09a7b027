"""How the edges of a formation are laid out in shared memory."""

from __future__ import annotations

import numpy as np

from starling.executors.shared_edges import SharedEdges
from starling.formations import Edge, Formation, RoleId, Roles


def test_a_segment_belongs_to_each_receiver_of_a_queue_so_descriptors_grow_with_roles():
    edges = (
        Edge("experience", "queue", "actor", "learner", pinned=True),
        Edge("weights", "broadcast", "learner", "actor", pinned=True),
        Edge("agreement", "collective", "learner", "learner"),
    )
    formation = Formation("many", (Roles("learner", 2), Roles("actor", 60)), edges, "learner")
    blank = {"x": np.zeros(3)}
    shared = SharedEdges(formation, {"experience": blank, "weights": blank, "agreement": blank})
    try:
        assert set(shared.descriptors(RoleId("learner", 1))) == {"experience/1", "weights/1", "agreement/0"}
        assert set(shared.descriptors(RoleId("actor", 5))) == {"experience/1", "weights/0", "weights/1"}
    finally:
        shared.close()
