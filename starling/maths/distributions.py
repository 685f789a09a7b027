"""Policies as values: what a network's outputs say about actions.

A distribution holds arrays and draws nothing itself: ``sample`` takes the noise as an array of ``noise_shape``,
uniform in [0, 1) or standard normal as ``noise_kind`` says. Leading axes are the batch; log-probabilities, entropies
and divergences have one number per batch element. Discrete actions are int32.

    policy = Categorical(logits, mask)                       # [B, A], [B, A]
    action, log_prob = policy.sample_with_log_prob(noise)    # [B], [B]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starling.backends import ops

__all__ = ["Bernoulli", "Categorical", "Distribution", "MultiDiscrete", "masked"]

MASKED = -1e9  # finite, so that nothing becomes nan, and far enough down that exp gives exactly zero


def masked(logits: Any, mask: Any) -> Any:
    """The logits with those of the actions whose ``mask`` is false far below all others; ``None`` masks nothing."""
    return logits if mask is None else ops(logits).where(mask, logits, MASKED)


class Distribution(ABC):
    """Actions and their probabilities."""

    noise_kind: str  # "uniform" in [0, 1), or "normal"

    @property
    @abstractmethod
    def noise_shape(self) -> tuple[int, ...]:
        """The shape of the noise of one sample."""

    @abstractmethod
    def sample(self, noise: Any) -> Any:
        """The action that ``noise`` stands for."""

    @abstractmethod
    def sample_with_log_prob(self, noise: Any) -> tuple[Any, Any]:
        """``sample`` and its ``log_prob``, sharing their work."""

    @abstractmethod
    def mode(self) -> Any:
        """The greedy action."""

    @abstractmethod
    def log_prob(self, action: Any) -> Any:
        """log π(action)."""

    @abstractmethod
    def entropy(self) -> Any:
        """−E[log π]."""

    @abstractmethod
    def kl(self, other: Any) -> Any:
        """E[log π − log π'] against another of the same kind."""


@dataclass(frozen=True, eq=False)
class Categorical(Distribution):
    """One of A actions, from logits [..., A]; a false ``mask`` [..., A] makes an action impossible."""

    logits: Any
    mask: Any = None

    noise_kind = "uniform"

    @property
    def noise_shape(self) -> tuple[int, ...]:
        return tuple(self.logits.shape[:-1])

    def log_probs(self) -> Any:
        """log π of every action, [..., A]; impossible ones get a large negative number, not −∞."""
        return ops(self.logits).log_softmax(masked(self.logits, self.mask))

    def sample(self, noise: Any) -> Any:
        return self._draw(noise)[0]

    def sample_with_log_prob(self, noise: Any) -> tuple[Any, Any]:
        xp = ops(self.logits)
        action, shifted, total = self._draw(noise)
        return action, xp.take_along(shifted, action) - xp.log(total)

    def mode(self) -> Any:
        xp = ops(self.logits)
        return xp.astype(xp.argmax(masked(self.logits, self.mask), axis=-1), xp.int32)

    def log_prob(self, action: Any) -> Any:
        return ops(self.logits).take_along(self.log_probs(), action)

    def entropy(self) -> Any:
        xp = ops(self.logits)
        log_p = self.log_probs()
        return -xp.sum(xp.exp(log_p) * log_p, axis=-1)

    def kl(self, other: Categorical) -> Any:
        xp = ops(self.logits)
        log_p = self.log_probs()
        return xp.sum(xp.exp(log_p) * (log_p - other.log_probs()), axis=-1)

    def _draw(self, noise: Any) -> tuple[Any, Any, Any]:
        """Invert the cumulative distribution: action [...], logits less their maximum [..., A], Σ exp of those [...].

        The action is the number of cumulative weights at or below noise · total: a weight of zero is stepped over
        even at noise 0, and leaving the last one out of the count keeps the action below A at the other end.
        """
        xp = ops(self.logits)
        logits = masked(self.logits, self.mask)
        shifted = logits - xp.max(logits, axis=-1, keepdims=True)
        cumulative = xp.cumulative_sum(xp.exp(shifted), axis=-1)  # [..., A], not normalised
        total = cumulative[..., -1]  # [...]
        below = cumulative[..., :-1] <= (noise * total)[..., None]  # [..., A-1]
        action = xp.sum(xp.astype(below, xp.int32), axis=-1, dtype=xp.int32)
        if self.mask is not None:
            # A sum in another order may differ in its last bit and let the draw fall past the last possible action.
            likeliest = xp.astype(xp.argmax(shifted, axis=-1), xp.int32)
            action = xp.where(xp.take_along(shifted, action) > 0.5 * MASKED, action, likeliest)
        return action, shifted, total


@dataclass(frozen=True, eq=False)
class MultiDiscrete(Distribution):
    """Several independent choices: actions [..., K], one Categorical each."""

    parts: tuple[Categorical, ...]

    noise_kind = "uniform"

    @classmethod
    def split(cls, logits: Any, sizes: Sequence[int], mask: Any = None) -> MultiDiscrete:
        """From all logits (and masks) side by side, [..., sum(sizes)]."""
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        cuts = [slice(end - size, end) for end, size in zip(ends, sizes)]
        return cls(tuple(Categorical(logits[..., c], None if mask is None else mask[..., c]) for c in cuts))

    @property
    def noise_shape(self) -> tuple[int, ...]:
        return (*self.parts[0].noise_shape, len(self.parts))

    def sample(self, noise: Any) -> Any:
        return ops(noise).stack([part.sample(noise[..., k]) for k, part in enumerate(self.parts)], axis=-1)

    def sample_with_log_prob(self, noise: Any) -> tuple[Any, Any]:
        drawn = [part.sample_with_log_prob(noise[..., k]) for k, part in enumerate(self.parts)]
        return ops(noise).stack([action for action, _ in drawn], axis=-1), sum(log_prob for _, log_prob in drawn)

    def mode(self) -> Any:
        return ops(self.parts[0].logits).stack([part.mode() for part in self.parts], axis=-1)

    def log_prob(self, action: Any) -> Any:
        return sum(part.log_prob(action[..., k]) for k, part in enumerate(self.parts))

    def entropy(self) -> Any:
        return sum(part.entropy() for part in self.parts)

    def kl(self, other: MultiDiscrete) -> Any:
        return sum(mine.kl(its) for mine, its in zip(self.parts, other.parts))


@dataclass(frozen=True, eq=False)
class Bernoulli(Distribution):
    """D independent switches, from logits [..., D]: actions [..., D] of zeros and ones."""

    logits: Any

    noise_kind = "uniform"

    @property
    def noise_shape(self) -> tuple[int, ...]:
        return tuple(self.logits.shape)

    def probs(self) -> Any:
        """P(1) = 1 / (1 + exp(−logit)), [..., D]."""
        xp = ops(self.logits)
        return xp.exp(-xp.softplus(-self.logits))

    def sample(self, noise: Any) -> Any:
        return ops(noise).astype(noise < self.probs(), ops(noise).int32)

    def sample_with_log_prob(self, noise: Any) -> tuple[Any, Any]:
        action = self.sample(noise)
        return action, self.log_prob(action)

    def mode(self) -> Any:
        xp = ops(self.logits)
        return xp.astype(self.logits > 0.0, xp.int32)

    def log_prob(self, action: Any) -> Any:
        xp = ops(self.logits)
        return xp.sum(xp.astype(action, self.logits.dtype) * self.logits - xp.softplus(self.logits), axis=-1)

    def entropy(self) -> Any:
        xp = ops(self.logits)
        return xp.sum(xp.softplus(self.logits) - self.probs() * self.logits, axis=-1)

    def kl(self, other: Bernoulli) -> Any:
        xp = ops(self.logits)
        apart = self.probs() * (self.logits - other.logits)
        return xp.sum(apart - xp.softplus(self.logits) + xp.softplus(other.logits), axis=-1)
