"""What the roles of a run are made from."""

from __future__ import annotations

import numpy as np

from tests.executors.programs import program_of


def test_an_evaluator_plays_other_episodes_than_the_actors_learn_from():
    program = program_of("a2c", "sync", actors=2, evaluators=1)
    begun = []
    for who in [("actor", 0), ("actor", 1), ("evaluator", 0)]:
        with program.envs(2, *who, 0) as envs:
            begun.append(np.asarray(envs.reset()))
    program.close()
    rows = np.concatenate(begun)
    assert len(np.unique(rows, axis=0)) == len(rows)
