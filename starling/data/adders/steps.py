"""What all adders have in common: checked inputs, the origin of each step, frames stored once, and delivery."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from starling.core.errors import ConfigError, DataError
from starling.core.spaces import Dict, Int, Leaf, Space
from starling.data.frames.base import AnyFramePool
from starling.data.tables.layout import flatten_items, rebuild

__all__ = [
    "NO_FINAL",
    "ORIGIN",
    "ORIGIN_SPACE",
    "Intake",
    "Leaves",
    "Priority",
    "Sink",
    "as_sinks",
]

ORIGIN = "origin"  # weight version, actor, number of the step
ORIGIN_SPACE = Int((3,), -1, 2**62, "int64")
NO_FINAL = "an episode ended and no final_obs arrived; bootstrapping needs the true successor."
Leaves = list[np.ndarray]
Priority = Callable[[Any], np.ndarray]


class Sink(Protocol):
    """Where items go: a table here, or the writer of one elsewhere."""

    signature: Dict

    @property
    def shared(self) -> Mapping[str, AnyFramePool]: ...

    def insert_leaves(self, leaves: Leaves, n: int, priorities: Any = None, timeout: float | None = None) -> Any: ...


class Inputs:
    """The leaves of each input of an adder, checked against the space of one step.

    ``spaces`` are those of one step of one environment. Where a pool keeps the frames of an observation, ``kept``
    has frame numbers in its place.
    """

    def __init__(self, spaces: Mapping[str, Space], num_envs: int, pools: Mapping[str, AnyFramePool]) -> None:
        self.spaces = dict(spaces)
        self._expected = {
            name: [((num_envs, *leaf.shape), leaf.numpy_dtype) for _, leaf in space.items()]
            for name, space in spaces.items()
        }
        self._plain = {name: isinstance(space, Leaf) for name, space in spaces.items()}
        self.kept: dict[str, list[Leaf]] = {}
        for name, space in spaces.items():
            named = [(f"{name}.{path}" if path else name, leaf) for path, leaf in space.items()]
            self.kept[name] = [pools[path].stored_space(leaf) if path in pools else leaf for path, leaf in named]

    def leaves(self, name: str, value: Any) -> Leaves:
        if type(value) is np.ndarray and self._plain[name]:
            shape, dtype = self._expected[name][0]
            if value.shape == shape and value.dtype == dtype:
                return [value]
        leaves = flatten_items(self.spaces[name], value)
        for leaf, (shape, dtype) in zip(leaves, self._expected[name]):
            if leaf.shape != shape or leaf.dtype != dtype:
                raise DataError(f"{name} {leaf.dtype}{list(leaf.shape)} arrived, {dtype}{list(shape)} was expected.")
        return leaves


class Origins:
    """Numbers an actor's steps: [num_envs, 3] of weight version, actor, number of the step."""

    def __init__(self, num_envs: int, actor: int) -> None:
        self.rows = np.zeros((num_envs, 3), np.int64)
        self.rows[:, 1] = actor
        self.version = 0
        self.steps = 0

    def number(self, extras: Any, valid: np.ndarray | None) -> np.ndarray:
        """The origin of each row of this step; rows that are no step are not counted."""
        rows = self.rows
        rows[:, 0] = extras["version"] if extras and "version" in extras else self.version
        if valid is None:
            rows[:, 2] = np.arange(self.steps, self.steps + rows.shape[0])
            self.steps += rows.shape[0]
        else:
            rows[:, 2] = self.steps + np.cumsum(valid) - 1
            self.steps += int(valid.sum())
        return rows


class SharedObservations:
    """Puts observations into their pools and holds on to the frames of the last ``window`` steps.

    That is how long an unfinished item may refer to a frame before a table does.
    """

    def __init__(self, pools: list[AnyFramePool | None], window: int) -> None:
        self.pools = pools
        self._held: deque[list[np.ndarray]] = deque()
        self._window = window

    def intern(
        self, obs: Leaves, following: Leaves, finals: Leaves | None, ended: np.ndarray
    ) -> tuple[Leaves, Leaves, Leaves | None]:
        """The three sets of observations with frame numbers in place of shared leaves."""
        obs, following = list(obs), list(following)
        finals = None if finals is None else list(finals)
        held = []
        for i, pool in enumerate(self.pools):
            if pool is None:
                held.append(np.empty((0, 0), np.int32))
                continue
            now = pool.intern(obs[i])
            after = pool.intern(following[i])
            obs[i], following[i] = now, after
            last = np.full_like(now, -1)
            if finals is not None:
                last[ended] = pool.intern(finals[i][ended])
                finals[i] = last
            held.append(np.concatenate([now, after, last]))
        self._held.append(held)
        if len(self._held) > self._window:
            self._release(self._held.popleft())
        return obs, following, finals

    def _release(self, held: list[np.ndarray]) -> None:
        for pool, ids in zip(self.pools, held):
            if pool is not None:
                pool.release(ids)

    def state(self) -> dict[str, Any]:
        steps = [np.stack([held[i] for held in self._held]) for i in range(len(self.pools)) if self._held]
        return {"held": {str(i): ids for i, ids in enumerate(steps)}}

    def restore(self, state: Mapping[str, Any]) -> None:
        held = [np.asarray(ids).copy() for _, ids in sorted(state["held"].items(), key=lambda item: int(item[0]))]
        self._held = deque(map(list, zip(*held)))


