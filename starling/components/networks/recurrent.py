"""Recurrent layers, and embeddings of whole numbers.

    y, state = core.step(p.core, x, state)                  # [B, F] -> [B, H]: acting
    ys, state = core.unroll(p.core, xs, state, reset)       # [T, B, F] -> [T, B, H]: learning

``reset`` [T, B] is true where an episode begins: the state is zero before that step. ``initial(batch)`` is the state
of a fresh start, in NumPy. The loop over time is a scan: compiled code holds one step, however long the sequence.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from starling.backends import ops
from starling.components.base import Component, api
from starling.components.networks import initialisers
from starling.components.networks.layers import affine, initialiser, sigmoid
from starling.core.params import Params
from starling.core.trees import Tree, map_leaves

__all__ = ["GRU", "LSTM", "Embedding"]


class GRU(Component):
    """Gated recurrent units (Cho et al., 2014), the reset gate after the product as in cuDNN; the state is [B, H]."""

    size: int
    init: str = "lecun"
    state_init: str = "orthogonal"

    needs: ClassVar[str] = "memory"

    @api(x="B F", state="B {size}")
    def step(self, p: Params, x: Any, state: Any) -> tuple[Any, Any]:
        new = self._cell(p, affine(p, x, 3 * self.size, self.init), state)
        return new, new

    @api(xs="T B F", state="B {size}", reset="bool T B")
    def unroll(self, p: Params, xs: Any, state: Any, reset: Any) -> tuple[Any, Any]:
        gates = affine(p, xs, 3 * self.size, self.init)  # [T, B, 3H]: one large product instead of T small ones

        def step(carry: Any, now: tuple[Any, Any]) -> tuple[Any, Any]:
            new = self._cell(p, now[0], _cleared(carry, now[1]))
            return new, new

        final, ys = ops(xs).scan(step, state, (gates, reset))
        return ys, final

    def initial(self, batch: int) -> np.ndarray:
        """The state of a fresh start, [B, H]."""
        return np.zeros((batch, self.size), np.float32)

    def _cell(self, p: Params, gates: Any, state: Any) -> Any:
        """From the inputs' share of the gates (reset, update, candidate) [B, 3H] to the new state."""
        h = self.size
        u = p.get("u", (h, 3 * h), initialiser(self.state_init))
        b = p.get("b_candidate", (h,), initialisers.zeros)
        ours = state @ u
        reset = sigmoid(gates[..., :h] + ours[..., :h])
        update = sigmoid(gates[..., h : 2 * h] + ours[..., h : 2 * h])
        candidate = ops(state).tanh(gates[..., 2 * h :] + reset * (ours[..., 2 * h :] + b))
        return candidate + update * (state - candidate)


class LSTM(Component):
    """Long short-term memory (Hochreiter & Schmidhuber, 1997); the state is {"c": [B, H], "h": [B, H]}.

    ``forget_bias`` is added to the forget gate, so that a new network remembers (Jozefowicz et al., 2015).
    """

    size: int
    init: str = "lecun"
    state_init: str = "orthogonal"
    forget_bias: float = 1.0

    needs: ClassVar[str] = "memory"

    @api(x="B F")
    def step(self, p: Params, x: Any, state: Tree) -> tuple[Any, Tree]:
        new = self._cell(p, affine(p, x, 4 * self.size, self.init), state)
        return new["h"], new

    @api(xs="T B F", reset="bool T B")
    def unroll(self, p: Params, xs: Any, state: Tree, reset: Any) -> tuple[Any, Tree]:
        gates = affine(p, xs, 4 * self.size, self.init)  # [T, B, 4H]

        def step(carry: Tree, now: tuple[Any, Any]) -> tuple[Tree, Any]:
            new = self._cell(p, now[0], _cleared(carry, now[1]))
            return new, new["h"]

        final, ys = ops(xs).scan(step, {"c": state["c"], "h": state["h"]}, (gates, reset))
        return ys, final

    def initial(self, batch: int) -> dict[str, np.ndarray]:
        """The state of a fresh start."""
        return {name: np.zeros((batch, self.size), np.float32) for name in ("c", "h")}

    def _cell(self, p: Params, gates: Any, state: Tree) -> dict[str, Any]:
        """From the inputs' share of the gates (input, forget, candidate, output) [B, 4H] to the new state."""
        h = self.size
        gates = gates + state["h"] @ p.get("u", (h, 4 * h), initialiser(self.state_init))
        xp = ops(gates)
        kept = sigmoid(gates[..., h : 2 * h] + self.forget_bias) * state["c"]
        c = kept + sigmoid(gates[..., :h]) * xp.tanh(gates[..., 2 * h : 3 * h])
        return {"c": c, "h": sigmoid(gates[..., 3 * h :]) * xp.tanh(c)}


def _cleared(state: Tree, reset: Any) -> Tree:
    """The state [B, H] with the rows whose ``reset`` [B] is true set to zero."""
    return map_leaves(lambda leaf: ops(leaf).where(reset[..., None], ops(leaf).zeros_like(leaf), leaf), state)


class Embedding(Component):
    """A learned row of ``size`` numbers for each of ``count`` whole numbers."""

    count: int
    size: int
    init: str = "normal:1.0"

    @api(x="int *")
    def __call__(self, p: Params, x: Any) -> Any:  # [*] -> [*, size]
        table = p.get("table", (self.count, self.size), initialiser(self.init))
        xp = ops(table)
        flat = xp.reshape(xp.astype(x, xp.int32), (math.prod(x.shape),))
        return xp.reshape(xp.take(table, flat, axis=0), (*x.shape, self.size))
