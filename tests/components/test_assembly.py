import numpy as np
import pytest

from starling.backends import ops
from starling.components.base import Component, api
from starling.components.graph.assembly import assemble
from starling.components.graph.build import create_parameters
from starling.components.networks.images import NatureCNN
from starling.components.networks.initialisers import zeros
from starling.components.networks.layers import MLP, Linear
from starling.core.errors import ConfigError, SpaceError
from starling.core.spaces import Float, Int
from starling.core.trees import items
from tests.components.graphs import INPUTS, OBS, Agent, Dueling, QNet, Scalar, agent

NAMES = [
    "q.head.advantage.b",
    "q.head.advantage.w",
    "q.head.value.b",
    "q.head.value.w",
    "q.torso.b0",
    "q.torso.w0",
]


def calls_of(assembly):
    return [f"{call.path}.{call.api}" for call in assembly.calls]


def test_parameters_have_names_that_follow_the_fields():
    assembly = assemble(agent(), INPUTS)
    assert sorted(assembly.parameters) == NAMES
    assert {name: assembly.parameters[name].shape for name in NAMES[4:]} == {"q.torso.b0": (8,), "q.torso.w0": (4, 8)}
    assert assembly.parameter_count == (4 * 8 + 8) + (8 * 1 + 1) + (8 * 2 + 2)
    assert assembly.scopes == {"", "q", "q.torso", "q.head", "q.head.value", "q.head.advantage"}


def test_parameters_are_the_same_whatever_the_order_of_creation():
    spaces = {"x": OBS}
    first = create_parameters(assemble(Scalar(("a", "b", "c")), spaces), seed=3)
    second = create_parameters(assemble(Scalar(("c", "a", "b")), spaces), seed=3)
    assert list(items(first))
    assert all(np.array_equal(first[name], second[name]) for name in "abc")
    assert not np.array_equal(first["a"], first["b"])
    other = create_parameters(assemble(Scalar(("a", "b", "c")), spaces), seed=4)
    assert not np.array_equal(first["a"], other["a"])


def test_a_part_has_the_same_parameters_in_another_graph():
    whole = create_parameters(assemble(agent(), INPUTS), seed=0)

    class Bigger(Agent):
        extra: Linear = Linear(3)

        @api
        def more(self, p, obs):
            return self.extra(p.extra, obs)

    grown = create_parameters(assemble(Bigger(agent().q), INPUTS), seed=0)
    for path, value in items(whole.q):
        np.testing.assert_array_equal(value, dict(items(grown.q))[path])


def test_every_call_is_recorded_with_its_spaces_and_parent():
    assembly = assemble(agent(), INPUTS)
    inner = ["q.q_values", "q.torso.__call__", "q.head.q_values", "q.head.value.__call__", "q.head.advantage.__call__"]
    assert calls_of(assembly) == [".act", *inner, ".loss", *inner, *inner]
    act, q, torso, head = assembly.calls[:4]
    assert act.inputs == {"obs": "float32[B, 4]", "noise": "float32[B, 2]"}
    assert (act.output, act.parent) == ("int64[B]", None)
    assert (q.parent, torso.parent, head.parent) == (0, 1, 1)
    assert (torso.component, torso.output) == ("MLP", "float32[B, 8]")
    assert "target" not in assembly.calls[6].inputs  # parameters are no data


def test_data_flow_is_recorded():
    assembly = assemble(agent(), INPUTS)
    act, q, torso, head, value, advantage = assembly.calls[:6]
    assert torso.flows == [("obs", "x", "float32[B, 4]")]
    assert head.flows == [(torso.index, "features", "float32[B, 8]")]
    assert head.returned == sorted([value.index, advantage.index])
    assert q.returned == [head.index]
    assert set(act.returned) == {q.index, "noise"}
    assert set(assembly.calls[6].returned) == {"action", "over", 7, 12}


def test_flops_of_a_perceptron_by_hand():
    call = assemble(MLP((5, 3)), {"x": OBS}).calls[0]
    layer = [2 * 13 * 4 * 5, 13 * 5, 13 * 5, 2 * 13 * 5 * 3, 13 * 3, 13 * 3]  # product, bias, relu; twice
    assert call.flops == sum(layer)


def test_flops_of_a_convolutional_network_by_hand():
    image = Int((84, 84, 4), 0, 256, "uint8").ranked(batch=True)
    call = assemble(NatureCNN(), {"x": image}).calls[0]
    products = 2 * 13 * (20 * 20 * 32 * 8 * 8 * 4 + 9 * 9 * 64 * 4 * 4 * 32 + 7 * 7 * 64 * 3 * 3 * 64 + 3136 * 512)
    elementwise = 13 * (20 * 20 * 32 + 9 * 9 * 64 + 7 * 7 * 64 + 512)
    assert products + 2 * elementwise <= call.flops <= products + 4 * elementwise + 2 * 13 * 84 * 84 * 4


def test_flops_of_a_call_contain_those_of_the_calls_inside():
    assembly = assemble(agent(), INPUTS)
    torso, head, value, advantage = (assembly.calls[i].flops for i in (2, 3, 4, 5))
    assert (value, advantage) == (2 * 13 * 8 + 13, 2 * 13 * 8 * 2 + 26)
    assert head == value + advantage + 13 + 2 * 26  # mean, plus, minus
    assert assembly.calls[1].flops == torso + head


