"""What all adders have in common: they read vector steps, write down the version that acted, and deliver items."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from starling.core.errors import ConfigError, DataError
from starling.core.spaces import Int, Leaf, Space
from starling.data.adders.steps import Inputs, Leaves, Sink, shared_observations
from starling.data.flattening import unflatten
from starling.data.untrusted import Untrusted

__all__ = ["VERSION", "VERSION_SPACE", "Adder", "Priority", "VectorStep", "as_sinks", "saved_leaves"]

VERSION = "version"  # of the weights that acted
VERSION_SPACE = Int((), 0, 2**62, "int64")
Priority = Callable[[Any], np.ndarray]


def as_sinks(sinks: Sink | Sequence[Sink], needed: Sequence[str], example: str) -> list[Sink]:
    """The sinks as a list; ConfigError unless they have one signature, with what is needed."""
    each = list(sinks) if isinstance(sinks, Sequence) else [sinks]
    found = [sink.signature.spaces.keys() for sink in each]
    if not found or set(needed) - set(found[0]) or any(keys != found[0] for keys in found):
        raise ConfigError(
            f"the tables' signatures are {[sorted(keys) for keys in found]}; this adder needs the same in each, with "
            f"{', '.join(needed)}: see {example}."
        )
    return each


class VectorStep(NamedTuple):
    """A step of every environment, as it was read."""

    given: dict[str, Leaves]  # obs, action and extras, by name
    following: Leaves  # the true successors
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    ended: np.ndarray | None  # None where no episode ended
    valid: np.ndarray | None  # None where every environment made a step


class Adder(ABC):
    """Turns the vector steps of some environments into items, and inserts each as soon as it is complete.

        adder.add(obs, action, {"log_prob": ...}, reward, terminated, truncated, next_obs, final_obs, valid)

    ``priority`` computes initial priorities from a batch of complete items (Ape-X). Several sinks receive the same
    items. ``version`` is that of the weights that now act: it is written into the items, where the signature has one,
    unless the extras bring it.
    """

    def __init__(
        self,
        sinks: list[Sink],
        num_envs: int,
        spaces: Mapping[str, Space],
        window: int,
        priority: Priority | None,
    ) -> None:
        """``spaces`` are those of one step of one environment: obs, action and the extras. ``window`` is the number of
        steps for which an unfinished item may refer to a frame."""
        self.signature, self.num_envs, self.version = sinks[0].signature, num_envs, 0
        self._sinks, self._priority = sinks, priority
        self._extras = [name for name in spaces if name not in ("obs", "action")]
        self._inputs = Inputs(spaces, num_envs, sinks[0].shared)
        self._sharing = shared_observations(sinks, spaces["obs"], window)
        self._kept: dict[str, list[Leaf]] = dict(self._inputs.kept)
        self._versions: np.ndarray | None = None
        if VERSION in self.signature.spaces:
            self._versions = np.zeros(num_envs, np.int64)
            self._kept[VERSION] = [VERSION_SPACE]

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
        read = self._inputs.leaves
        given = {"action": read("action", action)}
        for name in self._extras:
            if extras is None or name not in extras:
                raise DataError(f"extras {sorted(extras or ())} arrived, {name!r} was expected among them.")
            given[name] = read(name, extras[name])
        if self._versions is not None:
            self._versions[:] = extras[VERSION] if extras and VERSION in extras else self.version
            given[VERSION] = [self._versions]
        now, following = read("obs", obs), read("obs", next_obs)
        finals = None if final_obs is None else read("obs", final_obs)
        ended = terminated | truncated
        if valid is not None:
            if np.count_nonzero(valid) == self.num_envs:
                valid = None
            else:
                ended &= valid
        calm = not np.count_nonzero(ended)
        if finals is None and not calm:
            raise DataError("an episode ended and no final_obs arrived; bootstrapping needs the true successor.")
        if self._sharing is not None:
            now, following, finals = self._sharing.intern(now, following, finals, ended)
        given["obs"] = now
        if not (calm or finals is None):
            following = _successors(following, finals, ended)
        return self._take_in(
            VectorStep(given, following, reward, terminated, truncated, None if calm else ended, valid)
        )

    @abstractmethod
    def _take_in(self, step: VectorStep) -> int:
        """Keep a step, deliver the items that it completes, and return their number."""

    def _deliver(self, parts: Mapping[str, Leaves], n: int) -> None:
        """Insert ``n`` complete items, given by the leaves of each part of the signature, into every sink."""
        leaves = [leaf for name in self.signature.spaces for leaf in parts[name]]
        priorities = None
        if self._priority is not None:
            seen, pools = list(leaves), self._sinks[0].shared
            for i, (path, space) in enumerate(self.signature.items()):
                if path in pools:
                    seen[i] = np.empty((n, *space.shape), space.numpy_dtype)
                    pools[path].gather(leaves[i], np.arange(n), seen[i])
            priorities = self._priority(unflatten(self.signature, seen))
        for sink in self._sinks:
            sink.insert_leaves(leaves, n, priorities)

    def state(self) -> dict[str, Any]:
        """What is unfinished, as a tree of arrays and numbers (copies)."""
        shared = self._sharing.state() if self._sharing else {}
        return {"version": int(self.version), "shared": shared, **self._unfinished()}

    def restore(self, state: Any) -> None:
        """Continue from ``state()`` of an adder of the same environments and signature; CheckpointError, and no change,
        where it is of others or damaged. Tables that share frames are restored before."""
        saved = Untrusted(state, "an adder's state", f"this adder has {self.num_envs} environments")
        version, unfinished = saved.integer("version"), self._checked(saved)
        if self._sharing:
            self._sharing.restore(saved.part("shared"))
        self._resume(unfinished)
        self.version = version

    @abstractmethod
    def _unfinished(self) -> dict[str, Any]:
        """The items that wait for further steps (copies)."""

    @abstractmethod
    def _checked(self, saved: Untrusted) -> dict[str, Any]:
        """The same from a state; CheckpointError where they are of another layout."""

    @abstractmethod
    def _resume(self, unfinished: dict[str, Any]) -> None:
        """Go on with those."""

    def _check_frames(self, saved: Untrusted, obs: Leaves, waiting: np.ndarray) -> None:
        """Refuse frame numbers that lead nowhere; ``waiting`` says which observations a later item will have."""
        if self._sharing:
            for i, (pool, ids) in enumerate(zip(self._sharing.pools, obs)):
                if pool is not None:
                    pool.check_ids(saved, f"obs.{i}", ids, waiting)


def saved_leaves(saved: Untrusted, kept: Mapping[str, Leaves]) -> dict[str, Leaves]:
    """What a state brings in place of the arrays ``kept``."""
    return {
        name: [saved.part(name).array(str(i), leaf.shape, leaf.dtype) for i, leaf in enumerate(leaves)]
        for name, leaves in kept.items()
    }


def _successors(following: Leaves, finals: Leaves, ended: np.ndarray) -> Leaves:
    """What followed each step: the next observation, or the final one where the episode ended."""
    if ended.all():
        return finals
    rows = [leaf.copy() for leaf in following]
    for row, final in zip(rows, finals):
        row[ended] = final[ended]
    return rows
