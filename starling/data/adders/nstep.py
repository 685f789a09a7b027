"""n-step transitions from a vector of environments.

An item says: from ``obs`` the ``action`` was taken, Σ γ^k r_k was earned over up to n steps, and ``next_obs``
followed, whose value counts with ``discount``: γ^n, less steps where the episode ended, 0 where it terminated. A
truncated episode keeps its discount and has its true final observation as ``next_obs``.

With NumPy alone: actors that send what they gather import nothing that compiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from starling.core.errors import ConfigError
from starling.core.spaces import Dict, Float, Space
from starling.data.adders.base import VERSION, VERSION_SPACE, Adder, Priority, VectorStep, as_sinks, saved_leaves
from starling.data.adders.steps import Leaves, Sink
from starling.data.untrusted import Untrusted

__all__ = ["NStepAdder", "TransitionAdder", "transition_signature"]

NEEDED = ("obs", "action", "reward", "discount", "next_obs")
COMPUTED = ("reward", "discount", "next_obs", VERSION)  # the rest of an item is that of its first step


def transition_signature(obs: Space, action: Space, version: bool = False, **extras: Space) -> Dict:
    """The signature of transitions: obs, action, reward, discount, next_obs and the extras.

    ``version`` adds the version of the weights that took the item's action.
    """
    tail = {VERSION: VERSION_SPACE} if version else {}
    steps = {"obs": obs, "action": action, "reward": Float(()), "discount": Float(()), "next_obs": obs}
    return Dict({**steps, **extras, **tail})


class _Windows:
    """The n-step windows that are open in each of B environments: one for each of the last n steps at most.

    Steps lie in a ring of n · B places: that of ``age`` vector steps ago in row (newest − age) mod n, for all
    environments alike.
    """

    def __init__(self, num_envs: int, n: int, gamma: float) -> None:
        self.num_envs, self.n = num_envs, n
        self.powers = gamma ** np.arange(n + 1, dtype=np.float64)  # [n + 1]
        self.returns = np.zeros(n * num_envs)  # [n · B] what each window has earned
        self.open = np.zeros(num_envs, np.int64)  # [B] windows that wait for the next step: n − 1, fewer after a start
        self.newest = n - 1  # row
        self.calm = 0  # vector steps since an episode ended: from n − 1 on, every environment has n − 1 windows open
        ages = (np.arange(n)[:, None] - np.arange(n)) % n
        self._factors = self.powers[ages][:, :, None]  # [newest, row, 1] γ^age
        self._reward, self._earned = np.zeros(num_envs), np.zeros((n, num_envs))
        self._ages = np.arange(n)[::-1]  # the oldest window first

    def row(self, number: int) -> slice:
        """The places of a row."""
        return slice(number * self.num_envs, (number + 1) * self.num_envs)

    def advance(self, reward: np.ndarray) -> slice:
        """Give the row of the oldest step to a new one and add its reward to every window; returns the places."""
        self.newest = (self.newest + 1) % self.n
        places = self.row(self.newest)
        self._reward[:] = reward
        self.returns[places] = 0.0
        self.returns += np.multiply(self._factors[self.newest], self._reward, out=self._earned).reshape(-1)
        return places

    def close(self) -> tuple[np.ndarray | None, slice | np.ndarray]:
        """Close the windows of n steps, no episode having ended: environments (None: all of them) and places."""
        oldest = self.row((self.newest + 1) % self.n)
        if self.calm >= self.n - 1:
            return None, oldest
        self.calm += 1
        env = (self.open == self.n - 1).nonzero()[0]
        np.minimum(self.open + 1, self.n - 1, out=self.open)
        return env, oldest.start + env

    def close_ended(self, ended: np.ndarray, valid: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Close the windows of n steps, and all where an episode ended: environments, places and lengths.

        They come in the order of the environments, the oldest first.
        """
        self.calm = 0
        count = self.open + (1 if valid is None else valid)
        closed = self._ages < count[:, None]  # [B, n]
        closed[:, 1:] &= ended[:, None]
        if valid is not None:
            closed[~valid] = False
        env, which = closed.nonzero()
        self.open = np.where(ended, 0, np.minimum(count, self.n - 1))
        age = self._ages.take(which)
        return env, (self.newest - age) % self.n * self.num_envs + env, age + 1


