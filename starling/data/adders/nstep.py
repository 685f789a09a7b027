"""n-step transitions from a vector of environments.

An item says: from ``obs`` the ``action`` was taken, Σ γ^k r_k was earned over up to n steps, and ``next_obs``
followed, whose value counts with ``discount``: γ^n, less steps where the episode ended, 0 where it terminated. A
truncated episode keeps its discount and has its true final observation as ``next_obs``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from starling.core.errors import ConfigError, DataError
from starling.core.spaces import Dict, Float, Space
from starling.data.adders.steps import NO_FINAL, ORIGIN, ORIGIN_SPACE, Intake, Leaves, Priority, Sink, as_sinks

__all__ = ["NStepAdder", "TransitionAdder", "transition_signature"]

NEEDED = ("obs", "action", "reward", "discount", "next_obs")


def transition_signature(obs: Space, action: Space, origin: bool = False, **extras: Space) -> Dict:
    """The signature of transitions: obs, action, reward, discount, next_obs and the extras.

    ``origin`` adds three integers to each item: the version of the weights that acted, the actor, and the number of
    the step among all that actor's steps.
    """
    tail = {ORIGIN: ORIGIN_SPACE} if origin else {}
    steps = {"obs": obs, "action": action, "reward": Float(()), "discount": Float(()), "next_obs": obs}
    return Dict({**steps, **extras, **tail})


@njit(cache=True, nogil=True)
def _plan(  # type: ignore[no-untyped-def]
    count, head, rewards, reward, terminated, truncated, valid, has_final, powers,
    push, env, at, total, discount, ended,
):  # fmt: skip
    """Note the step's rewards and list the items that are now complete, each environment's oldest first.

    ``push[b]`` is the row for environment b's step among all pending ones, −1 where there was no step. Item i of
    environment ``env[i]`` started at the pending row ``at[i]``. Returns the number of items, and of those at episode
    ends; −1 where an episode ended without a final observation, and then nothing is changed.
    """
    n = rewards.shape[1]
    if not has_final:
        for b in range(count.size):
            if valid[b] and (terminated[b] or truncated[b]):
                return -1, 0
    items = 0
    ends = 0
    for b in range(count.size):
        if not valid[b]:
            push[b] = -1
            continue
        place = (head[b] + count[b]) % n
        push[b] = b * n + place
        rewards[b, place] = reward[b]
        count[b] += 1
        over = terminated[b] or truncated[b]
        complete = count[b] if over else (1 if count[b] == n else 0)
        for k in range(complete):
            steps = count[b] - k
            earned = 0.0
            for j in range(steps):
                earned += powers[j] * rewards[b, (head[b] + k + j) % n]
            env[items] = b
            at[items] = b * n + (head[b] + k) % n
            total[items] = earned
            discount[items] = 0.0 if terminated[b] else powers[steps]
            ended[items] = over
            items += 1
        if over:
            head[b] = count[b] = 0
            ends += complete
        elif complete:
            head[b] = (head[b] + 1) % n
            count[b] -= 1
    return items, ends


class NStepAdder:
    """Turns vector steps into n-step items and inserts them as soon as they are complete.

        adder = NStepAdder(table, num_envs=8, n=3, gamma=0.99)
        adder.add(obs, action, {"log_prob": ...}, reward, terminated, truncated, next_obs, final_obs, valid)

    ``priority`` computes initial priorities from a batch of complete items (Ape-X). Several sinks receive the same
    items. ``version`` is written into the items' origin unless the extras bring a ``version`` of their own.
    """

    def __init__(
        self,
        sinks: Sink | Sequence[Sink],
        num_envs: int,
        n: int = 1,
        gamma: float = 0.99,
        *,
        priority: Priority | None = None,
        actor: int = 0,
    ) -> None:
        if n < 1 or num_envs < 1:
            raise ConfigError(f"n={n}, num_envs={num_envs}; both are at least 1.")
        if not 0 <= gamma <= 1:
            raise ConfigError(f"gamma={gamma}; a discount factor lies between 0 and 1.")
        each = as_sinks(sinks, NEEDED, "transition_signature")
        self.signature = each[0].signature
        self.num_envs, self.n, self.gamma = num_envs, n, gamma
        spaces = self.signature.spaces
        extras = [name for name in spaces if name not in (*NEEDED, ORIGIN)]
        taken = {name: spaces[name] for name in ("obs", "action", *extras)}
        self._intake = Intake(each, num_envs, taken, n + 1, priority, actor)
        self._pending = {
            k: [np.zeros((num_envs * n, *leaf.shape), leaf.numpy_dtype) for leaf in leaves]
            for k, leaves in self._intake.kept.items()
        }
        self._count = np.zeros(num_envs, np.int64)
        self._head = np.zeros(num_envs, np.int64)
        self._rewards = np.zeros((num_envs, n))
        self._powers = gamma ** np.arange(n + 1, dtype=np.float64)
        self._all = np.ones(num_envs, np.bool_)
        self._push = np.empty(num_envs, np.int64)
        self._env, self._at = (np.empty(num_envs * n, np.int64) for _ in range(2))
        self._total, self._discount = (np.empty(num_envs * n, np.float32) for _ in range(2))
        self._ended = np.empty(num_envs * n, np.bool_)

    @property
    def version(self) -> int:
        """The version of the weights that now act; set it where the extras bring none."""
        return self._intake.version

    @version.setter
    def version(self, version: int) -> None:
        self._intake.version = version

    def add(
        self,
        obs: Any,
        action: Any,
        extras: Any,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        next_obs: Any,
        final_obs: Any = None,
        valid: np.ndarray | None = None,
    ) -> int:
        """Take one vector step; returns how many items it completed."""
        intake = self._intake
        now, after, finals, given = intake.read(obs, action, extras, next_obs, final_obs)
        items, ends = _plan(
            self._count, self._head, self._rewards, reward, terminated, truncated,
            self._all if valid is None else valid, finals is not None, self._powers,
            self._push, self._env, self._at, self._total, self._discount, self._ended,
        )  # fmt: skip
        if items < 0:
            raise DataError(NO_FINAL)
        if intake.sharing is not None:
            ended = (terminated | truncated) & (self._push >= 0)
            now, after, finals = intake.sharing.intern(now, after, finals, ended)
        given["obs"] = now
        if intake.origins is not None:
            given[ORIGIN] = [intake.origins.number(extras, valid)]
        if self.n > 1:
            self._store(given, valid)
        if not items:
            return 0
        env = self._env[:items]
        straight = items == self.num_envs and self.n == 1  # each row is its own item: nothing to rearrange
        parts = given if straight else self._complete(given, env, items)
        parts["next_obs"] = self._successors(after, finals, env, items, ends)
        parts["reward"], parts["discount"] = [self._total[:items]], [self._discount[:items]]
        intake.deliver(parts, items)
        return items

    def _store(self, given: dict[str, Leaves], valid: np.ndarray | None) -> None:
        """Keep the step among the pending ones."""
        push = self._push
        if self.num_envs == 1:
            row = push[0]
            if row >= 0:
                for name, leaves in given.items():
                    for pending, leaf in zip(self._pending[name], leaves):
                        pending[row] = leaf[0]
            return
        some = None if valid is None or valid.all() else np.flatnonzero(valid)
        for name, leaves in given.items():
            for pending, leaf in zip(self._pending[name], leaves):
                if some is None:
                    pending[push] = leaf
                else:
                    pending[push[some]] = leaf[some]

    def _complete(self, given: dict[str, Leaves], env: np.ndarray, items: int) -> dict[str, Leaves]:
        """The first step of each complete item."""
        if self.n == 1:
            return {name: [leaf[env] for leaf in leaves] for name, leaves in given.items()}
        if items == 1:
            row = self._at[0]
            return {name: [leaf[row : row + 1] for leaf in self._pending[name]] for name in given}
        at = self._at[:items]
        return {name: [leaf[at] for leaf in self._pending[name]] for name in given}

    def _successors(self, following: Leaves, finals: Leaves | None, env: np.ndarray, items: int, ends: int) -> Leaves:
        """What followed each item: the next observation, or the final one where the episode ended."""
        if finals is None or not ends:
            return following if items == self.num_envs else [leaf[env] for leaf in following]
        if ends == items:
            return [leaf[env] for leaf in finals]
        ended = self._ended[:items]
        rows = [leaf[env] for leaf in following]
        for row, final in zip(rows, finals):
            row[ended] = final[env[ended]]
        return rows

    def state(self) -> dict[str, Any]:
        """Pending steps and counters, as a tree of arrays and numbers (copies)."""
        return {
            "count": self._count.copy(),
            "head": self._head.copy(),
            "rewards": self._rewards.copy(),
            "pending": {k: {str(i): leaf.copy() for i, leaf in enumerate(v)} for k, v in self._pending.items()},
            **self._intake.state(),
        }

    def restore(self, state: Any) -> None:
        """Continue from ``state()`` of an adder with the same environments, n and signature."""
        rewards = np.asarray(state["rewards"])
        if rewards.shape != self._rewards.shape:
            raise DataError(
                f"the state is of {rewards.shape[0]} environments and n={rewards.shape[1]}; this adder has "
                f"{self.num_envs} and n={self.n}."
            )
        self._count[:], self._head[:], self._rewards[:] = state["count"], state["head"], rewards
        for name, leaves in self._pending.items():
            for i, leaf in enumerate(leaves):
                leaf[...] = state["pending"][name][str(i)]
        self._intake.restore(state)


def TransitionAdder(
    sinks: Sink | Sequence[Sink],
    num_envs: int,
    gamma: float = 0.99,
    *,
    priority: Priority | None = None,
    actor: int = 0,
) -> NStepAdder:
    """One-step transitions: an n-step adder with n = 1."""
    return NStepAdder(sinks, num_envs, 1, gamma, priority=priority, actor=actor)
