"""Exploration: from what a network prefers to what is done. The noise is data, and nothing is drawn here.

action = EpsilonGreedy(LinearSchedule(1.0, 0.05, over=0.1))(q, noise, progress, mask)
"""

from __future__ import annotations

import math
from typing import Any

from starling.backends import ops
from starling.components.base import Component, api
from starling.components.schedules import Constant, Schedule
from starling.core.errors import ConfigError
from starling.maths.distributions import Categorical
from starling.maths.exploration import epsilon_greedy, smoothed_action

__all__ = ["Boltzmann", "EpsilonGreedy", "GaussianNoise", "OrnsteinUhlenbeck"]


class EpsilonGreedy(Component):
    """The best possible action, or with probability ε any possible one."""

    epsilon: Schedule = Constant(0.05)

    @api(q="* A")
    def __call__(self, q: Any, noise: Any, progress: Any = 0.0, mask: Any = None) -> Any:
        # [*, A], uniform [*] -> int32 [*]
        return epsilon_greedy(q, self.epsilon(progress), noise, mask)


class Boltzmann(Component):
    """An action with probability in proportion to exp(q / temperature)."""

    temperature: Schedule = Constant(1.0)

    @api(q="* A")
    def __call__(self, q: Any, noise: Any, progress: Any = 0.0, mask: Any = None) -> Any:
        # [*, A], uniform [*] -> int32 [*]
        return Categorical(q / self.temperature(progress), mask).sample(noise)


class GaussianNoise(Component):
    """A continuous action plus normal noise, kept within the bounds of the actions."""

    scale: Schedule = Constant(0.1)
    clip: float = math.inf  # of the noise alone
    low: float = -1.0
    high: float = 1.0

    @api(action="* D", noise="* D")
    def __call__(self, action: Any, noise: Any, progress: Any = 0.0) -> Any:  # [*, D], normal [*, D] -> [*, D]
        return smoothed_action(action, noise, self.scale(progress), self.clip, self.low, self.high)


class OrnsteinUhlenbeck(Component):
    """A continuous action plus noise with momentum (Uhlenbeck & Ornstein, 1930; Lillicrap et al., 2016).

    x' = x − θ x dt + σ √dt · noise. The state x is given and returned; it is zero where an episode begins.
    """

    theta: float = 0.15
    sigma: float = 0.2
    dt: float = 1.0
    low: float = -1.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if self.dt <= 0 or not 0 <= self.theta * self.dt <= 1:
            raise ConfigError(f"theta={self.theta}, dt={self.dt}; dt must be above 0 and theta · dt within 0 … 1.")

    @api(action="* D")
    def initial(self, action: Any) -> Any:
        """The state before the first step."""
        return ops(action).zeros_like(action)

    @api(action="* D", state="* D", noise="* D")
    def __call__(self, action: Any, state: Any, noise: Any, reset: Any = None) -> tuple[Any, Any]:
        """The action with noise [*, D] and the new state; ``reset`` [*] is true where an episode begins."""
        xp = ops(action)
        if reset is not None:
            state = xp.where(reset[..., None], xp.zeros_like(state), state)
        state = state * (1.0 - self.theta * self.dt) + self.sigma * math.sqrt(self.dt) * noise
        return xp.clip(action + state, self.low, self.high), state
