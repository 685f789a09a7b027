import importlib.util

import numpy as np
import pytest

from starling.backends import get_backend, ops
from starling.backends.modules import adapter_of, kind_of
from starling.components.base import Component, api
from starling.components.graph.assembly import assemble
from starling.components.graph.build import build
from starling.components.networks.layers import Linear, Sequential
from starling.components.networks.modules import Module, as_component, required_backend
from starling.components.networks.whole import torso_for
from starling.components.optimisers import Adam
from starling.components.specs import from_spec
from starling.components.testing import ComponentTest
from starling.core.errors import ConfigError, MissingExtraError, SpaceError
from starling.core.spaces import Float
from starling.core.trees import items, map_leaves

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
linen = pytest.importorskip("flax.linen")
nnx = pytest.importorskip("flax.nnx")
eqx = pytest.importorskip("equinox")

X = {"x": Float((4,)).ranked(batch=True)}
x = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)


class TorchNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh())
        self.out = torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.out(self.net(x))


class LinenNet(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(2)(linen.tanh(linen.Dense(8)(x)))


class NnxNet(nnx.Module):
    def __init__(self, rngs):
        self.first, self.out = nnx.Linear(4, 8, rngs=rngs), nnx.Linear(8, 2, rngs=rngs)

    def __call__(self, x):
        return self.out(jax.numpy.tanh(self.first(x)))


def make(kind):
    torch.manual_seed(0)
    if kind == "torch":
        module = TorchNet()
        return module, "torch", module(torch.tensor(x)).detach().numpy()
    if kind == "linen":
        module = LinenNet()
        return module, "jax", module.apply(module.init(jax.random.key(0), x[0]), x)
    if kind == "nnx":
        module = NnxNet(nnx.Rngs(3))
        return module, "jax", module(x)
    module = eqx.nn.MLP(4, 2, 8, 1, activation=jax.numpy.tanh, key=jax.random.key(5))
    return module, "jax", jax.vmap(module)(x)


NAMES = {
    "torch": ["net.0.bias", "net.0.weight", "out.bias", "out.weight"],
    "linen": ["Dense_0.bias", "Dense_0.kernel", "Dense_1.bias", "Dense_1.kernel"],
    "nnx": ["first.bias", "first.kernel", "out.bias", "out.kernel"],
    "equinox": ["layers.0.bias", "layers.0.weight", "layers.1.bias", "layers.1.weight"],
}
kinds = pytest.mark.parametrize("kind", NAMES)


@kinds
def test_a_component_says_what_its_module_says(kind):
    module, backend, expected = make(kind)
    test = ComponentTest(as_component(module), X, backend, seed=9)
    test.check("__call__", [x], np.asarray(expected))
    assert sorted(test.assembly.parameters) == NAMES[kind]


@kinds
def test_assembling_infers_the_output_the_parameters_and_the_cost(kind):
    module, _, _ = make(kind)
    call = assemble(as_component(module), X).calls[0]
    assert call.output == "float32[B, 2]"
    assert call.returned == ["x"]
    products = 2 * 13 * (4 * 8 + 8 * 2)
    assert products <= call.flops <= products + 13 * (8 + 8 + 2)  # PyTorch counts the products alone


@kinds
def test_other_parameters_give_another_result(kind):
    module, backend, expected = make(kind)
    test = ComponentTest(as_component(module), X, backend)
    test.params = map_leaves(np.zeros_like, test.params)
    np.testing.assert_array_equal(test.call("__call__", x), np.zeros((6, 2)))
    again = ComponentTest(as_component(module), X, backend)
    again.check("__call__", [x], np.asarray(expected))  # the module itself was not touched


class Regression(Component):
    torso: Component
    head: Linear

    @api
    def loss(self, p, x, y):
        error = self.head(p.head, self.torso(p.torso, x)) - y
        return ops(error).mean(ops(error).square(error)), {}

    def step(self, p, state, x, y):
        (loss, _), gradients = ops(x).value_and_grad(self.loss)(p, x, y)
        return *Adam(clip=1.0).step(p, gradients, state), loss


@kinds
def test_a_module_trains_inside_a_graph(kind):
    module, backend, _ = make(kind)
    root = Regression(as_component(module), Linear(1))
    graph = build(assemble(root, X | {"y": Float((1,)).ranked(batch=True)}), get_backend(backend))
    assert [path for path, _ in items(graph.initial) if path.startswith("torso")] == [f"torso.{n}" for n in NAMES[kind]]
    p, step = graph.parameters(), graph.function("step")
    state = graph.backend.compile(Adam().init)(p)
    start, y, losses = graph.backend.to_numpy(p), x[:, :1] * 0.5, []
    for _ in range(150):
        p, state, loss = step(p, state, x, y)
        losses.append(float(loss))
    assert losses[-1] < 0.5 * losses[0]
    for (path, before), (_, after) in zip(items(start), items(graph.backend.to_numpy(p))):
        assert not np.array_equal(before, after), path


def test_the_gradient_is_that_of_pytorch():
    module, backend, _ = make("torch")
    module(torch.tensor(x)).square().sum().backward()
    component = as_component(module)
    graph = build(assemble(component, X), get_backend(backend))

    def loss(p, x):
        y = component(p, x)
        return ops(y).sum(y * y), None

    gradients = graph.backend.compile(lambda p, x: ops(x).value_and_grad(loss)(p, x)[1])(graph.parameters(), x)
    expected = dict(module.named_parameters())
    for path, gradient in items(gradients):
        np.testing.assert_allclose(gradient, expected[path].grad, rtol=1e-5, err_msg=path)


@pytest.mark.parametrize(
    ("kind", "wrong"), [("torch", "numpy"), ("torch", "jax"), ("linen", "torch"), ("equinox", "numpy")]
)
def test_another_backend_is_refused_before_anything_runs(kind, wrong):
    module, right, _ = make(kind)
    root = Regression(as_component(module), Linear(1))
    assembly = assemble(root, X | {"y": Float((1,)).ranked(batch=True)})
    with pytest.raises(
        ConfigError,
        match=f"component 'torso' is the .* it runs on backend '{right}', and this graph is for '{wrong}'. "
        f"Both who learns and who acts run it: set backend and act_backend to {right}",
    ):
        build(assembly, get_backend(wrong))


def test_a_component_says_which_backend_its_modules_need():
    torch_net, linen_net = as_component(make("torch")[0]), as_component(make("linen")[0])
    assert required_backend(Regression(torch_net, Linear(1))) == "torch"
    assert required_backend(Regression(linen_net, Linear(1))) == "jax"
    assert required_backend(Regression(Linear(2), Linear(1))) is None
    with pytest.raises(ConfigError, match=r"'layers_0' is the PyTorch module TorchNet and 'layers_1' is the flax"):
        required_backend(Sequential((torch_net, linen_net)))


def test_a_module_takes_the_place_of_a_spec():
    module = as_component(make("torch")[0])
    assert from_spec(module) is module
    made = from_spec({"type": "sequential", "layers": [module, {"type": "linear", "size": 3}]})
    assert isinstance(made, Sequential)
    assert made.layers[0] is module
    assert torso_for(module, (64,), "tanh", "lecun") is module


def test_numpy_arrays_are_refused_where_a_graph_was_not_built():
    component = as_component(TorchNet())
    params = ComponentTest(component, X, "torch").params
    with pytest.raises(ConfigError, match="was given a NumPy array; it runs on backend 'torch'"):
        component(params, x)


@pytest.mark.parametrize(
    ("module", "what"),
    [
        (torch.nn.BatchNorm1d(4), "buffer 'running_var'"),
        (torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)), "PyTorch's random generator"),
        (linen.BatchNorm(use_running_average=False), "collection 'batch_stats'"),
        (nnx.BatchNorm(4, rngs=nnx.Rngs(0)), "'var'"),
        (nnx.Dropout(0.5, rngs=nnx.Rngs(0)), "'rngs.count'"),
    ],
)
def test_a_module_that_changes_while_it_runs_is_refused(module, what):
    with pytest.raises(ConfigError, match=f"changes .*{what}.* while it runs; a component keeps nothing but"):
        assemble(as_component(module), X)


