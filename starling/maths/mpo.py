"""MPO and V-MPO: the E-step's weights, the M-step's losses, and the duals that hold their constraints.

The temperature η and the multipliers α are learnt: each loss below that takes one has its gradient towards the value
that meets the constraint ε. ``positive`` keeps them above zero. Losses come back per batch element.
"""

from __future__ import annotations

import math
from typing import Any

from starling.backends import ops
from starling.maths.gaussians import Gaussian

__all__ = [
    "categorical_e_step",
    "constraint_losses",
    "decoupled_gaussian_kl",
    "decoupled_gaussian_policy_loss",
    "positive",
    "sampled_e_step",
    "top_half_e_step",
    "weighted_policy_loss",
]


def positive(dual: Any, floor: float = 1e-8) -> Any:
    """softplus(dual) + floor: a free parameter as a temperature or multiplier."""
    return ops(dual).softplus(dual) + floor


def sampled_e_step(q: Any, temperature: Any, epsilon: float) -> tuple[Any, Any]:
    """From values [S, B] of S sampled actions: their weights softmax(q / η) over S, and the loss of η [B].

    loss = η · (ε + log mean_s exp(q_s / η)), least where the weights are ε away from uniform.
    """
    xp = ops(q)
    scaled = xp.stop_gradient(q) / temperature  # [S, B]
    weights = xp.exp(xp.log_softmax(xp.stop_gradient(scaled), axis=0))
    loss = temperature * (epsilon + xp.logsumexp(scaled, axis=0) - math.log(q.shape[0]))  # [B]
    return weights, loss


def categorical_e_step(q: Any, log_prior: Any, temperature: Any, epsilon: float) -> tuple[Any, Any]:
    """From values [B, A] of all actions and the old policy: weights π_old · exp(q / η), normalised, and η's loss [B].

    loss = η · (ε + log Σ_a π_old(a) · exp(q_a / η)).
    """
    xp = ops(q)
    scaled = xp.stop_gradient(log_prior) + xp.stop_gradient(q) / temperature  # [B, A]
    weights = xp.exp(xp.log_softmax(xp.stop_gradient(scaled)))
    loss = temperature * (epsilon + xp.logsumexp(scaled, axis=-1))  # [B]
    return weights, loss


def top_half_e_step(advantage: Any, temperature: Any, epsilon: float) -> tuple[Any, Any]:
    """V-MPO, from advantages of any shape: weights softmax(A / η) over the better half, and η's loss, a number.

    loss = η · (ε + log mean exp(A / η)) over the better half; the rest weighs nothing.
    """
    xp = ops(advantage)
    advantage = xp.stop_gradient(advantage)
    flat = xp.reshape(advantage, (-1,))  # [T·B]
    half = max(flat.shape[0] // 2, 1)
    least = xp.sort(flat)[flat.shape[0] - half]
    scaled = xp.where(advantage >= least, advantage / temperature, -math.inf)
    total = xp.logsumexp(xp.reshape(scaled, (-1,)), axis=0)
    count = xp.sum(xp.astype(advantage >= least, advantage.dtype))  # more than half where some are equal
    weights = xp.exp(xp.stop_gradient(scaled - total))
    return weights, temperature * (epsilon + total - xp.log(count))


def weighted_policy_loss(weights: Any, log_prob: Any, axis: int = 0) -> Any:
    """−Σ w · log π along ``axis``: 0 for sampled actions [S, B], −1 for all actions [B, A]."""
    xp = ops(log_prob)
    return -xp.sum(xp.stop_gradient(weights) * log_prob, axis=axis)  # [B]


def constraint_losses(kl: Any, alpha: Any, epsilon: float) -> tuple[Any, Any]:
    """(α · KL for the policy, α · (ε − KL) for α): each stops the other's gradient."""
    xp = ops(kl)
    return xp.stop_gradient(alpha) * kl, alpha * (epsilon - xp.stop_gradient(kl))


def decoupled_gaussian_kl(old: Gaussian, new: Gaussian) -> tuple[Any, Any]:
    """KL(old ‖ new) per dimension, [B, D], had only the mean moved, and had only the standard deviation.

    Two constraints: the mean may move quickly while the standard deviation shrinks slowly.
    """
    old = _stopped(old)
    moved, resized = _decoupled(old, new)
    return old.kl_per_dimension(moved), old.kl_per_dimension(resized)


def decoupled_gaussian_policy_loss(weights: Any, actions: Any, old: Gaussian, new: Gaussian) -> Any:
    """−Σ_s w_s · (log N(a_s; μ, σ_old) + log N(a_s; μ_old, σ)); weights [S, B], actions [S, B, D]."""
    moved, resized = _decoupled(_stopped(old), new)
    actions = ops(actions).stop_gradient(actions)
    return weighted_policy_loss(weights, moved.log_prob(actions) + resized.log_prob(actions))  # [B]


def _stopped(policy: Gaussian) -> Gaussian:
    xp = ops(policy.mean)
    return Gaussian(xp.stop_gradient(policy.mean), xp.stop_gradient(policy.log_std))


def _decoupled(old: Gaussian, new: Gaussian) -> tuple[Gaussian, Gaussian]:
    return Gaussian(new.mean, old.log_std), Gaussian(old.mean, new.log_std)
