"""A graph on one device that was asked for, and on several that share each batch."""

import os
import subprocess
import sys

import numpy as np
import pytest

from starling.backends import available, get_backend, ops
from starling.components.base import Component, api
from starling.components.graph.assembly import assemble
from starling.components.graph.build import build
from starling.components.networks.modules import as_component
from starling.core.errors import ConfigError
from starling.core.spaces import Dict, Float
from starling.core.trees import items, leaves
from tests.components.sharing import INPUTS, Rollouts, assert_same, batch_and_draws, learn, rollouts

needs_jax = pytest.mark.skipif("jax" not in available(), reason="needs JAX")
needs_torch = pytest.mark.skipif("torch" not in available(), reason="needs PyTorch")


@needs_torch
@pytest.mark.parametrize(
    "devices", [("cpu:0", "cpu:1"), ("cpu:0", "cpu:1", "cpu:2"), ("cpu:0", "cpu:1", "cpu:2", "cpu:3")]
)
def test_devices_that_share_a_batch_learn_what_one_learns_on_pytorch(devices):
    backend = get_backend("torch")
    assert_same(learn(rollouts(backend, devices)), learn(rollouts(backend)))


class Mean(Component):
    """The mean of the rows that count."""

    @api
    def loss(self, p, batch):
        xp = ops(batch["x"])
        x = p.get("w", (), lambda rng, shape: np.ones(shape)) * batch["x"]
        mean = xp.sum(x * batch["mask"]) / xp.maximum(xp.sum(batch["mask"]), 1.0)
        return mean, {"x": x, "rows": batch["x"].shape[0]}


@needs_torch
def test_a_mean_over_two_shares_weighs_each_by_the_rows_that_count():
    row = Float().ranked(batch=True)
    assembly = assemble(Mean(), {"batch": Dict(x=row, mask=row)})
    graph = build(assembly, get_backend("torch"), devices=["cpu:0", "cpu:1"])
    loss, x = graph.function("loss"), np.float32([1, 2, 4, 8])
    for _ in range(2):  # as it is traced, and from the trace
        found, aux = graph.backend.to_numpy(loss(graph.parameters(), {"x": x, "mask": np.float32([1, 1, 1, 0])}))
        assert found == pytest.approx((1 + 2 + 4) / 3)  # and not (1.5 + 4) / 2
        assert aux["x"].tolist() == [1, 2, 4, 8]
    assert float(loss(graph.parameters(), {"x": x, "mask": np.float32([0, 0, 0, 0])})[0]) == 0.0


@needs_torch
def test_summaries_are_of_the_first_device():
    graph, (batch, draws) = rollouts(get_backend("torch"), ("cpu:0", "cpu:1")), batch_and_draws()
    _, seen = graph.function("loss", summaries=["torso.*"])(graph.parameters(), batch, draws)
    whole = rollouts(get_backend("torch")).function("loss", summaries=["torso.*"])(graph.parameters(), batch, draws)[1]
    np.testing.assert_allclose(seen["torso.__call__"], whole["torso.__call__"][:, :4], rtol=1e-5)


ON_FOUR = """
import jax
import numpy as np
from starling.backends import get_backend
from starling.core.errors import ConfigError
from starling.core.spaces import Float
from starling.core.trees import items
from tests.components.sharing import assert_same, batch_and_draws, learn, rollouts

backend = get_backend("jax")
assert backend.devices() == ["cpu:0", "cpu:1", "cpu:2", "cpu:3"], backend.devices()
expected = learn(rollouts(backend))
for devices in (("cpu:0", "cpu:2"), ("cpu:3", "cpu:1", "cpu:2"), ("cpu:0", "cpu:1", "cpu:2", "cpu:3")):
    graph = rollouts(backend, devices)
    assert_same(learn(graph), expected)
    names = {f"cpu:{device.id}" for _, leaf in items(graph.parameters()) for device in leaf.devices()}
    assert names == set(devices), names
    assert all(leaf.is_fully_replicated for _, leaf in items(graph.parameters()))

state, (batch, draws) = graph.root.init(graph.parameters()), batch_and_draws()
features = graph.function("act")(graph.parameters(), np.ones((3, 4), np.float32))
assert features.shape == (3, 6)  # what is not split may have any number of rows

put = backend._divided(batch, graph.assembly.inputs["batch"], devices)
assert {shard.data.shape for shard in put["obs"].addressable_shards} == {(3, 2, 4)}
assert {shard.data.shape for shard in put["memory"]["h"].addressable_shards} == {(2, 5)}

loss = backend.spread(lambda x: (x @ np.ones((4, 5), np.float32)).sum(), devices, [Float((4,)).ranked(batch=True)], {})
text = jax.jit(loss).lower(np.ones((7, 4), np.float32)).compile().as_text()
assert " f32[2,5]{1,0} " in text, "each device has two of the seven rows"

try:
    graph.function("update")(state, *batch_and_draws(3))
except ConfigError as error:
    print(error)

one = rollouts(backend, ("cpu:3",))
assert {str(next(iter(leaf.devices())).id) for _, leaf in items(one.parameters())} == {"3"}
features = one.function("act")(one.parameters(), np.ones((3, 4), np.float32))
assert {device.id for device in features.devices()} == {3}
assert_same(learn(one), expected)
"""


