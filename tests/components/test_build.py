import numpy as np
import pytest

from starling.backends import available, get_backend, ops
from starling.components.base import Component, api
from starling.components.graph.assembly import assemble
from starling.components.graph.build import build, create_parameters, cutter
from starling.components.networks.layers import MLP, Linear
from starling.components.networks.recurrent import GRU
from starling.core.errors import ConfigError
from starling.core.params import Params
from starling.core.spaces import Float
from starling.core.trees import items, map_leaves
from starling.maths.distributions import Categorical
from tests.components.graphs import INPUTS, OBS, agent

rng = np.random.default_rng(5)
obs, next_obs = (rng.standard_normal((6, 4)).astype(np.float32) for _ in range(2))
noise = rng.standard_normal((6, 2)).astype(np.float32)
action = np.array([0, 1, 1, 0, 1, 0], np.int32)
over = np.array([False, True, False, False, True, False])
batch = (obs, action, next_obs, over)


@pytest.fixture(params=available())
def graph(request):
    return build(assemble(agent(), INPUTS), get_backend(request.param), seed=1)


def test_a_joined_tree_is_a_copy_that_can_be_cut_again(graph):
    p = graph.parameters()
    vector = graph.backend.array(graph.joined(p))
    assert vector.shape == (sum(leaf.size for _, leaf in items(graph.initial)),)
    found = cutter(graph.initial)(vector)
    assert type(found) is Params
    for path, leaf in items(graph.initial):
        np.testing.assert_array_equal(dict(items(found))[path], leaf)
        assert not np.shares_memory(vector, graph.backend.array(dict(items(p))[path]))


def dueling_by_hand(p, x):
    features = np.maximum(x @ p.q.torso.w0 + p.q.torso.b0, 0)
    value = features @ p.q.head.value.w + p.q.head.value.b
    advantage = features @ p.q.head.advantage.w + p.q.head.advantage.b
    return value + advantage - advantage.mean(axis=-1, keepdims=True)


