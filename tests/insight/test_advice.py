"""Recommendations from timings made by hand, and timings of the real thing."""

from __future__ import annotations

import pytest

from starling.cli.advise import AdviseArguments, command_of
from starling.core.errors import ConfigError
from starling.core.machine import time_calls
from starling.experiments.config import resolve
from starling.formations.compatibility import Traits, misfit
from starling.insight.advice import HANDOVER, Timings, recommend
from starling.insight.timing import Timed, programs_of, time_parts

FITS = Traits("impala", frozenset({"acts", "steps", "corrects", "exchanges_gradients"}))
LAGS = Traits("a2c", FITS.has - {"corrects"})  # not to be told to
REPLAYS = Traits("dqn", LAGS.has | {"replays"})
MS = 1e-3


PARTS = {  # eight environments of 1 ms a step each; inference and updates cost next to nothing
    "env": {1: 1 * MS, 8: 8 * MS},
    "inference": {"numpy": {1: 0.01 * MS, 8: 0.02 * MS}, "jax": {1: 0.05 * MS, 8: 0.05 * MS}},
    "acting": {1: 1.02 * MS, 8: 8.16 * MS},
    "update": {"jax": 1 * MS, "torch": 5 * MS},
}


def timings(steps_per_update=160, cores=4, load=0.0, **changes) -> Timings:
    """What was timed, on four processors unless ``changes`` and the like say otherwise."""
    env, inference, acting, update = (PARTS | changes).values()
    envs = max(env)

    def timed(part, backend, rows, seconds, steps):
        return Timed(part, backend, rows, seconds, 2, seconds, steps)

    parts = (
        *(timed("env", "", rows, seconds, rows) for rows, seconds in env.items()),
        *(timed("inference", name, rows, x, rows) for name, each in inference.items() for rows, x in each.items()),
        *(timed("acting", "numpy", rows, seconds, rows) for rows, seconds in acting.items()),
        *(timed("update", name, envs, seconds, steps_per_update) for name, seconds in update.items()),
        timed("transport", "", envs, 0.1 * MS, 20 * envs),  # a chunk has twenty steps of each environment
    )
    return Timings(parts=parts, envs=envs, cores=cores, load=load)


def by_name(advice):
    return {option.formation: option for option in advice.options}


def test_slow_environments_ask_for_an_actor_per_processor():
    advice = recommend(timings(), FITS)
    assert (advice.option.formation, advice.option.actors) == ("sync", 4)
    assert (advice.backend, advice.act_backend) == ("jax", "numpy")
    assert command_of(advice, AdviseArguments(algo="impala")) == (
        "starling train --algo impala --env CartPole-v1 --formation sync --actors 4 --backend jax --act-backend numpy"
    )


def test_rates_are_those_of_the_model():
    options = by_name(recommend(timings(), FITS))
    learning, moving = 1 * MS / 160, 0.1 * MS / 160
    assert options["single"].rate == pytest.approx(1 / (1.02 * MS + learning))
    assert options["sync"].rate == pytest.approx(1 / (1.02 * MS / 4 + learning + moving + 5 * HANDOVER / 160))
    per_step = 1.02 * MS + HANDOVER / 40  # an actor has two environments: forty steps in a chunk
    assert options["actor_learner"].rate == pytest.approx(4 / (per_step + 2 * moving + learning))
    assert options["actor_learner"].limited_by == "processors"


def test_fast_environments_on_one_processor_stay_in_one_process():
    advice = recommend(timings(cores=1), FITS)
    assert advice.option.formation == "single"
    assert "--formation single --backend" in command_of(advice, AdviseArguments(algo="impala"))


def test_learning_as_long_as_acting_lets_actors_run_ahead():
    """Acting takes 163 ms a round, learning 160: side by side that is nearly twice as fast as in turn."""
    advice = recommend(timings(cores=2, update={"jax": 160 * MS}), FITS)
    assert advice.option.formation == "actor_learner"
    assert advice.option.rate == pytest.approx(1.9 * by_name(advice)["single"].rate, rel=0.1)
    assert any("actors run ahead" in note for note in advice.notes)


def test_an_algorithm_that_may_not_lag_is_not_told_to():
    advice = recommend(timings(cores=2, update={"jax": 160 * MS}), LAGS)
    assert "actor_learner" not in by_name(advice)
    assert any(f"actor_learner was left out: {misfit('actor_learner', LAGS)}" in note for note in advice.notes)