@needs_jax
@pytest.mark.slow  # of algorithms it is in tests/algorithms/test_devices.py
def test_devices_that_share_a_batch_learn_what_one_learns_on_jax():
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", ON_FOUR], capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "3 rows, too few for the 4 devices cpu:0, cpu:1, cpu:2, cpu:3; name fewer devices" in done.stdout


@needs_torch
def test_fewer_rows_than_devices_are_refused_on_pytorch():
    graph = rollouts(get_backend("torch"), ("cpu:0", "cpu:1", "cpu:2"))
    state = graph.root.init(graph.parameters())
    with pytest.raises(ConfigError, match="2 rows, too few for the 3 devices cpu:0, cpu:1, cpu:2"):
        graph.function("update")(state, *batch_and_draws(2))


@needs_torch
def test_what_is_not_split_may_have_any_number_of_rows():
    graph, (batch, draws) = rollouts(get_backend("torch"), ("cpu:0", "cpu:1")), batch_and_draws(3)
    assert graph.function("act")(graph.parameters(), np.ones((3, 4), np.float32)).shape == (3, 6)
    plain = rollouts(get_backend("torch")).function("loss")(graph.parameters(), batch, draws)[0]
    assert float(graph.function("loss", split=())(graph.parameters(), batch, draws)[0]) == float(plain)


class Watched(Rollouts):
    """Notes where the arrays are that it computes with."""

    def update(self, state, batch, draws):
        result = super().update(state, batch, draws)
        WHERE.extend(leaf.device.type for leaf in leaves((state["params"], batch, draws, result)) if leaf.ndim)
        return result


WHERE = []


@needs_torch
@pytest.mark.parametrize("devices", [("meta",), ("meta:0", "meta:1")])
def test_every_array_that_pytorch_computes_with_is_on_the_device_that_was_asked_for(devices):
    reference = rollouts(get_backend("torch")).root
    root = Watched(reference.torso, reference.core, reference.head)
    graph = build(assemble(root, INPUTS), get_backend("torch"), devices=devices)
    state, WHERE[:] = root.init(graph.parameters()), []
    state, metrics = graph.function("update", donate=(0,))(state, *batch_and_draws())
    assert len(WHERE) > 20
    assert set(WHERE) == {"meta"}
    assert metrics["priorities"].shape == (8,)
    features = graph.function("act")(graph.parameters(), np.ones((3, 4), np.float32))
    assert (features.device.type, tuple(features.shape)) == ("meta", (3, 6))


@needs_torch
def test_arrays_that_a_component_makes_are_on_the_device_that_was_asked_for():
    class Making(Component):
        @api
        def __call__(self, p, x):
            xp = ops(x)
            return x + xp.arange(4, dtype=xp.float32) + xp.zeros((4,), dtype=xp.float32)

        def branching(self, p, x):
            return ops(x).cond(x.shape[0] > 1, lambda x: self(p, x), lambda x: x, x)

    graph = build(assemble(Making(), {"x": Float((4,)).ranked(batch=True)}), get_backend("torch"), devices=["meta"])
    for api_name in ("__call__", "branching"):
        assert graph.function(api_name)(graph.parameters(), np.ones((3, 4), np.float32)).device.type == "meta"


@needs_torch
def test_what_a_pytorch_module_holds_moves_to_the_device_that_computes():
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).eval()
    module[0].bias.requires_grad_(False)
    graph = build(
        assemble(as_component(module), {"x": Float((4,)).ranked(batch=True)}), get_backend("torch"), devices=["meta"]
    )
    found = graph.function("__call__")(graph.parameters(), np.ones((3, 4), np.float32))
    assert (found.device.type, tuple(found.shape)) == ("meta", (3, 4))
    assert {leaf.device.type for _, leaf in items(graph.parameters())} == {"meta"}
    assert module[1].running_mean.device.type == "cpu"
