"""Randomness is data: one named, counter-based stream per role and purpose.

Compiled code holds no generator. Whoever needs noise draws it here and passes it in as an array, so a run's
numbers depend on its seed alone, whatever backend computes them and whatever executor runs it.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

__all__ = ["generator_state", "restore_generator", "stream"]


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The generator of ``names`` under ``seed``: the same names always give the same stream."""
    text = "\0".join(str(part) for part in (seed, *names))
    key = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=key))


def generator_state(rng: np.random.Generator) -> dict[str, Any]:
    """The generator's position, as a tree of arrays and integers."""
    state = rng.bit_generator.state
    return {
        "counter": state["state"]["counter"].copy(),
        "key": state["state"]["key"].copy(),
        "buffer": state["buffer"].copy(),
        "position": [state["buffer_pos"], state["has_uint32"], state["uinteger"]],
    }


def restore_generator(rng: np.random.Generator, state: dict[str, Any]) -> None:
    """Put a Philox generator back to a position taken by ``generator_state``."""
    buffer_pos, has_uint32, uinteger = (int(x) for x in state["position"])
    rng.bit_generator.state = {
        "bit_generator": "Philox",
        "state": {"counter": np.asarray(state["counter"]), "key": np.asarray(state["key"])},
        "buffer": np.asarray(state["buffer"]),
        "buffer_pos": buffer_pos,
        "has_uint32": has_uint32,
        "uinteger": uinteger,
    }
