"""Drawings of formations: every role, every edge, and which way it leads."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from starling.cli.formation import formation as formation_command
from starling.formations import FORMATIONS, Counts, Edge, Formation, Roles, form
from starling.formations.arrangement import arrange
from starling.formations.drawing import draw_text
from starling.formations.picture import draw_svg, svg_text

MANY = [
    ("apex", Counts(actors=8, buffers=2, evaluators=1)),
    ("actor_learner", Counts(actors=4, learners=2, evaluators=1)),
    ("central_inference", Counts(actors=5, evaluators=2)),
    ("sharded_ps", Counts(actors=3, servers=3)),
]
ALL = [(name, Counts()) for name in FORMATIONS] + MANY


def words_of(svg: str) -> list[str]:
    return [text for text in ElementTree.fromstring(svg).itertext() if text.strip()]


@pytest.mark.parametrize(("name", "counts"), ALL)
def test_a_text_names_every_role_and_edge_with_kind_and_depth(name, counts):
    formation = form(name, counts)
    text = draw_text(formation, "what it is for")
    assert text.startswith(f"{name}: what it is for\n")
    for roles in formation.roles:
        assert (f"{roles.kind} × {roles.count}" if roles.count > 1 else roles.kind) in text
    for edge in formation.edges:
        assert edge.name in text
        assert (f"queue of {edge.depth}" if edge.kind == "queue" else edge.kind) in text
    assert text.count("■ ends the run") == 1


@pytest.mark.parametrize(("name", "counts"), ALL)
def test_a_picture_names_the_same_and_is_a_valid_file(name, counts):
    formation = form(name, counts)
    words = words_of(svg_text(formation, "what it is for"))
    assert words.count("■ ends the run") == 1
    for roles in formation.roles:
        assert (f"{roles.kind} × {roles.count}" if roles.count > 1 else roles.kind) in words
    for edge in formation.edges:
        assert any(edge.name in word for word in words)


def test_few_roles_are_drawn_singly_and_many_as_a_stack():
    few = words_of(svg_text(form("sync", Counts(actors=4))))
    assert [word for word in few if word.startswith("actor-")] == ["actor-0", "actor-1", "actor-2", "actor-3"]
    many = words_of(svg_text(form("sync", Counts(actors=5))))
    assert [word for word in many if word.startswith("actor-")] == ["actor-0 … actor-4"]


def test_arrows_point_from_source_to_target():
    lines = draw_text(form("sync")).splitlines()
    after = {lines[i].split("│")[2].strip(): lines[i + 1] for i in range(len(lines) - 1) if lines[i].count("│") == 4}
    assert "│─────────────▶│" in after["experience"]
    assert "│◀─────────────│" in after["weights"]


def test_an_edge_between_distant_roles_runs_below_them():
    lines = draw_text(form("apex")).splitlines()
    lane = next(i for i, line in enumerate(lines) if "weights · broadcast" in line)
    learner, actor = lines[lane].index("┘"), lines[lane].index("└")
    assert (lines[lane - 1][actor], lines[lane - 1][learner]) == ("▲", "│"), "from the learner to the actors"
    assert "│ actor" in lines[8][:learner]


def test_roles_that_exchange_most_are_neighbours():
    plan = arrange(form("central_inference", Counts(evaluators=1)))
    assert [roles.kind for roles in plan.columns] == ["inference", "actor", "learner", "evaluator"]
    assert [[arrow.edge.name for arrow in arrows] for arrows in plan.between] == [
        ["requests", "replies"],
        ["experience"],
        ["weights"],
    ]
    assert [(arrow.edge.name, arrow.source, arrow.target) for arrow in plan.far] == [("weights", 2, 0)]


def test_pairings_are_told_where_there_is_a_choice():
    def pairings(name, **counts):
        plan = arrange(form(name, Counts(**counts)))
        arrows = [arrow for group in (*plan.between, plan.far, *plan.within) for arrow in group]
        return {arrow.edge.name: arrow.pairing for arrow in arrows}

    assert pairings("apex", actors=4, buffers=2)["experience"] == "each to one buffer"
    assert pairings("apex", actors=4, buffers=1)["experience"] == ""
    assert pairings("apex", actors=2, buffers=4)["experience"] == "each to buffers of its own"
    assert pairings("sharded_ps", actors=4, servers=2)["gradients"] == "each to every server"
    assert pairings("allreduce", actors=2, learners=2)["gradients"] == "of all 2"
    assert pairings("actor_learner", actors=4, learners=2)["weights"] == "from one learner each"


def test_a_formation_of_ones_own_is_drawn_too():
    """Two edges that cross under the boxes, and a kind of role that nobody knew."""
    edges = (
        Edge("far", "queue", "actor", "oracle", 7),
        Edge("back", "broadcast", "learner", "actor"),
        Edge("<&>", "queue", "buffer", "learner"),
    )
    roles = (Roles("oracle", 1), Roles("learner", 1), Roles("buffer", 1), Roles("actor", 1))
    formation = Formation("mine & yours", roles, edges, ends="oracle")
    text = draw_text(formation)
    assert "far · queue of 7" in text
    assert "back · broadcast" in text
    assert "<&>" in words_of(svg_text(formation))


def test_the_file_is_written_where_it_is_wanted(tmp_path):
    draw_svg(form("apex"), tmp_path / "apex.svg")
    assert ElementTree.parse(tmp_path / "apex.svg").getroot().tag.endswith("svg")


def test_the_pictures_of_the_documentation_are_those_that_the_command_draws(tmp_path):
    """docs/pictures/draw.sh says how each was drawn."""
    pictures = Path(__file__).parents[2] / "docs" / "pictures"
    commands = [line.split()[1:] for line in (pictures / "draw.sh").read_text().splitlines() if line[:5] == "draw "]
    assert sorted(name for name, *_ in commands) == sorted(FORMATIONS)
    for name, *options in commands:
        assert formation_command([name, *options, "--svg", str(tmp_path / "drawn.svg")]) == 0
        assert (tmp_path / "drawn.svg").read_text() == (pictures / f"{name}.svg").read_text(), "run draw.sh again"
