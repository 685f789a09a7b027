"""Steps, updates and schedules are counted once: the same in every formation."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from starling.executors import get_executor
from starling.formations import RoleId, Start
from tests.executors.programs import Watcher, program_of, trained

STEPS, STARTS, EVERY = 800, 200, 4


def due_by(steps):
    """Updates that have fallen due after so many steps: at 200, 204, 208, …"""
    return steps // EVERY - STARTS // EVERY + 1


LOCKSTEP = [("single", {}), ("sync", {"actors": 1}), ("sync", {"actors": 2}), ("allreduce", {}),
            ("central_inference", {"max_lag": 0})]  # fmt: skip
AHEAD = [("actor_learner", {}), ("apex", {}), ("async_gradients", {}), ("sharded_ps", {})]


def counted(algo, formation, **options):
    """The steps and the updates of a run."""
    watcher = Watcher()
    trained(algo, formation, "inline", watcher, steps=STEPS, backend="torch", **options)
    return max((steps, values["updates"]) for _, steps, values in watcher.reports if steps >= 0)


@pytest.mark.parametrize("envs", [1, 3, 16])
@pytest.mark.parametrize(("formation", "options"), LOCKSTEP)
def test_dqn_makes_every_update_that_falls_due_in_lockstep(formation, options, envs):
    settings = {"envs": envs, "learning_starts": STARTS, "train_every": EVERY}
    steps, updates = counted("dqn", formation, settings=settings, **options)
    assert STEPS <= steps < STEPS + envs + EVERY
    assert updates == due_by(steps)


@pytest.mark.parametrize(("algo", "formation", "options"), [*(("dqn", *each) for each in AHEAD), ("r2d2", "apex", {})])
def test_those_that_run_ahead_make_as_many_within_the_margin_of_their_chunks(algo, formation, options):
    settings = {"envs": 2, "learning_starts": STARTS, "train_every": EVERY, **({"n_step": 1} if algo == "dqn" else {})}
    _, made = counted(algo, formation, settings=settings, **options)
    margin = 0.15 if algo == "dqn" else 0.6  # sequences are drawn by how many there are, and the last are incomplete
    assert made == pytest.approx(due_by(STEPS), rel=margin, abs=20)


def test_workers_learn_though_each_has_room_for_less_than_the_first_update_waits_for():
    settings = {"envs": 2, "learning_starts": STARTS, "train_every": EVERY, "capacity": STARTS // 2}
    steps, made = counted("dqn", "async_gradients", settings=settings, actors=4)
    assert steps >= STEPS
    assert made == pytest.approx(due_by(STEPS), rel=0.15, abs=20)


def test_an_evaluator_plays_other_episodes_than_the_actor_of_its_number():
    program = program_of("dqn", "actor_learner", evaluators=1)
    acting, watching = (program.envs(1, kind, 0, 0).reset() for kind in ("actor", "evaluator"))
    assert not np.array_equal(acting, watching)


def rates(algo, formation, **options):
    """The progress of each update, as learners see it."""
    seen = []
    with TemporaryDirectory() as directory:
        program = program_of(algo, formation, Path(directory), steps=STEPS, backend="torch", **options)
        from starling.algorithms.compiled import learner as module

        original = module.Learner.update

        def update(self, batch, progress, updates=1):
            seen.extend([progress] * updates)
            original(self, batch, progress, updates)

        steps_of = module.GradientLearner.gradient_steps

        def gradient_steps(self, batch, progress):
            seen.append(progress)
            return steps_of(self, batch, progress)

        module.Learner.update, module.GradientLearner.gradient_steps = update, gradient_steps
        try:
            get_executor("inline")(program, Watcher(), False)
        finally:
            module.Learner.update, module.GradientLearner.gradient_steps = original, steps_of
            program.close()
    return seen


@pytest.mark.parametrize("algo", ["dqn", "ppo"])
@pytest.mark.parametrize(("formation", "options"), [*LOCKSTEP, *AHEAD])
def test_schedules_run_from_the_start_of_a_run_to_its_end_in_every_formation(algo, formation, options):
    if algo == "ppo" and formation == "apex":
        return
    settings = {"envs": 2, "learning_starts": 64} if algo == "dqn" else {"envs": 4}
    progress = rates(algo, formation, settings=settings, **options)
    assert min(progress) <= 0.12
    assert 0.85 <= max(progress) <= 1.0
    if (formation, options) in LOCKSTEP:
        assert max(progress) < 1.0, "the last updates learn, too"
        assert progress == sorted(progress) or formation == "allreduce"  # whose two learners are seen in turn


@pytest.mark.parametrize("formation", ["sync", "actor_learner", "central_inference", "async_gradients"])
def test_whoever_joins_a_run_later_explores_as_the_run_does_and_meets_other_episodes(formation):
    """After a resume, or when it is started again: ε, seeds and noise go on, and do not begin anew."""
    program = program_of("dqn", formation, steps=1_000, settings={"epsilon_fraction": 1.0, "envs": 2})
    from starling.roles.acting import LocalActing
    from starling.roles.actors import collector_of

    kind = "worker" if formation == "async_gradients" else "actor"
    role, policy = RoleId(kind, 0), program.policy()

    def joined(steps, incarnation=0):
        acting = LocalActing(policy, 1)
        collector = collector_of(program, role, Start(incarnation=incarnation), acting)(steps)
        obs = collector.envs.reset()
        return float(collector._exploring(collector.run_steps)[0]), obs, collector._noise.next()

    first, later, again = joined(0), joined(500), joined(500, incarnation=1)
    assert first[0] == 1.0
    assert later[0] == pytest.approx(0.525)  # half of the way from 1 to 0.05
    for one, other in ((first, later), (later, again), (first, again)):
        assert not np.array_equal(one[1], other[1]), "the same episodes"
        assert not np.array_equal(one[2], other[2]), "the same noise"
    np.testing.assert_array_equal(joined(500)[1], later[1])
