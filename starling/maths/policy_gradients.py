"""Losses of policies and of their value functions.

A loss comes back per element, to be weighed and averaged by the caller: ``xp.mean(loss)``. No gradient flows
through advantages, old log-probabilities or targets.
"""

from __future__ import annotations

import math
from typing import Any

from starling.backends import ops

__all__ = [
    "adaptive_kl_coefficient",
    "advantage_weighted_loss",
    "approximate_kl",
    "clipped_value_loss",
    "entropy_coefficient_loss",
    "entropy_loss",
    "kl_penalty_loss",
    "policy_gradient_loss",
    "ppo_clip_fraction",
    "ppo_clip_loss",
    "soft_policy_loss",
    "value_loss",
]


def policy_gradient_loss(log_prob: Any, advantage: Any) -> Any:
    """−log π(a) · A."""
    return -log_prob * ops(log_prob).stop_gradient(advantage)  # [B]


def ppo_clip_loss(log_prob: Any, log_prob_old: Any, advantage: Any, epsilon: Any = 0.2) -> Any:
    """−min(ρ · A, clip(ρ, 1 − ε, 1 + ε) · A), with ρ = π(a) / π_old(a)."""
    xp = ops(log_prob)
    advantage = xp.stop_gradient(advantage)
    ratio = xp.exp(log_prob - xp.stop_gradient(log_prob_old))  # [B]
    return -xp.minimum(ratio * advantage, xp.clip(ratio, 1.0 - epsilon, 1.0 + epsilon) * advantage)  # [B]


def ppo_clip_fraction(log_prob: Any, log_prob_old: Any, epsilon: Any = 0.2) -> Any:
    """1 where the ratio left [1 − ε, 1 + ε], 0 elsewhere: a diagnostic to average."""
    xp = ops(log_prob)
    ratio = xp.exp(log_prob - log_prob_old)
    return xp.astype(xp.abs(ratio - 1.0) > epsilon, log_prob.dtype)  # [B]


def approximate_kl(log_prob: Any, log_prob_old: Any) -> Any:
    """ρ − 1 − log ρ: from samples of the old policy an unbiased KL(π_old ‖ π), never negative."""
    xp = ops(log_prob)
    log_ratio = log_prob - log_prob_old
    return xp.expm1(log_ratio) - log_ratio  # [B]


def kl_penalty_loss(log_prob: Any, log_prob_old: Any, advantage: Any, kl: Any, coefficient: Any) -> Any:
    """−ρ · A + β · KL(π_old ‖ π): the PPO that does not clip."""
    xp = ops(log_prob)
    ratio = xp.exp(log_prob - xp.stop_gradient(log_prob_old))  # [B]
    return coefficient * kl - ratio * xp.stop_gradient(advantage)  # [B]


def adaptive_kl_coefficient(coefficient: Any, kl: Any, target: float, band: float = 1.5, factor: float = 2.0) -> Any:
    """β · factor where KL > band · target, β / factor where KL < target / band, β between."""
    xp = ops(kl)
    up = xp.where(kl > band * target, factor, xp.ones_like(kl))
    return coefficient * xp.where(kl < target / band, 1.0 / factor, up)


def entropy_loss(entropy: Any, coefficient: Any) -> Any:
    """−coefficient · H: a bonus for keeping options open."""
    return -coefficient * entropy  # [B]


def value_loss(value: Any, target: Any) -> Any:
    """½ · (v − target)²."""
    xp = ops(value)
    return 0.5 * xp.square(value - xp.stop_gradient(target))  # [B]


def clipped_value_loss(value: Any, value_old: Any, target: Any, epsilon: Any) -> Any:
    """½ · max((v − target)², (v_old + clip(v − v_old, ±ε) − target)²)."""
    xp = ops(value)
    value_old, target = xp.stop_gradient(value_old), xp.stop_gradient(target)
    near = value_old + xp.clip(value - value_old, -epsilon, epsilon)  # [B]
    return 0.5 * xp.maximum(xp.square(value - target), xp.square(near - target))  # [B]


def soft_policy_loss(q: Any, log_prob: Any, temperature: Any) -> Any:
    """temperature · log π(a) − q(a), for an action the policy drew: SAC; at temperature 0, deterministic gradients."""
    return ops(q).stop_gradient(temperature) * log_prob - q  # [B]


def entropy_coefficient_loss(log_temperature: Any, log_prob: Any, target_entropy: float) -> Any:
    """−exp(log_temperature) · (log π(a) + target_entropy): the temperature falls while entropy is above its target."""
    xp = ops(log_prob)
    return -xp.exp(log_temperature) * xp.stop_gradient(log_prob + target_entropy)  # [B]


def advantage_weighted_loss(log_prob: Any, advantage: Any, temperature: float = 1.0, max_weight: float = 20.0) -> Any:
    """−min(exp(A / temperature), max_weight) · log π(a): imitate the actions that did well."""
    xp = ops(log_prob)
    # The bound goes on the exponent, so that nothing overflows.
    weight = xp.exp(xp.minimum(xp.stop_gradient(advantage) / temperature, math.log(max_weight)))  # [B]
    return -weight * log_prob  # [B]