class NStepAdder(Adder):
    """Turns vector steps into n-step items and inserts them as soon as they are complete.

    adder = NStepAdder(table, num_envs=8, n=3, gamma=0.99)
    adder.add(obs, action, {"log_prob": ...}, reward, terminated, truncated, next_obs, final_obs, valid)
    """

    def __init__(
        self,
        sinks: Sink | Sequence[Sink],
        num_envs: int,
        n: int = 1,
        gamma: float = 0.99,
        *,
        priority: Priority | None = None,
    ) -> None:
        if n < 1 or num_envs < 1:
            raise ConfigError(f"n={n}, num_envs={num_envs}; both are at least 1.")
        if not 0 <= gamma <= 1:
            raise ConfigError(f"gamma={gamma}; a discount factor lies between 0 and 1.")
        each = as_sinks(sinks, NEEDED, "transition_signature")
        spaces = each[0].signature.spaces
        taken = {name: space for name, space in spaces.items() if name not in COMPUTED}
        Adder.__init__(self, each, num_envs, taken, n + 1, priority)
        self.n, self.gamma = n, gamma
        self._windows = _Windows(num_envs, n, gamma)
        self._pending = {  # the first step of each open window; one step needs none
            name: [np.zeros((n * num_envs, *leaf.shape), leaf.numpy_dtype) for leaf in leaves]
            for name, leaves in (self._kept.items() if n > 1 else ())
        }
        self._whole = np.full(num_envs, self._windows.powers[n], np.float32)  # the discount of windows of n steps
        self._none = np.zeros(num_envs, np.bool_)

    def _take_in(self, step: VectorStep) -> int:
        if self.n > 1:
            parts = self._close_windows(step)
        else:
            discount = self._whole if step.ended is None else np.where(step.terminated, np.float32(0), self._whole)
            facts = {"reward": [np.asarray(step.reward, np.float32)], "discount": [discount]}
            parts = {**step.given, **facts, "next_obs": step.following}
            if step.valid is not None:
                env = step.valid.nonzero()[0]
                parts = {name: [leaf.take(env, 0) for leaf in leaves] for name, leaves in parts.items()}
        items = len(parts["reward"][0])
        if items:
            self._deliver(parts, items)
        return items

    def _close_windows(self, step: VectorStep) -> dict[str, Leaves]:
        """Store the step, and return the parts of the items that it completes."""
        given, following, reward, terminated, _, ended, valid = step
        windows = self._windows
        places = windows.advance(reward if valid is None else np.where(valid, reward, 0.0))
        for name, leaves in given.items():
            for pending, leaf in zip(self._pending[name], leaves):
                pending[places] = leaf
        if valid is not None:
            self._hold_back(valid)
        env: np.ndarray | None
        closed: slice | np.ndarray
        if ended is None and valid is None:
            env, closed = windows.close()
            discount = self._whole if env is None else self._whole[: env.size]
        else:
            env, closed, length = windows.close_ended(self._none if ended is None else ended, valid)
            discount = np.where(terminated[env], 0.0, windows.powers[length]).astype(np.float32)
        parts = {name: [_taken(leaf, closed) for leaf in self._pending[name]] for name in given}
        parts["next_obs"] = following if env is None else [leaf.take(env, 0) for leaf in following]
        parts["reward"] = [_taken(windows.returns, closed).astype(np.float32)]
        parts["discount"] = [discount]
        return parts

    def _hold_back(self, valid: np.ndarray) -> None:
        """Move the open windows of environments that made no step on by a row: the ring turns for all of them."""
        windows = self._windows
        late = (~valid & (windows.open > 0)).nonzero()[0]
        if late.size:
            rows = [(windows.newest - age) % self.n * self.num_envs + late for age in range(self.n)]
            for ring in (windows.returns, *(leaf for leaves in self._pending.values() for leaf in leaves)):
                for to, of in pairwise(rows):
                    ring[to] = ring[of]

    def _unfinished(self) -> dict[str, Any]:
        windows = self._windows
        return {
            "returns": windows.returns.reshape(self.n, -1).copy(),
            "open": windows.open.copy(),
            "newest": windows.newest,
            "pending": {k: {str(i): leaf.copy() for i, leaf in enumerate(v)} for k, v in self._pending.items()},
        }

    def _checked(self, saved: Untrusted) -> dict[str, Any]:
        returns = saved.array("returns", (self.n, self.num_envs), np.float64)
        newest = saved.integer("newest", 0, self.n - 1)
        count = saved.array("open", (self.num_envs,), np.int64, 0, self.n - 1)
        pending = saved_leaves(saved.part("pending"), self._pending)
        if pending:
            age = (newest - np.arange(self.n)[:, None]) % self.n  # [n, 1] of each row
            self._check_frames(saved, pending["obs"], (age < count).reshape(-1))
        return {"returns": returns, "newest": newest, "open": count, "pending": pending}

    def _resume(self, unfinished: dict[str, Any]) -> None:
        windows = self._windows
        windows.returns[:], windows.open[:] = unfinished["returns"].reshape(-1), unfinished["open"]
        windows.newest, windows.calm = unfinished["newest"], 0
        for name, leaves in self._pending.items():
            for leaf, saved in zip(leaves, unfinished["pending"][name]):
                leaf[...] = saved


def _taken(ring: np.ndarray, places: slice | np.ndarray) -> np.ndarray:
    """These places of a ring: a view of a whole row, or copies, for which ``take`` is the fastest way."""
    return ring[places] if isinstance(places, slice) else ring.take(places, 0)


def TransitionAdder(
    sinks: Sink | Sequence[Sink],
    num_envs: int,
    gamma: float = 0.99,
    *,
    priority: Priority | None = None,
) -> NStepAdder:
    """One-step transitions: an n-step adder with n = 1."""
    return NStepAdder(sinks, num_envs, 1, gamma, priority=priority)
