"""Networks: encoder, torso and head in a row."""

from __future__ import annotations

from typing import Any

from starling.backends import ops
from starling.components.base import Component, api
from starling.components.networks.encoders import encoder_for, split_mask
from starling.components.networks.layers import MLP
from starling.components.specs import as_layer
from starling.core.params import Params
from starling.core.spaces import Space
from starling.maths.distributions import Distribution

__all__ = ["CriticNetwork", "PolicyNetwork", "QNetwork", "ValueNetwork", "seeing", "torso_for"]


def torso_for(torso: Component | None, hidden: tuple[int, ...], activation: str, init: str) -> Component:
    """The torso or, without one, a perceptron."""
    return as_layer(torso, "torso") if torso else MLP(tuple(hidden), activation, init)


def seeing(obs: Space, image: Component | None) -> Component:
    """The encoder of an observation; a component may take the place of its network for images."""
    return encoder_for(obs, as_layer(image, "image") if image else None)


class QNetwork(Component):
    """The value of every action."""

    encoder: Component
    torso: Component
    head: Component

    @api
    def q_values(self, p: Params, obs: Any) -> Any:  # [*, O] -> [*, A]
        seen, _ = split_mask(obs)
        return self.head.q_values(p.head, self.torso(p.torso, self.encoder(p.encoder, seen)))


class ValueNetwork(Component):
    """The value of an observation."""

    encoder: Component
    torso: Component
    head: Component

    @api
    def __call__(self, p: Params, obs: Any) -> Any:  # [*, O] -> [*]
        seen, _ = split_mask(obs)
        return self.head(p.head, self.torso(p.torso, self.encoder(p.encoder, seen)))


class PolicyNetwork(Component):
    """A distribution over actions; impossible ones are masked where the observation says which are possible."""

    encoder: Component
    torso: Component
    head: Component

    @api
    def distribution(self, p: Params, obs: Any) -> Distribution:
        seen, mask = split_mask(obs)
        features = self.torso(p.torso, self.encoder(p.encoder, seen))
        return self.head.distribution(p.head, features, mask)


class CriticNetwork(Component):
    """The value of an action in an observation."""

    encoder: Component
    torso: Component
    head: Component

    @api
    def __call__(self, p: Params, obs: Any, action: Any) -> Any:  # [*, O], [*, D] -> [*]
        seen, _ = split_mask(obs)
        features = ops(action).concat([self.encoder(p.encoder, seen), action], axis=-1)
        return self.head(p.head, self.torso(p.torso, features))
