import itertools
import re
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from starling.backends import ops
from starling.components.base import Component, api
from starling.components.drawing import draw_svg, draw_text, svg_text
from starling.components.drawing.layers import Sizes
from starling.components.drawing.layout import lay_out
from starling.components.drawing.model import Cluster, Flow, GraphModel, Node, graph_model, kind_of_space
from starling.components.drawing.svg import COLOURS, RED
from starling.components.drawing.text import short_number
from starling.components.graph.assembly import assemble
from starling.components.networks.layers import MLP, Linear
from starling.components.networks.recurrent import GRU
from starling.core.errors import SpaceError
from starling.core.spaces import Bool, Float, Int
from tests.components.graphs import INPUTS, OBS, Agent, QNet, agent


class Strict(Component):
    @api(features="* 7")
    def q_values(self, p, features):
        return features


class Recurrent(Component):
    core: GRU

    @api
    def run(self, p, xs, memory, over):
        _, ys = ops(xs).scan(lambda carry, x: self.core.step(p.core, x, carry)[::-1], memory, xs)
        return ops(ys).where(over[..., None], 0 * ys, ys)


class Shared(Component):
    """Calls that go from one cluster to another and back: the boxes of clusters have a cycle, the calls have none."""

    left: QNet
    right: QNet

    @api
    def first(self, p, obs):
        return self.right.q_values(p.right, self.left.q_values(p.left, obs))

    @api
    def second(self, p, first):
        return self.left.q_values(p.left, first)


class Head(Component):
    layer: Linear

    @api
    def q_values(self, p, features):
        return self.layer(p.layer, features)


class Actor(Component):
    torso: MLP
    mean: Linear

    @api
    def action(self, p, obs, noise):
        mean = self.mean(p.mean, self.torso(p.torso, obs))
        return ops(mean).tanh(mean + noise)


class Critic(Component):
    torso: MLP
    head: Linear

    @api
    def __call__(self, p, obs, action):
        return self.head(p.head, self.torso(p.torso, ops(obs).concat([obs, action], axis=-1)))[..., 0]


class SoftActorCritic(Component):
    """The size of a real graph: a policy, twin critics, a target."""

    policy: Actor
    critics: tuple[Critic, ...]

    @api
    def act(self, p, obs, noise):
        return self.policy.action(p.policy, obs, noise)

    @api
    def loss(self, p, target, obs, noise, done, pixels, choice):
        xp = ops(obs)
        action = self.policy.action(p.policy, obs, noise)
        values = [c(p[f"critics_{i}"], obs, action) for i, c in enumerate(self.critics)]
        goals = [c(target[f"critics_{i}"], obs, action) for i, c in enumerate(self.critics)]
        goal = xp.where(done, goals[0], xp.minimum(goals[0], goals[1]))
        extra = xp.mean(xp.astype(pixels, xp.float32), axis=(1, 2)) + choice
        return xp.mean(xp.square(values[0] - goal) + xp.square(values[1] - goal) + extra)


def recurrent():
    spaces = {"xs": Float((4,)), "over": Bool()}
    ranked = {name: space.ranked(time=True, batch=True) for name, space in spaces.items()}
    return assemble(Recurrent(GRU(5)), ranked | {"memory": GRU(5).memory.ranked(batch=True)})


def shared():
    square = QNet(MLP((4,)), Head(Linear(4)))
    return assemble(Shared(square, square), {"obs": OBS})


def soft():
    critic = Critic(MLP((8,)), Linear(1))
    inputs = {
        "obs": OBS,
        "noise": Float((2,)),
        "done": Bool(),
        "pixels": Int((3, 3), 0, 256, "uint8"),
        "choice": Int((), high=3),
    }
    ranked = {name: space.ranked(batch=True) for name, space in inputs.items()}
    return assemble(SoftActorCritic(Actor(MLP((8,)), Linear(2)), (critic, critic)), ranked)


def broken():
    with pytest.raises(SpaceError) as caught:
        assemble(Agent(QNet(MLP((8,)), Strict())), INPUTS)
    return caught.value.assembly