def test_an_api_may_read_the_result_of_an_earlier_one():
    class Two(Component):
        @api
        def features(self, p, x):
            return x @ p.get("w", (4, 3), zeros)

        @api
        def score(self, p, features):
            return ops(features).sum(features, axis=-1)

    assembly = assemble(Two(), {"x": OBS})
    assert assembly.calls[1].flows == [(0, "features", "float32[B, 3]")]
    assert list(assembly.outputs) == ["features", "score"]
    assert calls_of(assemble(Two(), {"x": OBS}, only=["features"])) == [".features"]


def test_apis_without_parameters_are_not_traced_by_themselves():
    class Mixed(Component):
        @api
        def plain(self, x):
            return x

        @api
        def nothing(self):
            return 1

        @api
        def both(self, p, x):
            return self.plain(x) + 1

    assert calls_of(assemble(Mixed(), {"x": OBS})) == [".both", ".plain"]


def test_arguments_may_come_by_name_and_defaults_may_stay_away():
    class Inner(Component):
        @api
        def __call__(self, p, x, mask=None, *, scale=1.0):
            return x * scale

    class Outer(Component):
        inner: Inner

        @api
        def run(self, p, x):
            return self.inner(p.inner, scale=2.0, x=x)

    assert assemble(Outer(Inner()), {"x": OBS}).calls[1].inputs == {"x": "float32[B, 4]", "scale": "float"}


def test_an_input_that_is_missing_is_named_with_those_that_are_there():
    with pytest.raises(SpaceError, match=r"Agent.act asks for 'noise'; the root's inputs are: target, state, obs"):
        assemble(agent(), {"obs": OBS})


class Strict(Component):
    @api(features="* 7")
    def q_values(self, p, features):
        return features


def test_a_misfit_names_path_api_argument_arrival_expectation_and_chain():
    with pytest.raises(SpaceError) as caught:
        assemble(Agent(QNet(MLP((8,)), Strict())), INPUTS)
    assert str(caught.value) == (
        "component 'q.head' (Strict), API 'q_values', argument 'features': "
        "float32[B, 8] arrived, [*, 7] was expected.\n"
        "  arrived: features=float32[B, 8]\n"
        "  calls:   (root).act → q.q_values → q.head.q_values"
    )
    assembly = caught.value.assembly
    assert (assembly.failed.path, assembly.failed.api) == ("q.head", "q_values")
    assert assembly.error == "float32[B, 8] arrived, [*, 7] was expected"


def test_an_error_inside_numpy_is_told_the_same_way():
    class Clumsy(Component):
        @api
        def q_values(self, p, features):
            return features @ p.get("w", (9, 2), zeros)

    with pytest.raises(SpaceError, match=r"component 'q.head' \(Clumsy\), API 'q_values': matmul") as caught:
        assemble(Agent(QNet(MLP((8,)), Clumsy())), INPUTS)
    assert "arrived: features=float32[B, 8]" in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_space_error_of_the_component_itself_gets_its_place():
    class Picky(Component):
        @api
        def q_values(self, p, features):
            raise SpaceError("features must be even")

    with pytest.raises(SpaceError, match=r"component 'q.head' \(Picky\).*features must be even") as caught:
        assemble(Agent(QNet(MLP((8,)), Picky())), INPUTS)
    assert caught.value.assembly.failed.path == "q.head"


def test_other_errors_of_ours_pass_unchanged():
    class Refusing(Component):
        @api
        def q_values(self, p, features):
            raise ConfigError("not today")

    with pytest.raises(ConfigError, match=r"^not today$"):
        assemble(Agent(QNet(MLP((8,)), Refusing())), INPUTS)


def test_a_call_with_a_wrong_argument_blames_the_caller():
    class Caller(Component):
        inner: Linear

        @api
        def run(self, p, x):
            return self.inner(p.inner, y=x)

    with pytest.raises(
        SpaceError, match=r"component '\(root\)' \(Caller\), API 'run': missing a required argument: 'x'"
    ):
        assemble(Caller(Linear(2)), {"x": OBS})


def test_one_parameter_cannot_have_two_shapes():
    class Twice(Component):
        head: Linear

        @api
        def run(self, p, x, y):
            return self.head(p.head, x) + self.head(p.head, y)

    with pytest.raises(
        SpaceError, match=r"parameter 'head.w' needs shape \[3, 2\] here; an earlier call made it \[4, 2\]"
    ):
        assemble(Twice(Linear(2)), {"x": OBS, "y": Float((3,)).ranked(batch=True)})


def test_a_parameter_cannot_have_the_name_of_a_scope():
    class Clash(Component):
        head: Linear

        @api
        def run(self, p, x):
            return self.head(p.head, x) + p.get("head", (2,), zeros)

    with pytest.raises(SpaceError, match="parameter 'head' has the name of a scope"):
        assemble(Clash(Linear(2)), {"x": OBS})


def test_time_and_batch_are_told_apart():
    space = {"x": Float((4,)).ranked(batch=True, time=True)}
    assert assemble(MLP((3,)), space).calls[0].output == "float32[T, B, 3]"


def test_the_component_itself_is_not_changed():
    root = agent()
    methods = dict(vars(Agent))
    assemble(root, INPUTS)
    assert dict(vars(Agent)) == methods
    assert type(root.q.torso) is MLP
    assert isinstance(root.q.head, Dueling)
