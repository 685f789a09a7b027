"""One interface to act through, whether the network is here or at an inference server.

    steps = yield from acting.join()                                 # once: how far the run is
    while True:
        yield from acting.refresh()                                  # weights for the next chunk
        acted = yield from acting.act(obs, first, noise, explore)    # [B, …]

``first`` [B] is true where an episode begins: what was remembered of the one before is forgotten.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from starling.algorithms.compiled.policy import Policy, memory_where
from starling.core.effects import Call, Effect, Latest
from starling.core.params import Params, with_scopes
from starling.core.trees import Tree, map_leaves
from starling.envs.ready_rows import ReadyRows
from starling.envs.rows import with_rows
from starling.experience.plan import Acted, Perturbable

__all__ = ["ACT", "JOIN", "VALUES", "Acting", "LocalActing", "ReadyActing", "RemoteActing"]

ACT, VALUES, JOIN = 0, 1, 2  # what a request asks for
Steps = Generator[Effect, Any, Any]
Acts = Generator[Effect, Any, Acted]


class Acting(Perturbable):
    """See the top of this file."""

    @abstractmethod
    def join(self) -> Generator[Effect, Any, int]:
        """Wait for the first weights; the steps that the run has taken before them."""

    @abstractmethod
    def refresh(self) -> Steps:
        """Before a chunk: act with the newest weights; in lockstep, with those that the last chunk led to."""

    @abstractmethod
    def act(self, obs: Tree, first: np.ndarray, noise: np.ndarray, explore: np.ndarray) -> Acts:
        """Choose actions [B, …], and remember."""

    @abstractmethod
    def values(self, obs: Tree) -> Generator[Effect, Any, np.ndarray]:
        """The values of the observations [B] that followed the last actions."""


def awaited(chunk: int, lockstep: int) -> int:
    """The number of the published weights that the ``chunk``-th chunk, counted from 1, is made with at the earliest."""
    return 1 + (chunk - 1) // lockstep if lockstep else 1


class LocalActing(Acting):
    """Acts with a policy of its own; in lockstep, with the weights that its last chunk led to."""

    def __init__(self, policy: Policy, rows: int, lockstep: int = 0) -> None:
        """In ``lockstep`` so many chunks are made with the same weights, then it waits for others; 0: it runs ahead."""
        self.policy, self._lockstep = policy, lockstep
        self._remembers = bool(policy.algorithm.memory.spaces)
        self._memory: Tree = policy.no_memory(rows)
        self._known, self._chunks = 0, 0  # the number of the weights it has, and chunks begun

    def join(self) -> Generator[Effect, Any, int]:
        newest = yield from self._load(1)
        return int(newest["steps"])

    def refresh(self) -> Steps:
        self._chunks += 1
        yield from self._load(awaited(self._chunks, self._lockstep))

    def _load(self, after: int) -> Generator[Effect, Any, Any]:
        newest = yield Latest("weights", after=after, known=self._known)
        if newest.value is not None and newest.number != self._known:
            self._known = newest.number
            self.policy.load(newest.value["params"], newest.version)
        return newest.value

    def perturb(self, change: Callable[[np.ndarray], np.ndarray] | None) -> None:
        self.policy.perturb(change)

    def act(self, obs: Tree, first: np.ndarray, noise: np.ndarray, explore: np.ndarray) -> Acts:
        return self.act_now(obs, first, noise, explore)
        yield

    def act_now(self, obs: Tree, first: np.ndarray, noise: np.ndarray, explore: np.ndarray) -> Acted:
        before = self._memory
        if self._remembers and first.any():
            before = memory_where(before, first)
        choice = self.policy.act(obs, before, noise, explore)
        if self._remembers:
            self._memory = with_scopes(choice.memory, Params)
        return Acted(choice.action, choice.extras, before, self.policy.version)

    def act_in(self, rows: np.ndarray, obs: Tree, first: np.ndarray, noise: np.ndarray, explore: np.ndarray) -> Acted:
        """Act in some rows alone, of all that are given: [rows, …]."""
        whole = self._memory
        obs, self._memory = map_leaves(lambda x: x[rows], (obs, whole))
        acted = self.act_now(obs, first[rows], noise[rows], explore[rows])
        self._memory = with_rows(whole, rows, self._memory)
        return acted

    def values(self, obs: Tree) -> Generator[Effect, Any, np.ndarray]:
        return self.policy.values(obs, self._memory)
        yield

    def state(self) -> Tree:
        """What is remembered."""
        return with_scopes(self._memory, dict)

    def restore(self, state: Tree) -> None:
        self._memory = with_scopes(state, Params)


class ReadyActing(Acting):
    """Acts in the rows that are ready; of those under way, what was chosen last stands. ``extras`` has the version of
    each row's weights."""

    def __init__(self, acting: LocalActing, envs: ReadyRows) -> None:
        self._acting, self._envs = acting, envs
        algorithm, rows = acting.policy.algorithm, envs.count
        action, extras = (x.ranked(batch=True).zeros((rows,)) for x in (algorithm.action_space, algorithm.extras))
        extras["version"] = np.zeros(rows, np.int64)
        self._last = Acted(action, extras, acting.policy.no_memory(rows), 0)
        self._hold, self._turns = algorithm.hold_noise, np.zeros(rows, np.int64)  # turns of each row
        self._noise: Any = None

    def join(self) -> Generator[Effect, Any, int]:
        return self._acting.join()

    def refresh(self) -> Steps:
        return self._acting.refresh()

    def perturb(self, change: Callable[[np.ndarray], np.ndarray] | None) -> None:
        self._acting.perturb(change)

    def act(self, obs: Tree, first: np.ndarray, noise: np.ndarray, explore: np.ndarray) -> Acts:
        ready = self._envs.ready
        anew = ready[self._turns[ready] % self._hold == 0]  # a draw lasts for turns of its row, not of any
        self._noise = noise if self._noise is None else with_rows(self._noise, anew, noise[anew])
        self._turns[ready] += 1
        acted = self._acting.act_in(ready, obs, first, self._noise, explore)
        extras = {**acted.extras, "version": np.full(len(ready), acted.version)}
        action, extras, memory = with_rows(self._last[:3], ready, (acted.action, extras, acted.memory))
        self._last = Acted(action, extras, memory, acted.version)
        return self._last
        yield

    def values(self, obs: Tree) -> Generator[Effect, Any, np.ndarray]:
        return self._acting.values(obs)


