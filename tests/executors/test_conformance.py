"""Every algorithm in every formation that suits it, on every executor: the cells come from the table."""

from __future__ import annotations

import numpy as np
import pytest

from starling.core.errors import ConfigError
from starling.core.trees import items
from starling.executors import EXECUTORS
from starling.experiments.compatibility import compatibility
from tests.executors.programs import SMALL, Watcher, program_of, trained

TABLE = compatibility()
FITS = [(algo, formation) for algo, row in TABLE.items() for formation, reason in row.items() if reason is None]
FITS.append(("ppo", "actor_learner"))  # with V-trace, which the small runs have on
MISFITS = [(algo, formation) for algo, row in TABLE.items() for formation in row if (algo, formation) not in FITS]


def test_the_table_knows_every_small_run():
    assert set(TABLE) == set(SMALL)
    assert len(FITS) > 25


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("algo", "formation"), FITS)
def test_a_short_training_runs_to_its_end_and_changes_the_weights(algo, formation, executor):
    watcher = Watcher()
    backend = "jax" if executor == "inline" else "torch"  # which takes less time to begin with
    weights = dict(items(trained(algo, formation, executor, watcher, steps=300, backend=backend)))
    before = dict(items(program_of(algo, formation, steps=300).initial))
    assert weights.keys() == before.keys()
    assert all(np.isfinite(weight).all() for weight in weights.values())
    assert any(not np.array_equal(weights[path], before[path]) for path in weights)
    told = [(steps, values) for _, steps, values in watcher.reports if steps >= 0]
    assert told[-1][0] >= 300
    assert told[-1][1]["updates"] > 0


@pytest.mark.parametrize(("algo", "formation"), MISFITS)
def test_what_does_not_fit_is_refused_with_the_reason_and_what_would(algo, formation):
    with pytest.raises(ConfigError, match=rf"{algo} does not fit the formation {formation}: .* {algo} fits .*single"):
        program_of(algo, formation, settings={"vtrace": False} if algo == "ppo" else None)
