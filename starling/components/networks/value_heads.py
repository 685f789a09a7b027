"""Heads that answer with values: of every action, of one action, of the state.

A head with ``noisy`` above 0 has noisy linear layers (Fortunato et al., 2018); its APIs then take ``noise``,
``noise_size(F)`` standard normals, and without noise answer with the mean weights.
"""

from __future__ import annotations

import math
from typing import Any

from starling.backends import ops
from starling.components.base import Component, api
from starling.components.networks.layers import affine, noisy_affine
from starling.core.errors import ConfigError
from starling.core.params import Params

__all__ = [
    "ActionCritic",
    "CategoricalQHead",
    "DuelingHead",
    "ImplicitQuantileHead",
    "QHead",
    "QuantileHead",
    "TwinCritics",
    "ValueHead",
]

VALUE_INIT = "orthogonal:1.0"


class _Layers:
    """The linear layers of one call, each noisy one taking its share of the noise."""

    def __init__(self, p: Params, init: str, sigma: float, noise: Any) -> None:
        self._p, self._init, self._sigma, self._noise, self._used = p, init, sigma, noise, 0

    def __call__(self, name: str, x: Any, size: int) -> Any:  # [*, I] -> [*, size]
        if not self._sigma:
            return affine(self._p, x, size, self._init, name)
        start, self._used = self._used, self._used + x.shape[-1] + size
        noise = None if self._noise is None else self._noise[..., start : self._used]
        return noisy_affine(self._p, x, size, self._sigma, noise, name)

    def stream(self, name: str, x: Any, hidden: int, size: int) -> Any:
        """A linear layer, with a hidden one before it if ``hidden`` is above 0."""
        if hidden:
            x = self(name + "_hidden", x, hidden)
            x = ops(x).relu(x)
        return self(name, x, size)

    def dueling(self, x: Any, hidden: int, actions: int, size: int = 1) -> Any:
        """v + a − mean a for every action, [*, A, size]."""
        xp = ops(x)
        value = self.stream("_value", x, hidden, size)[..., None, :]  # [*, 1, size]
        advantage = _per_action(self.stream("_advantage", x, hidden, actions * size), actions)
        return value + advantage - xp.mean(advantage, axis=-2, keepdims=True)