GRAPHS = {
    "agent": lambda: assemble(agent(), INPUTS),
    "recurrent": recurrent,
    "shared": shared,
    "soft": soft,
    "broken": broken,
}
graphs = pytest.mark.parametrize("name", GRAPHS)


def test_the_text_is_a_tree_of_components_with_their_calls():
    lines = draw_text(GRAPHS["agent"]()).splitlines()
    torso = 2 * 13 * 4 * 8 + 2 * 13 * 8  # product; bias and relu
    value, advantage = 2 * 13 * 8 + 13, 2 * 13 * 8 * 2 + 26
    head = value + advantage + 13 + 26 + 26  # mean, plus, minus
    act, loss = torso + head + 26 + 13, 2 * (torso + head) + 5 * 13 + 1  # max, take, where, minus, square; mean
    expected = [
        ("", "parameters", "FLOPs"),
        ("Agent", "67", ""),
        ("├─ act(obs: float32[B, 4], noise: float32[B, 2]) → int64[B]", "", short_number(act)),
        (
            "├─ loss(obs: float32[B, 4], action: int32[B], next_obs: float32[B, 4], over: bool[B])",
            "",
            short_number(loss),
        ),
        ("│      → {0: float32[], 1.error: float32[B]}", "", ""),
        ("└─ q · QNet", "67", ""),
        ("   ├─ q_values(obs: float32[B, 4]) → float32[B, 2] ×3", "", short_number(torso + head)),
        ("   ├─ torso · MLP", "40", ""),
        ("   │  └─ __call__(x: float32[B, 4]) → float32[B, 8] ×3", "", short_number(torso)),
        ("   └─ head · Dueling", "27", ""),
        ("      ├─ q_values(features: float32[B, 8]) → float32[B, 2] ×3", "", short_number(head)),
        ("      ├─ value · Linear", "9", ""),
        ("      │  └─ __call__(x: float32[B, 8]) → float32[B, 1] ×3", "", short_number(value)),
        ("      └─ advantage · Linear", "18", ""),
        ("         └─ __call__(x: float32[B, 8]) → float32[B, 2] ×3", "", short_number(advantage)),
    ]
    assert [(line[:86].rstrip(), line[86:99].strip(), line[99:].strip()) for line in lines[:-1]] == expected
    assert lines[-1] == "FLOPs of one forward call with B = 13, T = 11; ×n: so many calls."


@graphs
def test_the_text_fits_110_columns(name):
    assert max(map(len, draw_text(GRAPHS[name]()).splitlines())) <= 110


def test_a_failed_call_is_marked_in_the_text():
    lines = draw_text(broken()).splitlines()
    marked = [line.strip() for line in lines if "✗" in line]
    assert marked == [
        "└─ ✗ q_values(features: float32[B, 8])",
        "✗ float32[B, 8] arrived, [*, 7] was expected",
    ]
    assert any("act(obs: float32[B, 4], noise: float32[B, 2])" in line and "→" not in line for line in lines)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (999, "999"), (1000, "1 k"), (1234567, "1.23 M"), (5e15, "5,000 T")]
)
def test_numbers_are_short(value, text):
    assert short_number(value) == text


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        ("float32[B, 4]", "float"),
        ("uint8[B, 84, 84, 4]", "uint8"),
        ("int64[]", "int"),
        ("bool[B]", "bool"),
        ("{a: float32[B], b: float32[]}", "float"),
        ("{a: float32[B], b: int32[B]}", "mixed"),
    ],
)
def test_edges_are_coloured_by_the_kind_of_their_space(space, kind):
    assert kind_of_space(space) == kind
    assert kind in COLOURS


