"""gymnasium's vectorised CartPole in fewer NumPy calls: the same numbers to the last bit, in less time."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

__all__ = ["CartPole"]


class CartPole(CartPoleVectorEnv):
    """See the top of this file; what is asked for seldom is left to the original."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self.state is None or self._sutton_barto_reward or (action >> 1).any():  # neither 0 nor 1: it is refused
            return super().step(action)
        _, x_dot, theta, theta_dot = self.state
        force = np.where(action, self.force_mag, -self.force_mag)
        cos, sin = np.cos(theta), np.sin(theta)
        temp = (force + self.polemass_length * np.square(theta_dot) * sin) / self.total_mass
        pull = self.length * (4.0 / 3.0 - self.masspole * np.square(cos) / self.total_mass)
        change = np.empty_like(self.state)
        change[0], change[2] = x_dot, theta_dot
        change[3] = angular = (self.gravity * sin - cos * temp) / pull
        change[1] = temp - self.polemass_length * angular * cos / self.total_mass
        self.state = state = self.state + self.tau * change
        terminated = (np.abs(state[0]) > self.x_threshold) | (np.abs(state[2]) > self.theta_threshold_radians)
        self.steps += 1
        truncated = self.steps >= self.max_episode_steps
        reward = np.ones(self.num_envs, np.float32)
        ended = self.prev_done
        if 1 in ended.tobytes():  # they begin anew in this step
            state[:, ended] = self.np_random.uniform(self.low, self.high, (4, int(ended.sum())))
            self.steps[ended], reward[ended], terminated[ended], truncated[ended] = 0, 0.0, False, False
        self.prev_done = terminated | truncated
        return state.T.astype(np.float32), reward, terminated, truncated, {}