def test_where_learning_is_most_of_the_work_no_more_actors_are_asked_for():
    advice = recommend(timings(update={"jax": 2000 * MS}), FITS)
    assert by_name(advice)["actor_learner"].actors == 1
    assert by_name(advice)["actor_learner"].limited_by == "learning"
    assert any("learning takes 92 % of the work" in note for note in advice.notes)  # 12.5 ms of 13.5 ms a step


def test_rollouts_are_shared_equally_and_replay_by_any_number():
    six = timings(cores=4, env={1: MS, 6: 6 * MS}, acting={1: MS, 6: 6 * MS}, steps_per_update=120)
    assert by_name(recommend(six, FITS))["actor_learner"].actors in (1, 2, 3, 6)
    replay = timings(cores=5, env={1: MS}, acting={1: MS}, inference={"numpy": {1: 0.01 * MS}})
    assert by_name(recommend(replay, REPLAYS))["actor_learner"].actors == 5


def test_a_large_network_is_better_asked_centrally():
    """A call takes 10 ms for one row and for eight: eight actors that call by themselves each pay for it."""
    heavy = {"torch": {1: 10 * MS, 8: 10 * MS}}
    made = timings(env={1: 0.1 * MS, 8: 0.8 * MS}, inference=heavy, acting={1: 10.1 * MS, 8: 10.8 * MS}, cores=8)
    options = by_name(recommend(made, FITS))
    assert options["central_inference"].rate > options["actor_learner"].rate * 0.9
    assert recommend(made, FITS).act_backend == "torch"


def test_on_a_busy_machine_waking_others_costs_more():
    """Load 12 on 4 processors: two others for each, so a process that is woken waits 2 ms before it goes on."""
    free, busy = by_name(recommend(timings(), FITS)), by_name(recommend(timings(load=12.0), FITS))
    assert busy["single"].rate == free["single"].rate, "who wakes nobody is slower only by what was timed"
    assert 1 / busy["sync"].rate - 1 / free["sync"].rate == pytest.approx(5 * 2 * MS / 160)


def test_a_busy_machine_is_noted():
    assert any("the machine is busy" in note for note in recommend(timings(load=5.0), FITS).notes)
    assert not any("the machine is busy" in note for note in recommend(timings(load=0.1), FITS).notes)


def test_the_first_call_which_may_compile_is_timed_apart():
    slow = iter([0.05])  # the first call, which may compile

    def call():
        import time

        time.sleep(next(slow, 0.002))

    mean, calls, first = time_calls(call, 0.05)
    assert first >= 0.05
    assert 0.002 <= mean < 0.04
    assert calls >= 2


def test_every_part_is_timed():
    small = {"hidden": [8], "envs": 2, "learning_starts": 50, "batch_size": 16, "alpha": 0.6}
    run = resolve({"algo": "dqn", "env": "CartPole-v1", "preset": "none", "dqn": small})
    found = Timings(parts=tuple(time_parts(programs_of(run), 0.2)), envs=2, cores=2)
    timed = {
        part: [each for each in found.parts if each.part == part] for part in dict.fromkeys(p.part for p in found.parts)
    }
    rows = {part: [each.rows for each in timed[part]] for part in ("env", "acting", "transport")}
    assert rows == {"env": [1, 2], "acting": [1, 2], "transport": [2]}
    assert {each.backend for each in timed["inference"]} >= {"numpy", "jax"}
    assert {each.backend for each in timed["update"]} >= {"jax"}
    assert {each.steps for each in timed["update"]} == {4}
    assert all(each.seconds > 0 and each.calls >= 1 for each in found.parts)
    assert recommend(found, REPLAYS).option.rate > 0


def test_an_algorithm_that_nobody_acts_for_is_refused():
    with pytest.raises(ConfigError, match="bc learns from a data set, and nobody acts"):
        programs_of(resolve({"algo": "bc", "env": "CartPole-v1"}))


def test_an_algorithm_with_a_module_is_timed_on_the_backend_of_the_module():
    torso = {"type": "tests.backends.test_modules:TorchNet"}
    run = resolve({"algo": "a2c", "env": "CartPole-v1", "preset": "none", "a2c": {"torso": torso}})
    assert set(programs_of(run)) == {"torch"}