def test_calls_of_one_api_are_one_node():
    model = graph_model(GRAPHS["agent"]())
    assert {key: len(node.calls) for key, node in model.nodes().items() if node.calls} == {
        ".act": 1, ".loss": 1, "q.q_values": 3, "q.torso.__call__": 3, "q.head.q_values": 3,
        "q.head.value.__call__": 3, "q.head.advantage.__call__": 3,
    }  # fmt: skip
    assert {(flow.source, flow.target) for flow in model.flows} == {
        ("input:obs", "q.torso.__call__"), ("input:next_obs", "q.torso.__call__"),
        ("q.torso.__call__", "q.head.value.__call__"), ("q.torso.__call__", "q.head.advantage.__call__"),
        ("q.head.value.__call__", "q.head.q_values"), ("q.head.advantage.__call__", "q.head.q_values"),
        ("q.head.q_values", "q.q_values"), ("q.q_values", ".act"), ("q.q_values", ".loss"),
        ("input:noise", ".act"), ("input:action", ".loss"), ("input:over", ".loss"),
    }  # fmt: skip


def test_a_recurrence_is_marked_and_is_no_flow():
    model = graph_model(recurrent())
    assert model.nodes()["core.step"].repeats
    assert all(flow.source != flow.target for flow in model.flows)
    assert "step ×11 ↻" in svg_text(recurrent())


def sizes_of(model):
    keys = model.nodes()
    return Sizes(
        dict.fromkeys(keys, (120.0, 40.0)),
        dict.fromkeys(keys, 14.0),
        {f"cluster:{c.path}": 90.0 for c in model.root.walk()},
    )


def overlap(a, b):
    return a.x < b.x + b.width and b.x < a.x + a.width and a.y < b.y + b.height and b.y < a.y + a.height


def check_boxes(model, layout):
    """Clusters hold what is theirs, and nothing overlaps."""

    def visit(cluster):
        inner = [layout.boxes[f"cluster:{c.path}"] for c in cluster.clusters]
        inner += [layout.boxes[node.key] for node in cluster.nodes + (model.inputs if not cluster.path else [])]
        around = layout.boxes[f"cluster:{cluster.path}"]
        for i, box in enumerate(inner):
            assert around.x < box.x < box.x + box.width < around.x + around.width, box.key
            assert around.y < box.y < box.y + box.height < around.y + around.height, box.key
            assert not any(overlap(box, other) for other in inner[:i]), box.key
        for child in cluster.clusters:
            visit(child)

    visit(model.root)


def points_of(tracks):
    """Points along a flow as it is drawn: straight tracks, and cubic curves between them."""
    for before, track in zip(tracks, [*tracks[1:], None]):
        yield from ((before.x, before.top + t / 8 * (before.bottom - before.top)) for t in range(9))
        if track is not None:
            bend = (before.bottom + track.top) / 2
            for t in (i / 20 for i in range(21)):
                weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
                xs, ys = (before.x, before.x, track.x, track.x), (before.bottom, bend, bend, track.top)
                yield sum(w * x for w, x in zip(weights, xs)), sum(w * y for w, y in zip(weights, ys))


def check_flows(model, layout):
    """Flows run downwards, and through no box."""
    for flow, tracks, _ in layout.flows:
        assert all(before.bottom <= after.top + 1e-6 for before, after in itertools.pairwise(tracks)), flow
        own = {flow.source, flow.target}
        for end in (flow.source, flow.target):
            path = (model.nodes()[end].path or "").split(".")
            own |= {f"cluster:{'.'.join(path[:n])}" for n in range(len(path) + 1)}
        for x, y in points_of(tracks):
            for key, box in layout.boxes.items():
                inside = box.x + 1 < x < box.x + box.width - 1 and box.y + 1 < y < box.y + box.height - 1
                assert not inside or key in own, (flow, key)


@graphs
def test_boxes_do_not_overlap_and_edges_keep_clear_of_them(name):
    model = graph_model(GRAPHS[name]())
    layout = lay_out(model, sizes_of(model))
    check_boxes(model, layout)
    check_flows(model, layout)
    assert any(backwards for _, _, backwards in layout.flows) == (name == "shared")


