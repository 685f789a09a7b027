"""Small graphs for the tests of assembling, building and drawing."""

from __future__ import annotations

from typing import Any

from starling.backends import ops
from starling.components.base import Component, api
from starling.components.networks.initialisers import lecun
from starling.components.networks.layers import MLP, Linear
from starling.core.params import Params
from starling.core.spaces import Bool, Float, Int, Space

OBS = Float((4,)).ranked(batch=True)


class Dueling(Component):
    """A head with two parts."""

    value: Linear
    advantage: Linear

    @api
    def q_values(self, p: Params, features: Any) -> Any:
        value, advantage = self.value(p.value, features), self.advantage(p.advantage, features)
        return value + advantage - ops(advantage).mean(advantage, axis=-1, keepdims=True)


class QNet(Component):
    """Encoder, torso, head."""

    torso: Component
    head: Component

    @api
    def q_values(self, p: Params, obs: Any) -> Any:
        return self.head.q_values(p.head, self.torso(p.torso, obs))  # type: ignore[operator, attr-defined]


class Agent(Component):
    """A root with a network, a target and three inputs."""

    q: QNet

    @api
    def act(self, p: Params, obs: Any, noise: Any) -> Any:
        return ops(noise).argmax(self.q.q_values(p.q, obs) + noise, axis=-1)

    @api
    def loss(self, p: Params, target: Params, obs: Any, action: Any, next_obs: Any, over: Any) -> tuple[Any, Any]:
        xp = ops(obs)
        q_t = xp.stop_gradient(xp.max(self.q.q_values(target.q, next_obs), axis=-1))
        q_tm1 = xp.take_along(self.q.q_values(p.q, obs), action)
        error = xp.where(over, xp.zeros_like(q_t), q_t) - q_tm1
        return xp.mean(xp.square(error)), {"error": error}

    def gradients(self, p: Params, target: Params, *batch: Any) -> tuple[Any, Any]:
        (loss, _), gradients = ops(batch[0]).value_and_grad(self.loss)(p, target, *batch)
        return loss, gradients


INPUTS: dict[str, Space] = {
    "obs": OBS,
    "noise": Float((2,)).ranked(batch=True),
    "action": Int((), high=2).ranked(batch=True),
    "next_obs": OBS,
    "over": Bool().ranked(batch=True),
}


def agent(width: int = 8) -> Agent:
    return Agent(QNet(MLP((width,)), Dueling(Linear(1), Linear(2))))


class Scalar(Component):
    """Parameters asked for in an order of one's own."""

    order: tuple[str, ...]

    @api
    def __call__(self, p: Params, x: Any) -> Any:
        for name in self.order:
            x = x * p.get(name, (x.shape[-1],), lecun)
        return x
