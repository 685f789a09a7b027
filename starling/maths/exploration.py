"""Choosing actions from values."""

from __future__ import annotations

from typing import Any

from starling.backends import ops
from starling.maths.distributions import Categorical, masked

__all__ = ["apex_epsilon", "epsilon_greedy", "epsilon_greedy_probs", "smoothed_action"]


def apex_epsilon(actor: int, actors: int, base: float = 0.4, alpha: float = 7.0) -> float:
    """base^(1 + alpha · actor / (actors − 1)): each actor keeps its own constant rate of exploring."""
    return base ** (1.0 + alpha * actor / max(actors - 1, 1))


def epsilon_greedy(q: Any, epsilon: Any, noise: Any, mask: Any = None) -> Any:
    """With probability ε any possible action, else the one of highest value; int32 [B] from one uniform each.

    Below ε the noise itself, stretched to [0, 1), says which action.
    """
    xp = ops(q)
    greedy = xp.astype(xp.argmax(masked(q, mask), axis=-1), xp.int32)  # [B]
    explores = noise < epsilon
    stretched = noise / (epsilon + 1e-12)
    if mask is None:
        anything = xp.astype(xp.minimum(stretched * q.shape[-1], q.shape[-1] - 1.0), xp.int32)
    else:
        anything = Categorical(xp.zeros_like(q), mask).sample(stretched)
    return xp.where(explores, anything, greedy)


def epsilon_greedy_probs(q: Any, epsilon: Any, mask: Any = None) -> Any:
    """What ``epsilon_greedy`` draws from, [B, A]."""
    xp = ops(q)
    greedy = xp.one_hot(xp.argmax(masked(q, mask), axis=-1), q.shape[-1])  # [B, A]
    possible = xp.ones_like(q) if mask is None else xp.astype(mask, q.dtype)
    anything = possible / xp.maximum(xp.sum(possible, axis=-1, keepdims=True), 1.0)  # behind an end none may be
    return (1.0 - epsilon) * greedy + epsilon * anything


def smoothed_action(
    action: Any, noise: Any, scale: float, noise_clip: float, low: float = -1.0, high: float = 1.0
) -> Any:
    """clip(action + clip(scale · noise, ±noise_clip), low, high): TD3's target, or plain Gaussian exploration."""
    xp = ops(action)
    return xp.clip(action + xp.clip(scale * noise, -noise_clip, noise_clip), low, high)