def shared_observations(sinks: Sequence[Sink], obs: Space, window: int) -> SharedObservations | None:
    """The pools of the observation's leaves; None where there are none. All sinks must agree on them."""
    paths = [f"obs.{path}" if path else "obs" for path, _ in obs.items()]
    pools = [sinks[0].shared.get(path) for path in paths]
    for sink in sinks:
        others = {path: pool for path, pool in sink.shared.items() if not path.startswith("obs")}
        expected = {path.replace("obs", "next_obs", 1): pool for path, pool in zip(paths, pools) if pool is not None}
        if [sink.shared.get(path) for path in paths] != pools or (others and others != expected):
            raise ConfigError(
                f"the tables share {sorted(sink.shared)} and {sorted(sinks[0].shared)}; an adder needs the same pools "
                "for obs in each, and for next_obs the pools of obs."
            )
    return SharedObservations(pools, window) if any(pools) else None


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


class Intake:
    """What every adder does with a vector step: read it, share its frames, number it, deliver what becomes of it.

    ``spaces`` are those of one step of one environment: obs, action and the extras. ``window`` is the number of steps
    for which an unfinished item may refer to a frame.
    """

    def __init__(
        self,
        sinks: list[Sink],
        num_envs: int,
        spaces: Mapping[str, Space],
        window: int,
        priority: Priority | None,
        actor: int,
    ) -> None:
        self._sinks, self._priority = sinks, priority
        self.signature = sinks[0].signature
        self._extras = [name for name in spaces if name not in ("obs", "action")]
        self._inputs = Inputs(spaces, num_envs, sinks[0].shared)
        self.origins = Origins(num_envs, actor) if ORIGIN in self.signature.spaces else None
        self.sharing = shared_observations(sinks, spaces["obs"], window)
        self.kept: dict[str, list[Leaf]] = dict(self._inputs.kept)
        if self.origins:
            self.kept[ORIGIN] = [ORIGIN_SPACE]

    def read(
        self, obs: Any, action: Any, extras: Any, next_obs: Any, final_obs: Any
    ) -> tuple[Leaves, Leaves, Leaves | None, dict[str, Leaves]]:
        """The leaves of obs, next_obs and final_obs, and those of action and extras by name."""
        read = self._inputs.leaves
        given = {"action": read("action", action)}
        for name in self._extras:
            if extras is None or name not in extras:
                raise DataError(f"extras {sorted(extras or ())} arrived, {name!r} was expected among them.")
            given[name] = read(name, extras[name])
        return read("obs", obs), read("obs", next_obs), None if final_obs is None else read("obs", final_obs), given

    def deliver(self, parts: Mapping[str, Leaves], n: int) -> None:
        """Insert ``n`` complete items, given by the leaves of each part of the signature, into every sink."""
        leaves = [leaf for name in self.signature.spaces for leaf in parts[name]]
        priorities = None
        if self._priority is not None:
            seen, pools = list(leaves), self._sinks[0].shared
            for i, (path, space) in enumerate(self.signature.items()):
                if path in pools:
                    seen[i] = np.empty((n, *space.shape), space.numpy_dtype)
                    pools[path].gather(leaves[i], np.arange(n), seen[i])
            priorities = self._priority(rebuild(self.signature, seen))
        for sink in self._sinks:
            sink.insert_leaves(leaves, n, priorities)

    @property
    def version(self) -> int:
        """The version of the weights that now act."""
        return self.origins.version if self.origins else 0

    @version.setter
    def version(self, version: int) -> None:
        if self.origins:
            self.origins.version = version

    def state(self) -> dict[str, Any]:
        return {
            "steps": self.origins.steps if self.origins else 0,
            "version": self.version,
            "shared": self.sharing.state() if self.sharing else {},
        }

    def restore(self, state: Any) -> None:
        if self.origins:
            self.origins.steps, self.origins.version = int(state["steps"]), int(state["version"])
        if self.sharing:
            self.sharing.restore(state["shared"])
