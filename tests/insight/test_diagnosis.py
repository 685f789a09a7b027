"""What the doctor says of statuses made by hand: one for each verdict."""

from __future__ import annotations

import json

import pytest

from starling.cli.doctor import to_mapping
from starling.executors.waits import Wait
from starling.insight.diagnosis import diagnose, how_it_stands, who_waits
from starling.insight.measures import measure
from starling.records.statistics import recent_lag
from tests.insight.statuses import actors_and_learner, broadcast, evidence, queue, reports, role, status


def found(findings, level=None):
    return [finding for finding in findings if level in (None, finding.level)]


def only(findings, level):
    (finding,) = found(findings, level)
    return finding


def test_a_learner_that_works_most_of_the_time_while_actors_are_blocked_is_the_bottleneck():
    finding = only(diagnose(evidence(actors_and_learner((83, 17), (39, 61, 0)))), "bottleneck")
    assert finding.subject == "learner"
    assert finding.text == "learner is the bottleneck: 83 % busy, actors blocked 61 % on `experience`"
    assert finding.remedy == "add learners (--learners 2) or make batches larger"


def test_actors_that_work_most_of_the_time_while_the_learner_waits_are_the_bottleneck():
    finding = only(diagnose(evidence(actors_and_learner((30, 70), (95, 5, 0)))), "bottleneck")
    assert finding.subject == "actor"
    assert finding.text == "actors are the bottleneck: 95 % busy, learner waiting 70 % for `experience`"
    assert finding.remedy == "more actors, or more environments per actor"


def test_where_nobody_runs_ahead_actors_and_learner_take_turns():
    for learner, actor in (((45, 55), (55, 0, 45)), ((60, 40), (40, 0, 60))):
        finding = only(diagnose(evidence(actors_and_learner(learner, actor, "sync"))), "bottleneck")
        assert finding.subject == "turns"
        assert f"learner {learner[0]} % busy" in finding.text
        assert f"actors {actor[0]} % busy" in finding.text
        assert "--formation actor_learner" in finding.remedy


def test_more_actors_are_not_recommended_where_processors_are_short():
    diagnosis = diagnose(evidence(actors_and_learner((30, 70), (95, 5, 0)), processors=2))
    assert "more actors will not help" in only(diagnosis, "bottleneck").remedy
    note = only(diagnosis, "note")
    assert note.subject == "processors"
    assert "the roles want 2.2 processors and there are 2" in note.text  # 0.30 + 2 · 0.95


def seed(inference: tuple[float, float], actor: tuple[float, float]):
    """central_inference: (busy, waits for requests), (busy, waits for replies); the learner mostly waits."""
    return status(
        "central_inference",
        [
            role("learner-0", 20, {"experience": 80}),
            role("inference-0", inference[0], {"requests": inference[1]}),
            *(role(f"actor-{i}", actor[0], {"replies": actor[1]}) for i in range(4)),
        ],
        [
            *(queue("requests", f"actor-{i}", "inference-0", 1000) for i in range(4)),
            *(queue("replies", "inference-0", f"actor-{i}", 1000) for i in range(4)),
            *(queue("experience", f"actor-{i}", "learner-0", 50) for i in range(4)),
            broadcast("weights", "learner-0", "inference", 50),
        ],
    )


def test_a_busy_inference_server_is_the_bottleneck():
    finding = only(diagnose(evidence(seed((90, 10), (30, 70)))), "bottleneck")
    assert finding.subject == "inference"
    assert finding.text == "inference is the bottleneck: 90 % busy, actors waiting 70 % for `replies`"
    assert "--inference-batch" in finding.remedy


def test_actors_and_inference_that_wait_for_each_other_are_held_up_by_the_way_between():
    finding = only(diagnose(evidence(seed((40, 60), (35, 65)))), "bottleneck")
    assert finding.subject == "inference"
    assert "take turns" in finding.text
    assert "--inference-wait" in finding.remedy


OPEN = ("experience", "requests", "priorities")  # all that lead to a buffer
NO_INSERTS, NO_SAMPLES = ("requests", "priorities"), ("experience", "priorities")


