"""Numbers of roles by which layouts are known: shards of the replay table, learners and servers beside actors."""

from __future__ import annotations

import pytest

from starling.experiments.config import resolve
from starling.experiments.running import start
from tests.executors.programs import SMALL, program_of, trained
from tests.executors.watchers import Watcher

LAYOUTS = [
    ("dqn", "apex", {"actors": 4, "buffers": 8, "learners": 1}),  # EasyRL's 4a8m1l
    ("dqn", "apex", {"actors": 32, "buffers": 4, "learners": 4}),  # EasyRL's 32a4m4l
    ("dqn", "apex", {"actors": 3, "buffers": 2, "learners": 2}),
    ("impala", "actor_learner", {"actors": 8, "learners": 4}),
    ("impala", "actor_learner", {"actors": 4, "batch_chunks": 2}),
    ("impala", "central_inference", {"actors": 4, "learners": 2, "inference_servers": 2}),
    ("impala", "central_inference", {"actors": 6, "learners": 1, "inference_servers": 3}),
    ("impala", "central_inference", {"actors": 4, "learners": 4, "inference_servers": 1}),
    ("a2c", "sharded_ps", {"actors": 3, "servers": 4}),
]
SHARED = {"envs": 8, "learning_starts": 64, "train_every": 8}


def name(value):
    return value if isinstance(value, str) else "-".join(f"{count}{kind}" for kind, count in value.items())


@pytest.mark.parametrize(("algo", "formation", "counts"), LAYOUTS, ids=name)
def test_any_numbers_of_roles_run_to_the_end_and_learn(algo, formation, counts):
    settings = SHARED if algo == "dqn" else {"envs": 24}
    watcher = Watcher()
    weights = trained(algo, formation, "inline", watcher, steps=600, settings=settings, backend="torch", **counts)
    last = [values for _, steps, values in watcher.reports if steps >= 0][-1]
    assert weights
    assert last["updates"] > 0
    assert last["missing_chunks"] == last["doubled_chunks"] == 0


@pytest.mark.parametrize(("algo", "formation", "counts"), LAYOUTS, ids=name)
def test_nobody_is_left_without_someone_to_send_to_or_to_hear(algo, formation, counts):
    settings = {**SMALL[algo], **(SHARED if algo == "dqn" else {"envs": 24})}
    found = program_of(algo, formation, settings=settings, **counts).formation
    for edge in found.edges:
        if edge.kind != "collective":
            assert all(found.targets(edge, source) for source in range(found.count(edge.source)))
            assert all(found.sources(edge, target) for target in range(found.count(edge.target)))


def test_a_summary_tells_of_all_steps_that_learners_agreed_on(tmp_path):
    given = {"algo": "dqn", "formation": "apex", "executor": "processes", "actors": 4, "learners": 2, "buffers": 2}
    run = resolve({**given, "steps": 600, "eval_episodes": 0, "quiet": True, "out": str(tmp_path / "run"),
                   "preset": "none", "dqn": {**SMALL["dqn"], **SHARED}})  # fmt: skip
    assert start(run).summary["env_steps"] >= 600
