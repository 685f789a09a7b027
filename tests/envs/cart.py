"""CartPole's physics, which tell whether a transition is a true one."""

from __future__ import annotations

import numpy as np

from starling.envs import Step

ANGLE = 12 * 2 * np.pi / 360


def verify_physics(obs: np.ndarray, action: np.ndarray, step: Step) -> None:
    """Every valid row of ``step`` is what ``action`` leads to from ``obs``."""
    ended = (step.terminated | step.truncated) & step.valid
    assert (step.final_obs is not None) == ended.any()
    after = step.obs if step.final_obs is None else np.where(ended[:, None], step.final_obs, step.obs)
    for i in np.flatnonzero(step.valid):
        x, x_dot, theta, theta_dot = obs[i].astype(np.float64)
        force = 10.0 if action[i] == 1 else -10.0
        pull = (force + 0.05 * theta_dot**2 * np.sin(theta)) / 1.1
        turn = (9.8 * np.sin(theta) - np.cos(theta) * pull) / (0.5 * (4 / 3 - 0.1 * np.cos(theta) ** 2 / 1.1))
        push = pull - 0.05 * turn * np.cos(theta) / 1.1
        expected = [x + 0.02 * x_dot, x_dot + 0.02 * push, theta + 0.02 * theta_dot, theta_dot + 0.02 * turn]
        np.testing.assert_allclose(after[i], expected, atol=1e-5)
        fell = abs(after[i][0]) > 2.4 or abs(after[i][2]) > ANGLE
        if not step.truncated[i]:
            assert step.terminated[i] == fell
        assert step.reward[i] == 1.0