def apex(
    learner: tuple[float, float],
    actor: tuple[float, float],
    takes: tuple[str, ...] = OPEN,
    why: str = "",
    buffer_busy: float = 5,
    drawn: int = 1000,
):
    """apex: (busy, waits for samples), (busy, blocked on experience), from which edges a buffer takes, and why."""
    return status(
        "apex",
        [
            role("learner-0", learner[0], {"samples": learner[1]}),
            role("buffer-0", buffer_busy, {takes[0]: 100 - buffer_busy}, Wait("take", takes, reason=why)),
            *(role(f"actor-{i}", actor[0], {"experience": actor[1]}) for i in range(3)),
        ],
        [
            *(queue("experience", f"actor-{i}", "buffer-0", 200, 2, 2) for i in range(3)),
            queue("requests", "learner-0", "buffer-0", 1000),
            queue("samples", "buffer-0", "learner-0", drawn),
            queue("priorities", "learner-0", "buffer-0", 1000),
            broadcast("weights", "learner-0", "actor", 60),
        ],
    )


def test_a_limiter_that_holds_the_learner_back_asks_for_more_actors_or_more_samples_per_insert():
    why = "sample waits: samples/insert 8.2 > 8+margin (340 samples ahead, 320 allowed)"
    seen = evidence(apex((25, 75), (96, 4), NO_SAMPLES, why))
    assert to_mapping(seen)["limiter"] == [f"buffer-0: {why}"]
    diagnosis = diagnose(seen)
    assert only(diagnosis, "bottleneck").subject == "actor"
    note = only(diagnosis, "note")
    assert note.subject == "limiter"
    assert "holds the learner back (75 % of its time)" in note.text
    assert note.remedy == "raise --samples-per-insert or add actors"


def test_a_limiter_that_holds_actors_back_asks_for_fewer_samples_per_insert():
    why = "insert waits: samples/insert 7.9 < 8−margin (352 samples behind, 320 allowed)"
    diagnosis = diagnose(evidence(apex((98, 2), (12, 88), NO_INSERTS, why)))
    assert only(diagnosis, "bottleneck").subject == "learner"
    assert "holds actors back (88 % of their time)" in only(diagnosis, "note").text
    assert "lower --samples-per-insert" in only(diagnosis, "note").remedy


def test_buffers_that_fill_are_noted():
    why = "sample waits: size 300 < 1000"
    note = only(diagnose(evidence(apex((1, 99), (96, 4), NO_SAMPLES, why, drawn=0))), "note")
    assert "the buffers are filling: sample waits: size 300 < 1000" in note.text


def test_what_a_limiter_does_is_read_from_fields_whatever_its_reason_says():
    """The same words in each: only the edges that the buffer leaves out, and what was drawn, tell them apart."""
    texts = []
    for takes, drawn in ((NO_INSERTS, 1000), (NO_SAMPLES, 1000), (NO_SAMPLES, 0)):
        made = apex((50, 50), (50, 50), takes, "'experience' insert waits (samples/insert)", drawn=drawn)
        texts.append(only(diagnose(evidence(made)), "note").text.partition(" (")[0])
    assert texts[:2] == ["limiter holds actors back", "limiter holds the learner back"]
    assert texts[2].startswith("limiter: the buffers are filling")


def test_a_buffer_that_takes_whatever_comes_is_not_limited():
    seen = evidence(apex((60, 40), (80, 20)))
    assert to_mapping(seen)["limiter"] == []
    assert not found(diagnose(seen), "note")


def test_a_busy_buffer_is_the_bottleneck():
    finding = only(diagnose(evidence(apex((30, 70), (20, 80), buffer_busy=95))), "bottleneck")
    assert finding.subject == "buffer"
    assert "learner waiting 70 % for `samples`" in finding.text
    assert "actors blocked 80 % on `experience`" in finding.text
    assert "--buffers" in finding.remedy