class RemoteActing(Acting):
    """Asks an inference server, which has the network and remembers for each of its actors."""

    def __init__(self, blank: Tree, lockstep: int = 0) -> None:
        """``blank`` is a request that asks for nothing."""
        self._blank, self._lockstep = blank, lockstep
        self._chunks = 0

    def join(self) -> Generator[Effect, Any, int]:
        return int((yield from self._ask(JOIN))["steps"])

    def refresh(self) -> Steps:
        self._chunks += 1
        return
        yield

    def perturb(self, change: Callable[[np.ndarray], np.ndarray] | None) -> None:
        raise TypeError("the weights lie at the inference server: nobody moves them for one actor")

    def act(self, obs: Tree, first: np.ndarray, noise: np.ndarray, explore: np.ndarray) -> Acts:
        reply = yield from self._ask(ACT, obs=obs, first=first, noise=noise, explore=explore)
        return Acted(reply["action"], reply["extras"], reply["memory"], int(reply["version"]))

    def values(self, obs: Tree) -> Generator[Effect, Any, np.ndarray]:
        reply = yield from self._ask(VALUES, obs=obs)
        return reply["values"]

    def _ask(self, kind: int, **about: Any) -> Generator[Effect, Any, Tree]:
        after = awaited(max(1, self._chunks), self._lockstep)
        request = {**self._blank, "kind": np.int64(kind), "after": np.int64(after), **about}
        return (yield Call("requests", request)).item
