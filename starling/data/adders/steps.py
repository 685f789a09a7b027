"""What adders read: the checked leaves of a vector step, with frames stored once."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from starling.core.errors import ConfigError, DataError
from starling.core.spaces import Dict, Leaf, Space
from starling.data.flattening import flatten_items
from starling.data.untrusted import Untrusted

if TYPE_CHECKING:
    from starling.data.frames.base import AnyFramePool

__all__ = ["Inputs", "Leaves", "SharedObservations", "Sink", "shared_observations"]

Leaves = list[np.ndarray]


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

    def restore(self, saved: Untrusted) -> None:
        """Hold on to the frames of a state again, which the restored pools have counted."""
        held, steps = [], saved.part("held")
        for i, pool in enumerate(self.pools if steps.plain else ()):  # nothing is held before the first step
            held.append(steps.array(str(i), (None, None, pool.depth if pool else 0), np.int32))
            steps.check(len(held[i]) == len(held[0]) <= self._window, str(i), f"at most {self._window} steps are held")
            if pool is not None:
                pool.check_ids(steps, str(i), held[i], np.ones(held[i].shape[:-1], np.bool_))
        for pool, ids in zip(self.pools, held):
            if pool is not None:
                pool.claim(steps, ids)
        self._held = deque(map(list, zip(*(ids.copy() for ids in held))))


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
