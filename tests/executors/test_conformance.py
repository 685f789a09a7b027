"""Every algorithm in every formation that suits it, and each of both on every executor: cells come from the table."""

from __future__ import annotations

import numpy as np
import pytest

from starling.algorithms import ALGORITHMS
from starling.core.errors import ConfigError
from starling.core.trees import items
from starling.executors import EXECUTORS
from starling.experiments.compatibility import compatibility
from starling.formations import FORMATIONS
from tests.executors.programs import SMALL, Watcher, program_of, trained

OFFLINE = "bc"  # has no actors: see tests/experience/test_demonstrations.py
TABLE = {algo: row for algo, row in compatibility().items() if algo != OFFLINE}
FITS = [(algo, formation) for algo, row in TABLE.items() for formation, reason in row.items() if reason is None]
FITS.append(("ppo", "actor_learner"))  # with V-trace, which the small runs have on
MISFITS = [(algo, formation) for algo, row in TABLE.items() for formation in row if (algo, formation) not in FITS]
# On other executors not the whole product: each formation with one algorithm, each algorithm in one formation.
# In sync they also come to the same parameters there: see test_equivalence.
USUAL = {
    "actor_learner": "impala",
    "allreduce": "r2d2",
    "apex": "dqn",
    "async_gradients": "a2c",
    "evolution": "es",
    "sharded_ps": "sac",
    "sync": "reinforce",
}
PAIRS = {(USUAL.get(formation, "ppo"), formation) for formation in FORMATIONS}


def test_the_table_knows_every_small_run():
    assert {algo for algo in TABLE if not ALGORITHMS.source(algo)} == set(SMALL)
    assert len(FITS) > 45
    assert set(FITS) >= PAIRS
    assert {algo for algo, _ in PAIRS} == set(TABLE)


def check_trained(algo, formation, executor, backend):
    watcher = Watcher()
    weights = dict(items(trained(algo, formation, executor, watcher, steps=300, backend=backend)))
    before = dict(items(program_of(algo, formation, steps=300).initial))
    assert weights.keys() == before.keys()
    assert all(np.isfinite(weight).all() for weight in weights.values())
    assert any(not np.array_equal(weights[path], before[path]) for path in weights)
    reported = [(steps, values) for _, steps, values in watcher.reports if steps >= 0]
    assert reported[-1][0] >= 300
    assert reported[-1][1]["updates"] > 0


@pytest.mark.parametrize(("algo", "formation"), FITS)
def test_a_short_training_runs_to_its_end_and_changes_the_weights(algo, formation):
    check_trained(algo, formation, "inline", "torch")


@pytest.mark.parametrize("executor", [name for name in EXECUTORS if name != "inline"])
@pytest.mark.parametrize(("algo", "formation"), sorted(PAIRS))
def test_it_does_so_on_every_executor(algo, formation, executor):
    check_trained(algo, formation, executor, "torch")


@pytest.mark.parametrize(("algo", "formation"), MISFITS)
def test_what_does_not_fit_is_refused_with_the_reason_and_what_would(algo, formation):
    with pytest.raises(ConfigError, match=rf"{algo} does not fit the formation {formation}: .* {algo} fits .*single"):
        program_of(algo, formation, settings={"vtrace": False} if algo in ("ppo", "impala") else None)