@st.composite
def models(draw):
    """Random clusters in clusters, with flows between any two nodes, cycles among them."""
    clusters = [Cluster("", "root", "Root", 0)]
    for i in range(draw(st.integers(0, 5))):
        outer = clusters[draw(st.integers(0, i))]
        inner = Cluster(f"{outer.path}.c{i}" if outer.path else f"c{i}", f"c{i}", "C", 0)
        outer.clusters.append(inner)
        clusters.append(inner)
    for i, cluster in enumerate(clusters):
        count = draw(st.integers(1 if i else 0, 3))
        cluster.nodes += [Node(f"{cluster.path}.n{n}", "n", cluster.path, []) for n in range(count)]
    inputs = [Node(f"input:i{n}", f"i{n}", None, []) for n in range(draw(st.integers(1, 3)))]
    starts = [node.key for node in inputs]
    nodes = [node.key for cluster in clusters for node in cluster.nodes]
    if not nodes:
        return GraphModel(clusters[0], inputs, [])
    pairs = st.tuples(st.sampled_from(starts + nodes), st.sampled_from(nodes)).filter(lambda pair: pair[0] != pair[1])
    flows = draw(st.lists(pairs, max_size=14, unique=True))
    return GraphModel(clusters[0], inputs, [Flow(a, b, draw(st.sampled_from(["float", "int"])), []) for a, b in flows])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(models())
def test_any_graph_is_laid_out_without_overlaps(model):
    layout = lay_out(model, sizes_of(model))
    check_boxes(model, layout)
    check_flows(model, layout)


def parse(assembly):
    return ElementTree.fromstring(svg_text(assembly))


def texts(picture):
    return [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]


@graphs
def test_the_picture_is_well_formed_and_the_same_every_time(name):
    picture = parse(GRAPHS[name]())
    assert svg_text(GRAPHS[name]()) == svg_text(GRAPHS[name]())
    width, height = float(picture.get("width")), float(picture.get("height"))
    assert 300 < width < 3000
    assert 200 < height < 3000


def test_the_picture_names_clusters_calls_inputs_and_spaces():
    words = texts(parse(GRAPHS["agent"]()))
    for word in (
        "Agent", "root · Agent · 67 parameters", "q · QNet · 67 parameters", "torso · MLP · 40 parameters",
        "value · Linear · 9 parameters", "__call__ ×3", "q_values ×3", "obs", "noise", "act", "loss",
        "float32[B, 8]", "int32[B]", "float", "int", "bool", "input",
    ):  # fmt: skip
        assert word in words, word


def test_edges_have_the_colours_of_their_kinds():
    paths = [p for p in parse(soft()).iter("{http://www.w3.org/2000/svg}path") if p.get("marker-end")]
    kinds = {re.search(r"#(\w+)", path.get("marker-end"))[1]: path.get("stroke") for path in paths}
    assert kinds == {kind: COLOURS[kind] for kind in ("float", "int", "bool", "uint8")}


def test_a_failed_call_and_the_edges_into_it_are_red_with_the_reason(tmp_path):
    draw_svg(broken(), tmp_path / "broken.svg")
    picture = ElementTree.parse(tmp_path / "broken.svg").getroot()
    paths = [
        p for p in picture.iter("{http://www.w3.org/2000/svg}path") if p.get("stroke") == RED and p.get("marker-end")
    ]
    assert [path[0].text for path in paths] == ["q.torso.__call__ → q.head.q_values: float32[B, 8]"]
    words = texts(picture)
    assert "✗ q_values" in words
    assert "✗ float32[B, 8] arrived, [*, 7] was expected" in words
    red_boxes = [r for r in picture.iter("{http://www.w3.org/2000/svg}rect") if r.get("stroke") == RED]
    assert len(red_boxes) == 1


def test_a_good_picture_has_no_red():
    assert RED not in re.sub(r"<defs>.*</defs>", "", svg_text(GRAPHS["agent"]()))


def test_names_with_special_characters_are_escaped():
    class Rude(Component):
        @api
        def run(self, p, x):
            raise ValueError("a < b & c")

    with pytest.raises(SpaceError) as caught:
        assemble(Rude(), {"x": OBS})
    assert "✗ a < b & c" in texts(parse(caught.value.assembly))


def test_a_leaf_component_can_be_drawn_alone():
    assembly = assemble(Linear(3), {"x": OBS})
    assert "root · Linear · 15 parameters" in texts(parse(assembly))
    assert "Linear" in draw_text(assembly)