@pytest.mark.parametrize(("formation", "remedy"), [("async_gradients", "sharded_ps"), ("sharded_ps", "--servers")])
def test_a_busy_parameter_server_is_the_bottleneck(formation, remedy):
    made = status(
        formation,
        [
            role("server-0", 92, {"gradients": 8}),
            *(role(f"worker-{i}", 30, {"gradients": 10, "weights": 60}) for i in range(2)),
        ],
        [
            *(queue("gradients", f"worker-{i}", "server-0", 300) for i in range(2)),
            broadcast("weights", "server-0", "worker", 600),
        ],
    )
    finding = only(diagnose(evidence(made)), "bottleneck")
    assert finding.subject == "server"
    assert "workers waiting 60 % for `weights`" in finding.text
    assert remedy in finding.remedy


def test_learners_that_wait_for_each_other_name_the_one_that_works_most():
    made = status(
        "allreduce",
        [
            role("learner-0", 20, {"gradients": 80}, passed={"gradients": 500}),
            role("learner-1", 95, {"gradients": 5}, passed={"gradients": 500}),
            *(role(f"actor-{i}", 90, {"weights": 10}) for i in range(2)),
        ],
        [
            {"edge": "gradients", "kind": "collective", "from": "learner"},
            *(queue("experience", f"actor-{i}", f"learner-{i}", 100) for i in range(2)),
            *(broadcast("weights", f"learner-{i}", "actor", 100) for i in range(2)),
        ],
    )
    gradients = measure(made).edges["gradients"]
    assert (gradients.source, gradients.rate) == ("learner", 5.0)
    assert only(diagnose(evidence(made)), "bottleneck").subject == "learner"
    made["roles"][1] = role("learner-1", 60, {"gradients": 40}, passed={"gradients": 500})
    assert (
        "learners wait 60 % for each other on `gradients`: learner-1"
        in only(diagnose(evidence(made)), "bottleneck").text
    )


def test_a_silent_role_is_frozen_or_computes():
    made = actors_and_learner((83, 17), (39, 61, 0))
    made["roles"][0]["silent_seconds"] = 40.0
    diagnosis = diagnose(evidence(made))
    problem = only(diagnosis, "problem")
    assert problem.text == "learner-0 is silent for 40 s: frozen or in a long computation"
    assert not found(diagnosis, "bottleneck"), "who is silent holds up all others: their shares say nothing"
    assert only(diagnose(evidence(made, processes={"learner-0": "stopped"})), "problem").text.startswith(
        "learner-0 is stopped by a signal"
    )


def test_actors_that_have_gone_while_a_trained_run_evaluates_are_no_problem():
    made = actors_and_learner((83, 17), (39, 61, 0))
    gone = {"actor-0": "gone", "actor-1": "gone"}
    assert len(found(diagnose(evidence(made, processes=gone)), "problem")) == 2
    made["roles"][0]["state"] = "done"
    assert not found(diagnose(evidence(made, processes=gone)), "problem")
    assert how_it_stands(evidence(made)).endswith("trained to the end: it evaluates")


def test_a_role_that_has_not_begun_is_a_problem_after_a_while():
    made = actors_and_learner((1, 0), (0, 0, 0))
    made["roles"][1]["silent_seconds"] = None
    assert "actor-0 has not begun after 100 s" in only(diagnose(evidence(made)), "problem").text
    made["seconds"] = 3.0
    assert not found(diagnose(evidence(made)), "problem")


def test_a_lost_role_shows_the_last_lines_of_its_log():
    made = actors_and_learner((83, 17), (39, 61, 0))
    made["roles"][2]["restarts"] = 4
    seen = evidence(made, logs={"actor-1": ["Traceback …", "ValueError: the wheel came off"]})
    problem = only(diagnose(seen), "problem")
    assert problem.text == "actor-1 was lost 4 times"
    assert problem.remedy == "see logs/actor-1.log"
    assert problem.lines[-1] == "ValueError: the wheel came off"
    assert to_mapping(seen)["restarts"] == {"actor-1": 4}
    assert "killed" in only(diagnose(evidence(made)), "problem").remedy, "an empty log says something too"


