"""What actors send: transitions with first priorities where those count."""

from __future__ import annotations

import numpy as np
import pytest

from starling.executors.base import Start
from starling.formations import RoleId
from starling.roles.collectors import without_waiting
from tests.executors.programs import program_of


def first_priorities(formation):
    """Those of an actor's first chunk, and what its weights make of the same transitions."""
    program = program_of("dqn", formation)
    policy = program.policy()
    chunk = without_waiting(program.chunks(policy, RoleId("actor", 0), Start()).next())
    given = chunk["data"].pop("priority")
    return given, policy.priorities({**chunk["data"], "weight": np.ones_like(given)})


def test_actors_of_apex_send_the_errors_of_their_own_weights_as_priorities():
    given, errors = first_priorities("apex")
    assert len(given) > 8
    np.testing.assert_array_equal(given, errors)
    assert np.ptp(given) > 0


@pytest.mark.parametrize("formation", ["sync", "actor_learner"])
def test_elsewhere_the_table_gives_the_first_priority(formation):
    given, _ = first_priorities(formation)
    np.testing.assert_array_equal(given, np.ones_like(given))