def test_a_built_graph_computes_what_its_components_say(graph):
    q = dueling_by_hand(graph.initial, obs)
    act = graph.backend.to_numpy(graph.function("act")(graph.parameters(), obs, noise))
    np.testing.assert_array_equal(act, (q + noise).argmax(axis=-1))
    loss, aux = graph.backend.to_numpy(graph.function("loss")(graph.parameters(), graph.parameters(), *batch))
    target = np.where(over, 0, dueling_by_hand(graph.initial, next_obs).max(axis=-1))
    error = target - q[np.arange(6), action]
    np.testing.assert_allclose(aux["error"], error, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(loss, np.mean(error**2), rtol=1e-5)


def test_gradients_agree_with_differences(graph):
    _, gradients = graph.function("gradients")(graph.parameters(), graph.parameters(), *batch)
    reference = build(assemble(agent(), INPUTS), get_backend("numpy"), seed=1)
    _, expected = reference.function("gradients")(reference.parameters(), reference.parameters(), *batch)
    found = dict(items(graph.backend.to_numpy(gradients)))
    for path, value in items(expected):
        np.testing.assert_allclose(found[path], value, rtol=1e-3, atol=1e-5, err_msg=path)


def test_new_parameters_change_the_result(graph):
    loss = graph.function("loss")
    first = loss(graph.parameters(), graph.parameters(), *batch)[0]
    doubled = graph.place(map_leaves(lambda leaf: 2 * leaf, graph.initial))
    assert abs(float(loss(doubled, graph.parameters(), *batch)[0]) - float(first)) > 1e-3
    assert float(loss(graph.parameters(), graph.parameters(), *batch)[0]) == pytest.approx(float(first))


def test_statistics_count_parameters_and_operations(graph):
    assert graph.stats.parameters == 67
    assert set(graph.stats.flops) == {"act", "loss"}
    q = next(call.flops for call in graph.assembly.calls if call.api == "q_values")
    assert graph.stats.flops["act"] == q + 2 * 13 * 1.5  # plus the noise (26), argmax (13)
    assert graph.stats.seconds > 0


def test_initial_parameters_are_float32_and_contiguous():
    class Doubtful(Component):
        @api
        def run(self, p, x):
            return x * p.get("w", (4,), lambda rng, shape: np.asfortranarray(np.ones(shape, np.float64)))

    params = create_parameters(assemble(Doubtful(), {"x": OBS}), 0)
    assert params["w"].dtype == np.float32
    assert params["w"].flags.c_contiguous


def test_an_initialiser_that_makes_another_shape_is_refused():
    class Wrong(Component):
        @api
        def run(self, p, x):
            return x * p.get("w", (4,), lambda rng, shape: np.ones(5, np.float32))

    with pytest.raises(ConfigError, match=r"initialiser of 'w' made shape \(5,\); \(4,\) was asked for"):
        build(assemble(Wrong(), {"x": OBS}), get_backend("numpy"))


def test_a_summary_is_recorded_without_touching_the_result(graph):
    plain = graph.function("gradients")(graph.parameters(), graph.parameters(), *batch)
    run = graph.function("gradients", summaries=["q.torso.*", "q.head.value.__call__"])
    for _ in range(2):
        (loss, _), seen = run(graph.parameters(), graph.parameters(), *batch)
        assert float(loss) == pytest.approx(float(plain[0]), rel=1e-5)
        seen = graph.backend.to_numpy(dict(seen))
        assert sorted(seen) == ["q.head.value.__call__", "q.torso.__call__"]
        # The last call of the loss is that of the current observations.
        torso = np.maximum(obs @ graph.initial.q.torso.w0 + graph.initial.q.torso.b0, 0)
        np.testing.assert_allclose(seen["q.torso.__call__"], torso, rtol=1e-5, atol=1e-6)


def test_summaries_of_nothing_are_empty(graph):
    _, seen = graph.function("act", summaries=["nowhere.*"])(graph.parameters(), obs, noise)
    assert dict(seen) == {}


class Recurrent(Component):
    core: GRU
    head: Linear

    @api
    def loss(self, p, xs, memory):
        def step(carry, x):
            y, carry = self.core.step(p.core, x, carry)
            return carry, self.head(p.head, y)

        _, ys = ops(xs).scan(step, memory, xs)
        return ops(ys).mean(ops(ys).square(ys)), None

    def gradients(self, p, xs, memory):
        return ops(xs).value_and_grad(self.loss)(p, xs, memory)[1]


@pytest.mark.parametrize("name", [name for name in available() if name != "numpy"])
def test_summaries_come_out_of_loops_inside_gradients(name):
    xs, memory = rng.standard_normal((3, 2, 4)).astype(np.float32), {"h": np.zeros((2, 5), np.float32)}
    spaces = {"xs": Float((4,)).ranked(time=True, batch=True), "memory": GRU(5).memory.ranked(batch=True)}
    assembly = assemble(Recurrent(GRU(5), Linear(1)), spaces)
    graph, reference = build(assembly, get_backend(name)), build(assembly, get_backend("numpy"))
    gradients, seen = graph.function("gradients", summaries=["core.*", "head.*"])(graph.parameters(), xs, memory)
    p, carry, expected = reference.initial, memory, []
    for x in xs:
        y, carry = assembly.root.core.step(p.core, x, carry)
        expected.append(y @ p.head.w + p.head.b)
    assert sorted(seen) == ["core.step.0", "core.step.1.h", "head.__call__"]
    np.testing.assert_allclose(graph.backend.to_numpy(seen["head.__call__"]), np.stack(expected), rtol=1e-4, atol=1e-6)
    plain = dict(items(graph.backend.to_numpy(graph.function("gradients")(graph.parameters(), xs, memory))))
    for path, value in items(graph.backend.to_numpy(gradients)):
        np.testing.assert_allclose(value, plain[path], rtol=1e-5, atol=1e-7)


class Policy(Component):
    logits: Linear

    @api
    def distribution(self, p, x):
        return Categorical(self.logits(p.logits, x))

    @api
    def act(self, p, x):
        return self.distribution(p, x=x).mode()


@pytest.mark.parametrize("name", available())
def test_the_arrays_of_a_distribution_can_be_summaries(name):
    graph = build(assemble(Policy(Linear(3)), {"x": OBS}), get_backend(name))
    _, seen = graph.function("act", summaries=["distribution"])(graph.parameters(), obs)
    expected = obs @ graph.initial.logits.w
    np.testing.assert_allclose(graph.backend.to_numpy(seen["distribution.logits"]), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("on_host", [True, False])
def test_parameters_are_fetched_as_arrays_of_their_own(graph, on_host, monkeypatch):
    monkeypatch.setattr(type(graph.backend), "on_host", lambda backend, devices: on_host)
    p = graph.parameters()
    for part in (p, {"q": p["q"]}, {"head": p["q"]["head"]}):
        found = graph.fetch(part)
        assert type(found) is Params
        expected = dict(items(graph.backend.to_numpy(part)))
        assert [path for path, _ in items(found)] == list(expected)
        for path, leaf in items(found):
            np.testing.assert_array_equal(leaf, expected[path])
            assert leaf.flags.writeable
            assert not np.shares_memory(leaf, expected[path])


def test_a_scope_without_parameters_is_fetched_as_it_is(graph):
    assert graph.fetch(Params(encoder=Params())) == Params(encoder=Params())


def test_unknown_devices_are_refused():
    with pytest.raises(ConfigError, match="device 'gpu:9' is not there; numpy sees: cpu:0"):
        build(assemble(agent(), INPUTS), get_backend("numpy"), devices=["gpu:9"])


@pytest.mark.parametrize("name", available())
def test_naming_the_default_device_changes_nothing(name):
    assembly, backend = assemble(agent(), INPUTS), get_backend(name)
    named, plain = build(assembly, backend, devices=["cpu:0"]), build(assembly, backend)
    found = named.function("loss")(named.parameters(), named.parameters(), *batch)[0]
    assert float(found) == float(plain.function("loss")(plain.parameters(), plain.parameters(), *batch)[0])


def test_donated_parameters_are_given_back_new():
    graph = build(assemble(MLP((3,)), {"x": OBS}), get_backend("numpy"))
    run = graph.function("__call__", donate=[0])
    np.testing.assert_array_equal(run(graph.parameters(), obs), run(graph.parameters(), obs))