def test_everyone_waiting_for_long_is_a_fault():
    made = actors_and_learner((10, 0), (10, 0, 0))
    for each in made["roles"]:
        each |= {"state": "waiting", "for_seconds": 30.0, "waiting": Wait("take", ("experience",)).to_mapping()}
    assert only(diagnose(evidence(made)), "problem").text.startswith("nobody works")
    made["roles"][0] |= {"state": "working", "waiting": None}
    assert not found(diagnose(evidence(made)), "problem")


def test_an_actor_that_is_slower_than_its_fellows_is_named():
    made = apex((25, 75), (96, 4))
    made["edges"][1]["sent"] = 50  # actor-1, where the others sent 200
    assert "actor-1 is slow: 0.5 items/s, its fellows 2" in only(diagnose(evidence(made)), "note").text


def test_old_experience_and_dropped_chunks_are_told():
    made = actors_and_learner((83, 17), (39, 61, 0))
    fresh = evidence(made, metrics=reports((100, 1.0), lag_mean=1.5, lag_max=3.0, dropped_chunks=0.0))
    assert recent_lag(fresh.metrics) == {"mean": 1.5, "max": 3.0, "dropped_chunks": 0.0}
    assert not found(diagnose(fresh), "note")
    old = diagnose(evidence(made, metrics=reports((100, 1.0), lag_mean=25.0, lag_max=60.0, dropped_chunks=0.0)))
    assert "25 updates old on average, 60 at most" in only(old, "note").text
    dropped = reports((100, 1.0), lag_mean=1.0, lag_max=2.0, dropped_chunks=180.0)  # of 400 + 500 that were sent
    settings = {"max_lag": 2, "formation": "actor_learner"}
    finding = only(diagnose(evidence(made, metrics=dropped, settings=settings)), "problem")
    assert finding.text == "20 % of chunks were dropped as older than max_lag=2"


def test_a_run_that_reports_no_more_is_noticed():
    rows = reports((1000, 1.0), (2000, 2.0), (3000, 3.0), (4000, 4.0))
    assert (
        "no report for 95 s; one came every 1.0 s"
        in only(diagnose(evidence(metrics=rows, metrics_age=95.0)), "problem").text
    )
    assert not found(diagnose(evidence(metrics=rows, metrics_age=3.0)), "problem")


def test_who_waits_for_whom_is_told_with_the_reason():
    made = apex((98, 2), (12, 88), NO_INSERTS, "insert waits: samples/insert 7.9 < 8−margin")
    for each in made["roles"][2:]:
        each |= {"state": "waiting", "waiting": Wait("put", ("experience",)).to_mapping(), "for_seconds": 1.25}
    assert who_waits(measure(made)) == [
        "buffer-0 waits for 'requests' or 'priorities' (insert waits: samples/insert 7.9 < 8−margin) → learner, "
        "for 0.5 s",
        "3 actors (actor-0, actor-1, actor-2) wait to put on 'experience', which is full → buffer, for 1.2 s",
    ]


@pytest.mark.parametrize(
    ("wait", "one", "several"),
    [
        (Wait("take", ("a",), 3, reason="not yet"), "waits for 'a' from sender 3 (not yet)", "wait for 'a' from"),
        (Wait("take_many", ("a",), wanted=4, seconds=0.5), "waits for 'a'", "wait for 'a'"),
        (Wait("call", ("a",)), "waits for the answer to its request on 'a'", "wait for the answer to their requests"),
        (Wait("latest", ("a",), wanted=7), "waits for value 7 of 'a'", "wait for value 7 of 'a'"),
        (Wait("all_reduce", ("a",)), "waits for the others of 'a'", "wait for the others of 'a'"),
        (Wait("sleep", seconds=60.0), "sleeps for 60 s", "sleep for 60 s"),
    ],
)
def test_every_wait_has_words_for_one_role_and_for_several(wait, one, several):
    for count, expected in ((1, f"actor-0 {one}"), (2, f"2 actors (actor-0, actor-1) {several}")):
        made = status("sync", [role(f"actor-{i}", 5, waiting=wait) for i in range(count)], [])
        (told,) = who_waits(measure(made))
        assert told.startswith(expected)