def test_equinox_state_is_refused():
    with pytest.raises(ConfigError, match="changes its equinox state while it runs"):
        assemble(as_component(eqx.nn.BatchNorm(4, "batch", mode="ema")), X)


def test_a_batch_norm_in_evaluation_mode_is_a_constant():
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).eval()
    module[1].running_mean += 2.0
    test = ComponentTest(as_component(module), X, "torch")
    test.check("__call__", [x], module(torch.tensor(x)).detach().numpy())
    assert "1.running_mean" not in test.assembly.parameters


def test_assembling_does_not_change_the_module():
    module = torch.nn.BatchNorm1d(4)
    with pytest.raises(ConfigError):
        assemble(as_component(module), X)
    assert module.num_batches_tracked == 0


def test_frozen_parameters_stay_constants():
    module = TorchNet()
    module.out.requires_grad_(False)
    assert sorted(assemble(as_component(module), X).parameters) == ["net.0.bias", "net.0.weight"]


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (torch.nn.Linear(4, 2).double(), "parameter 'weight' is torch.float64; float32 was expected"),
        (torch.nn.LazyLinear(2), "has no shape yet; run the module once first"),
        (linen.Dense(2, param_dtype=jax.numpy.bfloat16), "is bfloat16; float32 was expected"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(module, message):
    with pytest.raises(ConfigError, match=message):
        assemble(as_component(module), X)


def test_inputs_that_do_not_fit_name_the_component():
    with pytest.raises(SpaceError, match=r"component 'torso' .Module., API '__call__'") as caught:
        assemble(Regression(as_component(torch.nn.Linear(5, 2)), Linear(1)), X | {"y": Float().ranked(batch=True)})
    assert caught.value.assembly.failed.path == "torso"


class TwoIn(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(6, 1)

    def forward(self, x, action):
        y = self.net(torch.cat([x, action], dim=-1))
        return {"value": y[..., 0], "pair": (y, x)}


def test_several_arrays_go_in_and_a_tree_comes_out():
    class Critic(Component):
        net: Module

        @api
        def __call__(self, p, x, action):
            return self.net(p.net, x, action)

    module, action = TwoIn(), x[:, :2]
    test = ComponentTest(Critic(as_component(module)), X | {"action": Float((2,)).ranked(batch=True)}, "torch")
    expected = module(torch.tensor(x), torch.tensor(action))
    for _ in range(2):
        found = test.call("__call__", x, action)
        np.testing.assert_allclose(found["value"], expected["value"].detach(), rtol=1e-6)
        np.testing.assert_array_equal(found["pair"][1], x)
    inner = test.assembly.calls[1]
    assert inner.inputs == {"x": "float32[B, 4]", "more0": "float32[B, 2]"}
    assert inner.output == "{pair.0: float32[B, 1], pair.1: float32[B, 4], value: float32[B]}"


def test_a_torch_module_may_map_over_dimensions_too():
    module = TorchNet()
    test = ComponentTest(as_component(module, vmap=1), X, "torch")
    test.check("__call__", [x], module(torch.tensor(x)).detach().numpy())


def test_assembling_draws_no_numbers_from_pytorch():
    module, state = as_component(TorchNet()), torch.get_rng_state()
    with pytest.raises(ConfigError, match="random generator"):
        assemble(as_component(torch.nn.Dropout(0.5)), X)
    assemble(module, X)
    assert torch.equal(state, torch.get_rng_state())


def test_equinox_modules_map_over_as_many_dimensions_as_said():
    module = make("equinox")[0]
    xs = np.stack([x, -x])
    test = ComponentTest(as_component(module, vmap=2), {"x": Float((4,)).ranked(batch=True, time=True)}, "jax")
    test.check("__call__", [xs], np.asarray(jax.vmap(jax.vmap(module))(xs)))
    with pytest.raises(ConfigError, match="vmap=-1"):
        as_component(module, vmap=-1)


def test_what_is_no_module_is_refused():
    with pytest.raises(ConfigError, match=r"dict arrived; expected an instance of torch.nn.Module"):
        as_component({})


def test_a_missing_framework_names_the_command_that_installs_it(monkeypatch):
    module = eqx.nn.Linear(4, 2, key=jax.random.key(0))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="equinox is not installed; run: pip install"):
        as_component(module)


def test_kinds_know_their_backends():
    assert [kind_of(make(kind)[0]).backend for kind in NAMES] == ["torch", "jax", "jax", "jax"]
    assert adapter_of(TorchNet()).kind.title == "PyTorch module"