def _per_action(x: Any, actions: int) -> Any:
    """[*, A · N] -> [*, A, N]."""
    return ops(x).reshape(x, (*x.shape[:-1], actions, x.shape[-1] // actions))


def _stream_noise(inputs: int, hidden: int, size: int) -> int:
    """How much noise ``_Layers.stream`` takes."""
    return inputs + 2 * hidden + size if hidden else inputs + size


class QHead(Component):
    """A value for each action."""

    actions: int
    init: str = VALUE_INIT
    noisy: float = 0.0

    @api(features="* F")
    def q_values(self, p: Params, features: Any, noise: Any = None) -> Any:  # [*, F] -> [*, A]
        return _Layers(p, self.init, self.noisy, noise)("", features, self.actions)

    def noise_size(self, inputs: int) -> int:
        return _stream_noise(inputs, 0, self.actions)


class DuelingHead(Component):
    """A value of the state plus an advantage of each action, of mean zero (Wang et al., 2016)."""

    actions: int
    hidden: int = 0
    init: str = VALUE_INIT
    noisy: float = 0.0

    @api(features="* F")
    def q_values(self, p: Params, features: Any, noise: Any = None) -> Any:  # [*, F] -> [*, A]
        return _Layers(p, self.init, self.noisy, noise).dueling(features, self.hidden, self.actions)[..., 0]

    def noise_size(self, inputs: int) -> int:
        return _stream_noise(inputs, self.hidden, 1) + _stream_noise(inputs, self.hidden, self.actions)


class CategoricalQHead(Component):
    """The distribution of each action's return over fixed atoms (Bellemare et al., 2017)."""

    actions: int
    atoms: int = 51
    v_min: float = -10.0
    v_max: float = 10.0
    dueling: bool = False
    hidden: int = 0
    init: str = VALUE_INIT
    noisy: float = 0.0

    def __post_init__(self) -> None:
        if self.atoms < 2 or self.v_min >= self.v_max:
            raise ConfigError(
                f"atoms={self.atoms}, v_min={self.v_min}, v_max={self.v_max}; at least 2 atoms are needed, and "
                "v_min must be below v_max."
            )

    @api(features="* F")
    def logits(self, p: Params, features: Any, noise: Any = None) -> Any:  # [*, F] -> [*, A, N]
        layers = _Layers(p, self.init, self.noisy, noise)
        if self.dueling:
            return layers.dueling(features, self.hidden, self.actions, self.atoms)
        return _per_action(layers.stream("", features, self.hidden, self.actions * self.atoms), self.actions)

    @api(features="* F")
    def q_values(self, p: Params, features: Any, noise: Any = None) -> Any:  # [*, F] -> [*, A]
        return self.expected(self.logits(p, features, noise))

    def expected(self, logits: Any) -> Any:
        """The mean of each distribution: [*, A, N] -> [*, A]."""
        xp = ops(logits)
        return xp.sum(xp.exp(xp.log_softmax(logits)) * self.support(logits), axis=-1)

    def support(self, like: Any) -> Any:
        """The returns that the atoms stand for, [N], as an array of the same kind as ``like``."""
        xp = ops(like)
        return xp.linspace(self.v_min, self.v_max, self.atoms, dtype=xp.float32)

    def noise_size(self, inputs: int) -> int:
        both = _stream_noise(inputs, self.hidden, self.actions * self.atoms)
        return both + _stream_noise(inputs, self.hidden, self.atoms) if self.dueling else both


class QuantileHead(Component):
    """Quantiles of each action's return at the midpoints (2i + 1) / 2N (Dabney et al., 2018, QR-DQN)."""

    actions: int
    count: int = 200
    init: str = VALUE_INIT

    @api(features="* F")
    def quantiles(self, p: Params, features: Any) -> Any:  # [*, F] -> [*, A, N]
        return _per_action(affine(p, features, self.actions * self.count, self.init), self.actions)

    @api(features="* F")
    def q_values(self, p: Params, features: Any) -> Any:  # [*, F] -> [*, A]
        quantiles = self.quantiles(p, features)
        return ops(quantiles).mean(quantiles, axis=-1)

    def fractions(self, like: Any) -> Any:
        """The fractions τ that the quantiles stand for, [N], as an array of the same kind as ``like``."""
        xp = ops(like)
        return (xp.arange(self.count, dtype=xp.float32) + 0.5) / self.count


class ImplicitQuantileHead(Component):
    """The quantile of each action's return at any fraction τ, by a cosine embedding (Dabney et al., 2018, IQN)."""

    actions: int
    embedding: int = 64
    init: str = VALUE_INIT

    @api(features="* F", tau="float * N")
    def quantiles(self, p: Params, features: Any, tau: Any) -> Any:  # [*, F], [*, N] -> [*, A, N]
        xp = ops(features)
        waves = xp.cos(math.pi * tau[..., None] * xp.arange(self.embedding, dtype=xp.float32))  # [*, N, E]
        weights = affine(p, waves, features.shape[-1], tag="_tau")  # [*, N, F]
        q = affine(p, features[..., None, :] * xp.relu(weights), self.actions, self.init)  # [*, N, A]
        return xp.moveaxis(q, -1, -2)

    @api(features="* F", tau="float * N")
    def q_values(self, p: Params, features: Any, tau: Any) -> Any:  # [*, F], [*, N] -> [*, A]
        quantiles = self.quantiles(p, features, tau)
        return ops(quantiles).mean(quantiles, axis=-1)


class ValueHead(Component):
    """The value of a state."""

    init: str = VALUE_INIT

    @api(features="* F")
    def __call__(self, p: Params, features: Any) -> Any:  # [*, F] -> [*]
        return affine(p, features, 1, self.init)[..., 0]


class ActionCritic(Component):
    """The value of a continuous action in a state: features and action side by side, a torso, one number."""

    torso: Component
    head: ValueHead = ValueHead()

    @api(features="* F", action="float * D")
    def __call__(self, p: Params, features: Any, action: Any) -> Any:  # [*, F], [*, D] -> [*]
        both = ops(features).concat([features, action], axis=-1)
        return self.head(p["head"], self.torso(p["torso"], both))


class TwinCritics(Component):
    """Several critics of one kind, each with its own parameters: scopes ``critics_0``, ``critics_1``, …

    TwinCritics(ActionCritic(MLP((256, 256))))     # two of them (Fujimoto et al., 2018)
    """

    critics: Component | tuple[Component, ...]
    count: int = 2

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ConfigError(f"count={self.count}; at least 1 critic is needed.")
        if isinstance(self.critics, Component):
            object.__setattr__(self, "critics", (self.critics,) * self.count)

    @api(action="float * D")
    def q_values(self, p: Params, obs: Any, action: Any) -> Any:  # [*, O], [*, D] -> [*, count]
        critics: Any = self.critics
        q = [critic(p[f"critics_{i}"], obs, action) for i, critic in enumerate(critics)]
        return ops(action).stack(q, axis=-1)