def test_rates_and_depths_are_sums_over_lanes():
    edges = measure(actors_and_learner((83, 17), (39, 61, 0))).edges
    assert edges["experience"].rate == 9.0  # (400 + 500) / 100 s
    assert (edges["experience"].held, edges["experience"].room, edges["experience"].sent) == (2, 2, 900)
    assert edges["weights"].rate == 4.5


def test_two_statuses_give_what_happened_between_them():
    """In all: the learner was busy 83 of 100 s. In the last 10: 2 s busy, 8 waiting."""
    before = actors_and_learner((81, 9), (30, 60, 0))
    after = actors_and_learner((83, 17), (39, 61, 0))
    before["seconds"] = 90.0
    before["edges"][0]["sent"] -= 30
    between = measure(after, before)
    assert (between.seconds, between.recent) == (10.0, True)
    assert between.roles[0].busy == pytest.approx(0.2)
    assert between.roles[1].waits == pytest.approx({"experience": 0.1})
    assert between.edges["experience"].rate == 3.0
    assert only(diagnose(evidence(after, before=before)), "bottleneck").subject == "actor"
    resumed = measure(before, after)  # the clock went back: the run was started again
    assert (resumed.seconds, resumed.recent) == (90.0, False)


def test_how_a_run_stands_or_ended():
    rows = reports((1000, 1.0), (3000, 2.0))
    assert how_it_stands(evidence(metrics=rows)) == "running for 2 s, 3,000 of 1,000,000 steps, 2,000 steps/s"
    ended = {"env_steps": 3000, "seconds": 2.0, "env_steps_per_second": 1500.0}
    told = {
        status: how_it_stands(evidence(alive=False, metrics=rows, summary={**ended, "status": status}))
        for status in ("finished", "interrupted", "failed")
    }
    assert told["finished"] == "finished after 3,000 steps in 2.0 s (1,500 steps/s)"
    for how in ("interrupted", "failed"):
        assert f"{how} after 3,000 steps" in told[how]
        assert "`starling resume runs/one` goes on" in told[how]
    killed = how_it_stands(evidence(alive=False, metrics=rows))
    assert killed.startswith("dead: no process holds it")
    assert "starling resume runs/one" in killed
    earlier = {**ended, "status": "interrupted", "env_steps": 1000}  # it was resumed since, and then killed
    assert how_it_stands(evidence(alive=False, metrics=rows, summary=earlier)).startswith("dead")


def test_a_failed_run_shows_the_last_words_of_its_roles():
    summary = {"status": "failed", "env_steps": 10, "seconds": 1.0, "env_steps_per_second": 10.0}
    diagnosis = diagnose(evidence(alive=False, summary=summary, logs={"actor-0": ["the wheel came off"]}))
    assert only(diagnosis, "problem").lines == ["the wheel came off"]
    assert not found(
        diagnose(evidence(alive=False, summary={**summary, "status": "finished"}, logs={"a-0": ["x"]})), "problem"
    )


def test_a_run_without_status_is_told_from_its_metrics():
    diagnosis = diagnose(evidence(metrics=reports((1000, 1.0), (3000, 2.0)), settings={"formation": "single"}))
    assert "nobody waits" in only(diagnosis, "note").text
    assert "starling advise --algo impala --env CartPole-v1" in only(diagnosis, "note").remedy
    inline = diagnose(evidence(settings={"formation": "sync", "executor": "inline"}))
    assert "--executor processes" in only(inline, "note").remedy


def test_a_diagnosis_is_plain_values():
    mapping = to_mapping(evidence(actors_and_learner((83, 17), (39, 61, 0))))
    assert json.loads(json.dumps(mapping)) == mapping
    assert mapping["slowest"] == "learner-0"
    mapping = to_mapping(evidence(apex((98, 2), (12, 88), NO_INSERTS, "it is full")))
    assert json.loads(json.dumps(mapping)) == mapping
    waiting = mapping["roles"][1]["waiting"]
    assert (waiting["effect"], waiting["edges"], waiting["reason"]) == ("take", list(NO_INSERTS), "it is full")
