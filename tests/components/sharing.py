"""A small root that learns from rollouts [T, B] with steps that do not count, to be built on several devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from starling.backends import Backend, ops
from starling.components.base import Component, api
from starling.components.graph.assembly import assemble
from starling.components.graph.build import Graph, build
from starling.components.networks.layers import MLP, Linear
from starling.components.networks.recurrent import GRU
from starling.components.optimisers import Adam
from starling.core.params import Params
from starling.core.spaces import Dict, Float, Space
from starling.core.trees import Tree, items, map_leaves

T, B = 3, 8
STEP = Dict(obs=Float((4,)), reward=Float(), mask=Float())
INPUTS: dict[str, Space] = {
    "obs": Float((4,)).ranked(batch=True),
    "batch": Dict(**STEP.ranked(time=True, batch=True).spaces, memory=GRU(5).memory.ranked(batch=True)),
    "draws": Dict(noise=Float().ranked(batch=True), scale=Float()),
}


class Rollouts(Component):
    """Regresses rewards on what a recurrent layer remembers of the observations."""

    torso: MLP
    core: GRU
    head: Linear

    @api
    def act(self, p: Params, obs: Any) -> Any:
        return self.torso(p.torso, obs)

    @api
    def loss(self, p: Params, batch: Tree, draws: Tree) -> tuple[Any, Tree]:
        xp = ops(batch["reward"])
        reset = batch["reward"] > 1.0
        ys, _ = self.core.unroll(p.core, self.torso(p.torso, batch["obs"]), batch["memory"], reset)
        error = self.head(p.head, ys)[..., 0] - batch["reward"] + draws["scale"] * draws["noise"]  # [T, B]
        loss = xp.sum(batch["mask"] * xp.square(error)) / xp.maximum(xp.sum(batch["mask"]), 1.0)
        return loss, {"loss": loss, "priorities": xp.max(xp.abs(error), axis=0), "error": error, "nothing": None}

    def init(self, params: Params) -> Tree:
        return {"params": params, "optimiser": Adam().init(params)}

    def update(self, state: Tree, batch: Tree, draws: Tree) -> tuple[Tree, Tree]:
        (_, metrics), gradients = ops(batch["reward"]).value_and_grad(self.loss)(state["params"], batch, draws)
        params, optimiser = Adam(clip=1.0).step(state["params"], gradients, state["optimiser"])
        return {"params": params, "optimiser": optimiser}, {**metrics, "gradients": gradients}

    def update_often(self, state: Tree, batch: Tree, draws: Tree) -> tuple[Tree, Tree]:
        return ops(batch["reward"]).scan(lambda state, step: self.update(state, *step), state, (batch, draws))


def rollouts(backend: Backend, devices: tuple[str, ...] = ()) -> Graph:
    return build(assemble(Rollouts(MLP((6,)), GRU(5), Linear(1)), INPUTS), backend, seed=2, devices=devices)


def batch_and_draws(rows: int = B) -> tuple[Tree, Tree]:
    """The first rows count at no step, so that the shares of devices count differently."""
    rng = np.random.default_rng(3)
    batch = INPUTS["batch"]
    assert isinstance(batch, Dict)
    step = {name: batch[name].sample(rng, (T, rows)) for name in STEP.spaces}
    step["mask"] = (rng.random((T, rows)) < 0.7).astype(np.float32)
    step["mask"][:, : rows // 4] = 0.0
    draws = {"noise": rng.standard_normal(rows).astype(np.float32), "scale": np.float32(0.1)}
    return {**step, "memory": {"h": batch["memory"]["h"].sample(rng, (rows,))}}, draws


def learn(graph: Graph) -> dict[str, np.ndarray]:
    """What two updates and two in one call make, by path."""
    batch, draws = batch_and_draws()
    root: Any = graph.root
    update, often = graph.function("update", donate=(0,)), graph.function("update_often", donate=(0,))
    state = root.init(graph.parameters())
    for _ in range(2):
        state, metrics = update(state, batch, draws)
    stacked = map_leaves(lambda leaf: np.stack([leaf, leaf]), (batch, draws))
    again, several = often(root.init(graph.parameters()), *stacked)
    found = graph.backend.to_numpy({"state": state, "metrics": metrics, "again": again, "several": several})
    return dict(items({**found, "fetched": graph.fetch(state["params"])}))


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == list(expected)
    for path, value in expected.items():
        np.testing.assert_allclose(found[path], value, rtol=1e-5, atol=1e-6, err_msg=path)
