"""Distributional value learning: returns as histograms (C51) or as quantiles (QR-DQN, IQN).

A histogram is logits over N evenly spaced atoms, a quantile function N values; with actions, [B, A, N].
"""

from __future__ import annotations

from typing import Any

from starling.backends import ops
from starling.maths.td import huber

__all__ = [
    "categorical_loss",
    "categorical_projection",
    "categorical_q_loss",
    "categorical_value",
    "of_action",
    "quantile_loss",
    "quantile_midpoints",
    "quantile_q_loss",
]


def of_action(x: Any, action: Any) -> Any:
    """x[..., action, :]: [..., A, N] and [...] give [..., N]."""
    xp = ops(x)
    chosen = xp.one_hot(action, x.shape[-2])  # [..., A]
    return xp.sum(chosen[..., None] * x, axis=-2)


def categorical_value(logits: Any, atoms: Any) -> Any:
    """The mean Σ_i p_i · z_i of a histogram [..., N]."""
    xp = ops(logits)
    return xp.sum(xp.exp(xp.log_softmax(logits)) * atoms, axis=-1)  # [...]


def categorical_projection(z: Any, probs: Any, atoms: Any) -> Any:
    """Probabilities at any places ``z`` [..., M] shared out between the nearest ``atoms`` [N]: [..., N].

    Each place gives its atoms 1 − |z − atom| / spacing, and those beyond the ends all to the last atom.
    """
    xp = ops(probs)
    spacing = atoms[1] - atoms[0]
    z = xp.minimum(xp.maximum(z, atoms[0]), atoms[-1])  # [..., M]
    distance = xp.abs(z[..., None, :] - atoms[:, None]) / spacing  # [..., N, M]
    share = xp.maximum(1.0 - distance, 0.0)
    return xp.sum(share * probs[..., None, :], axis=-1)  # [..., N]


def categorical_loss(logits_tm1: Any, r_t: Any, discount_t: Any, logits_t: Any, atoms: Any) -> Any:
    """Cross-entropy of logits_tm1 [B, N] against the histogram of r_t + discount_t · Z_t put on the atoms."""
    xp = ops(logits_tm1)
    z = r_t[..., None] + discount_t[..., None] * atoms  # [B, N]
    target = categorical_projection(z, xp.exp(xp.log_softmax(logits_t)), atoms)  # [B, N]
    return -xp.sum(xp.stop_gradient(target) * xp.log_softmax(logits_tm1), axis=-1)  # [B]


def categorical_q_loss(
    logits_tm1: Any, a_tm1: Any, r_t: Any, discount_t: Any, logits_t: Any, atoms: Any, q_t_selector: Any = None
) -> Any:
    """``categorical_loss`` for the action taken and the best next one, as ``q_t_selector`` [B, A] sees it if given."""
    xp = ops(logits_tm1)
    q_t = categorical_value(logits_t, atoms) if q_t_selector is None else q_t_selector  # [B, A]
    best_t = xp.argmax(q_t, axis=-1)  # [B]
    return categorical_loss(of_action(logits_tm1, a_tm1), r_t, discount_t, of_action(logits_t, best_t), atoms)


def quantile_midpoints(quantiles: Any) -> Any:
    """τ_i = (i + ½) / N, in the shape of ``quantiles`` [..., N]."""
    xp = ops(quantiles)
    return (xp.cumulative_sum(xp.ones_like(quantiles), axis=-1) - 0.5) / quantiles.shape[-1]


def quantile_loss(quantiles: Any, tau: Any, target: Any, kappa: float = 1.0) -> Any:
    """Σ_i mean_j |τ_i − 1{δ_ij < 0}| · huber_κ(δ_ij) / κ, with δ_ij = target_j − quantile_i; κ = 0 takes |δ|.

    ``quantiles`` and ``tau`` are [B, N], ``target`` [B, M].
    """
    xp = ops(quantiles)
    delta = xp.stop_gradient(target)[..., None, :] - quantiles[..., :, None]  # [B, N, M]
    weight = xp.abs(tau[..., :, None] - xp.astype(delta < 0.0, quantiles.dtype))
    size = huber(delta, kappa) / kappa if kappa > 0.0 else xp.abs(delta)
    return xp.sum(xp.mean(xp.stop_gradient(weight) * size, axis=-1), axis=-1)  # [B]


def quantile_q_loss(
    quantiles_tm1: Any,
    tau_tm1: Any,
    a_tm1: Any,
    r_t: Any,
    discount_t: Any,
    quantiles_t: Any,
    q_t_selector: Any = None,
    kappa: float = 1.0,
) -> Any:
    """``quantile_loss`` for the action taken, against r_t + discount_t · the quantiles of the best next one.

    ``quantiles_tm1`` [B, A, N] stand at ``tau_tm1`` [B, N]; ``quantiles_t`` [B, A, M] may be others in number.
    """
    xp = ops(quantiles_tm1)
    q_t = xp.mean(quantiles_t, axis=-1) if q_t_selector is None else q_t_selector  # [B, A]
    best_t = of_action(quantiles_t, xp.argmax(q_t, axis=-1))  # [B, M]
    target = r_t[..., None] + discount_t[..., None] * best_t  # [B, M]
    return quantile_loss(of_action(quantiles_tm1, a_tm1), tau_tm1, target, kappa)
