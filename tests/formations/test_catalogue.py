"""Formations are values: what they consist of, who sends to whom, and what is refused."""

from __future__ import annotations

import dataclasses

import pytest

from starling.core.errors import ConfigError, UnknownNameError
from starling.core.importing import imported
from starling.core.settings import help_of
from starling.formations import FORMATIONS, Counts, form, resolved_counts
from starling.formations.catalogue import free_settings


@pytest.mark.parametrize("name", FORMATIONS)
def test_every_role_and_message_names_code_that_is_there(name):
    assert FORMATIONS[name].name == form(name).name == name
    formation = form(name, Counts(evaluators=1) if "evaluators" in free_settings(name) else None)
    for roles in formation.roles:
        assert callable(imported(roles.make))
    for edge in formation.edges:
        assert callable(imported(edge.message))
    assert formation.count(formation.ends) >= 1


def test_one_fused_role_makes_up_single_and_takes_overlap_alone():
    formation = form("single", Counts(overlap=True))
    assert (formation.fused, formation.edges, [str(role) for role in formation]) == (True, (), ["learner-0"])
    assert free_settings("single") == {"overlap": False}
    assert [name for name in FORMATIONS if "overlap" in free_settings(name)] == ["single"]


def test_more_buffers_than_actors_are_shared_out_among_them():
    formation = form("apex", Counts(actors=2, buffers=4))
    edge = formation.edge("experience")
    assert [formation.targets(edge, actor) for actor in range(2)] == [[0, 2], [1, 3]]
    assert [formation.sources(edge, buffer) for buffer in range(4)] == [[0], [1], [0], [1]]


def test_several_learners_of_apex_average_their_gradients_and_draw_from_the_buffers():
    formation = form("apex", Counts(learners=2, buffers=2))
    assert formation.joined("learner")
    assert not form("apex").joined("learner")
    requests = formation.edge("requests")
    assert [formation.targets(requests, learner) for learner in range(2)] == [[0], [1]]


def test_the_learner_of_evolution_takes_what_was_tried_with_its_newest_parameters_alone():
    assert form("evolution").fresh
    assert not form("evolution").lockstep, "actors go on while it learns"
    assert not any(form(name).fresh for name in FORMATIONS if name != "evolution")


def test_nobody_runs_ahead_where_max_lag_is_zero():
    lockstep = {name for name in FORMATIONS if form(name).lockstep}
    assert lockstep == {"single", "sync", "allreduce"}
    assert form("actor_learner", Counts(max_lag=0)).lockstep
    assert not form("actor_learner", Counts(max_lag=1)).lockstep


def test_what_was_not_given_is_the_formation_s_own_default():
    counts = resolved_counts("apex", Counts(actors=5))
    assert (counts.actors, counts.buffers, counts.learners, counts.queue) == (5, 1, 1, 2)
    assert counts.samples_per_insert is None, "as the algorithm's settings say"


@pytest.mark.parametrize(
    ("name", "counts", "message"),
    [
        ("sync", {"buffers": 2}, r"buffers=2 has no effect in the formation sync: it takes actors.* one in apex\."),
        ("sync", {"max_lag": 3}, r"max_lag=3 has no effect in the formation sync"),
        ("evolution", {"max_lag": 0}, r"max_lag=0 has no effect in the formation evolution"),
        ("actor_learner", {"actors": 3, "learners": 2}, r"actors=3 cannot be shared equally by learners=2"),
        ("sync", {"actors": 2, "batch_chunks": 3}, r"batch_chunks=3: .* use a multiple, such as 4"),
        ("central_inference", {"actors": 3, "inference_servers": 2}, r"use a multiple of both"),
    ],
)
def test_counts_that_make_no_sense_are_refused_with_what_would(name, counts, message):
    with pytest.raises(ConfigError, match=message):
        form(name, Counts(**counts))


def test_what_makes_a_formation_what_it_is_may_be_said_but_not_changed():
    assert form("sync", Counts(max_lag=0)) == form("sync")


def test_an_unknown_formation_gets_the_nearest_one():
    with pytest.raises(UnknownNameError, match="Did you mean 'evolution'"):
        form("evolutoin")


def test_every_count_is_explained_and_has_a_range():
    names = {field.name for field in dataclasses.fields(Counts)}
    assert set(help_of(Counts)) == names
    with pytest.raises(ConfigError, match="actors=0; it must be from 1 to 100000"):
        Counts(actors=0)
    with pytest.raises(ConfigError, match="inference_wait=-1; it must be at least 0"):
        Counts(inference_wait=-1)
