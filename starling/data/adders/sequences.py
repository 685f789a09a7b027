"""Sequences of fixed length from a vector of environments, and whole episodes.

An item is T steps of one episode, as they happened: ``obs`` [T + 1], ``action``, ``reward`` as the environment gave it,
``terminated``, ``truncated`` and the extras [T], ``mask`` [T] (False behind the episode's end, where all is zero), and
``memory``: what acting carried into the first step, where the signature has one (R2D2). The observation behind the last
step is its true successor, also where the episode ended: the final one, not that of the reset.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from starling.core.errors import ConfigError
from starling.core.spaces import Bool, Dict, Float, Leaf, Space, Tuple
from starling.data.adders.base import VERSION, VERSION_SPACE, Adder, Priority, VectorStep, as_sinks, saved_leaves
from starling.data.adders.steps import Sink
from starling.data.untrusted import Untrusted

__all__ = ["EpisodeAdder", "SequenceAdder", "sequence_signature"]

NO_MEMORY = Dict()
NEEDED = ("obs", "action", "reward", "terminated", "truncated", "mask")


def _in_time(space: Space, steps: int) -> Space:
    """The space of ``steps`` values in a row."""
    if isinstance(space, Leaf):
        low, high = (
            b if np.ndim(b) == 0 else np.broadcast_to(b, (steps, *space.shape)) for b in (space.low, space.high)
        )
        return dataclasses.replace(space, shape=(steps, *space.shape), low=low, high=high)
    if isinstance(space, Dict):
        return Dict({key: _in_time(child, steps) for key, child in space.spaces.items()})
    return Tuple(*(_in_time(child, steps) for child in space.spaces))  # type: ignore[attr-defined]


def _one_step(space: Space) -> Space:
    """The space of one of the values of a space made by ``_in_time``."""
    if isinstance(space, Leaf):
        low, high = (b if np.ndim(b) == 0 else np.asarray(b)[0] for b in (space.low, space.high))
        return dataclasses.replace(space, shape=space.shape[1:], low=low, high=high)
    if isinstance(space, Dict):
        return Dict({key: _one_step(child) for key, child in space.spaces.items()})
    return Tuple(*(_one_step(child) for child in space.spaces))  # type: ignore[attr-defined]


def sequence_signature(
    obs: Space, action: Space, length: int, memory: Space = NO_MEMORY, version: bool = False, **extras: Space
) -> Dict:
    """The signature of sequences of ``length`` steps.

    ``memory`` is what acting carries from step to step in one environment; ``version`` adds to each step the version of
    the weights that acted.
    """
    if length < 1:
        raise ConfigError(f"length={length}; a sequence has at least one step.")
    flags = {"terminated": Bool(()), "truncated": Bool(()), "mask": Bool(())}
    steps = {"action": action, "reward": Float(()), **flags, **extras}
    if version:
        steps[VERSION] = VERSION_SPACE
    spaces = {name: _in_time(space, length) for name, space in steps.items()}
    spaces["obs"] = _in_time(obs, length + 1)
    return Dict({**spaces, "memory": memory} if memory.flatten() else spaces)


class SequenceAdder(Adder):
    """Turns vector steps into sequences of the tables' length.

        signature = sequence_signature(obs, action, length=80, memory=lstm_memory)
        adder = SequenceAdder(table, num_envs=8, overlap=40, burn_in=40)
        adder.add(obs, action, {"memory": memory_before}, reward, terminated, truncated, next_obs, final_obs, valid)

    Neighbouring sequences of an episode share ``overlap`` steps. Sequences never cross an episode's end: the last one
    is padded. One that would hold nothing new, or nothing behind its ``burn_in`` steps, is left out.
    """

    def __init__(
        self,
        sinks: Sink | Sequence[Sink],
        num_envs: int,
        *,
        overlap: int = 0,
        burn_in: int = 0,
        priority: Priority | None = None,
    ) -> None:
        each = as_sinks(sinks, NEEDED, "sequence_signature")
        spaces = each[0].signature.spaces
        self.length = length = dict(spaces["mask"].items())[""].shape[0]
        if not 0 <= overlap < length or not 0 <= burn_in < length:
            raise ConfigError(
                f"overlap={overlap}, burn_in={burn_in}; both lie between 0 and length − 1 = {length - 1}."
            )
        if num_envs < 1:
            raise ConfigError(f"num_envs={num_envs}; an adder has at least one environment.")
        self.overlap, self.burn_in = overlap, burn_in
        extras = [name for name in spaces if name not in (*NEEDED, "memory", VERSION)]
        taken = {name: _one_step(spaces[name]) for name in ("obs", "action", *extras)}
        if "memory" in spaces:
            taken["memory"] = spaces["memory"]
        Adder.__init__(self, each, num_envs, taken, length + 1, priority)
        self._count = np.zeros(num_envs, np.int64)
        self._first = np.ones(num_envs, np.bool_)  # no sequence of this episode was emitted yet
        facts: dict[str, list[Leaf]] = {"reward": [Float(())]}
        facts |= {name: [Bool(())] for name in ("terminated", "truncated", "mask")}
        kept = {**self._kept, **facts}
        # One more row than steps, for the observation behind the last.
        self._rows = {
            name: [np.zeros((num_envs, length + (name == "obs"), *leaf.shape), leaf.numpy_dtype) for leaf in leaves]
            for name, leaves in kept.items()
        }
        # Minus one is no frame: what lies behind the end refers to none.
        sharing = self._sharing
        self._blank = [-1 if sharing and sharing.pools[i] else 0 for i in range(len(kept["obs"]))]

    def _take_in(self, step: VectorStep) -> int:
        """Write the step into the current sequence of its environment, and its successor behind it."""
        none, every = np.zeros(self.num_envs, np.bool_), np.ones(self.num_envs, np.bool_)
        real, ended = every if step.valid is None else step.valid, none if step.ended is None else step.ended
        flags = {"terminated": step.terminated, "truncated": step.truncated, "mask": real}
        facts = {"reward": np.asarray(step.reward, np.float32), **flags}
        given = {**step.given, **{name: [fact] for name, fact in facts.items()}}
        envs = np.flatnonzero(real)
        places = self._count[envs]
        for name, leaves in given.items():
            for rows, leaf in zip(self._rows[name], leaves):
                rows[envs, places] = leaf[envs]
        for rows, leaf in zip(self._rows["obs"], step.following):
            rows[envs, places + 1] = leaf[envs]
        self._count[envs] += 1
        return self._emit(ended)

    def _emit(self, ended: np.ndarray) -> int:
        """Insert the sequences that are complete and make room for the next ones."""
        full = self._count == self.length
        new = self._first | (self._count > self.overlap)
        closing = ended & new & (self._count > self.burn_in)
        out = np.flatnonzero(full | closing)
        if out.size:
            for b in out[~full[out]]:
                self._pad(b)
            parts = {name: [rows[out] for rows in leaves] for name, leaves in self._rows.items()}
            if "memory" in parts:
                parts["memory"] = [rows[:, 0] for rows in parts["memory"]]
            self._deliver(parts, out.size)
        going_on = np.flatnonzero(full & ~ended)
        if going_on.size:
            self._shift(going_on)
        self._count[ended] = 0
        self._first[ended] = True
        return int(out.size)

    def _pad(self, b: int) -> None:
        """Blank what lies behind the last step."""
        count = self._count[b]
        for name, leaves in self._rows.items():
            for i, rows in enumerate(leaves):
                if name == "obs":
                    rows[b, count + 1 :] = self._blank[i]
                else:
                    rows[b, count:] = 0

    def _shift(self, envs: np.ndarray) -> None:
        """Let the next sequence start with the last ``overlap`` steps of this one."""
        period = self.length - self.overlap
        for leaves in self._rows.values():
            for rows in leaves:
                rows[envs, : rows.shape[1] - period] = rows[envs, period:]
        self._count[envs] = self.overlap
        self._first[envs] = False

    def _unfinished(self) -> dict[str, Any]:
        return {
            "count": self._count.copy(),
            "first": self._first.copy(),
            "rows": {k: {str(i): leaf.copy() for i, leaf in enumerate(v)} for k, v in self._rows.items()},
        }

    def _checked(self, saved: Untrusted) -> dict[str, Any]:
        count = saved.array("count", (self.num_envs,), np.int64, 0, self.length - 1)
        first = saved.array("first", (self.num_envs,), np.bool_)
        rows = saved_leaves(saved.part("rows"), self._rows)
        begun = (count > 0)[:, None] & (np.arange(self.length + 1) <= count[:, None])  # with the last step's successor
        self._check_frames(saved, rows["obs"], begun)
        return {"count": count, "first": first, "rows": rows}

    def _resume(self, unfinished: dict[str, Any]) -> None:
        self._count[:], self._first[:] = unfinished["count"], unfinished["first"]
        for name, leaves in self._rows.items():
            for leaf, saved in zip(leaves, unfinished["rows"][name]):
                leaf[...] = saved


def EpisodeAdder(
    sinks: Sink | Sequence[Sink],
    num_envs: int,
    *,
    priority: Priority | None = None,
) -> SequenceAdder:
    """Whole episodes, padded to the tables' length; a longer one becomes several items, one after the other."""
    return SequenceAdder(sinks, num_envs, priority=priority)
