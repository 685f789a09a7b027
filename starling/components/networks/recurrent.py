"""Recurrent layers, and embeddings of whole numbers.

    y, memory = core.step(p.core, x, memory)                # [B, F] -> [B, H]: acting
    ys, memory = core.unroll(p.core, xs, memory, reset)     # [T, B, F] -> [T, B, H]: learning

``memory`` is the space of what is carried, of one row; zeros are a fresh start. ``reset`` [T, B] is true where an
episode begins: the memory is zero before that step. The loop over time is a scan: compiled code holds one step, however
long the sequence.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from starling.backends import ops
from starling.components.base import Component, api
from starling.components.networks import initialisers
from starling.components.networks.layers import affine, initialiser, sigmoid
from starling.core.params import Params
from starling.core.spaces import Dict, Float
from starling.core.trees import Tree, map_leaves

__all__ = ["GRU", "LSTM", "Embedding", "memory_for"]


class GRU(Component):
    """Gated recurrent units (Cho et al., 2014), the reset gate after the product as in cuDNN; memory: {"h": [B, H]}."""

    size: int
    init: str = "lecun"
    state_init: str = "orthogonal"

    needs: ClassVar[str] = "memory"

    @property
    def memory(self) -> Dict:
        return Dict(h=Float((self.size,)))

    @api(x="B F")
    def step(self, p: Params, x: Any, memory: Tree) -> tuple[Any, Tree]:
        new = self._cell(p, affine(p, x, 3 * self.size, self.init), memory["h"])
        return new, {"h": new}

    @api(xs="T B F", reset="bool T B")
    def unroll(self, p: Params, xs: Any, memory: Tree, reset: Any) -> tuple[Any, Tree]:
        gates = affine(p, xs, 3 * self.size, self.init)  # [T, B, 3H]: one large product instead of T small ones

        def step(carry: Any, now: tuple[Any, Any]) -> tuple[Any, Any]:
            new = self._cell(p, now[0], _cleared(carry, now[1]))
            return new, new

        final, ys = ops(xs).scan(step, memory["h"], (gates, reset))
        return ys, {"h": final}

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
    """Long short-term memory (Hochreiter & Schmidhuber, 1997); memory: {"c": [B, H], "h": [B, H]}.

    ``forget_bias`` is added to the forget gate, so that a new network remembers (Jozefowicz et al., 2015).
    """

    size: int
    init: str = "lecun"
    state_init: str = "orthogonal"
    forget_bias: float = 1.0

    needs: ClassVar[str] = "memory"

    @property
    def memory(self) -> Dict:
        return Dict(c=Float((self.size,)), h=Float((self.size,)))

    @api(x="B F")
    def step(self, p: Params, x: Any, memory: Tree) -> tuple[Any, Tree]:
        new = self._cell(p, affine(p, x, 4 * self.size, self.init), memory)
        return new["h"], new

    @api(xs="T B F", reset="bool T B")
    def unroll(self, p: Params, xs: Any, memory: Tree, reset: Any) -> tuple[Any, Tree]:
        gates = affine(p, xs, 4 * self.size, self.init)  # [T, B, 4H]

        def step(carry: Tree, now: tuple[Any, Any]) -> tuple[Tree, Any]:
            new = self._cell(p, now[0], _cleared(carry, now[1]))
            return new, new["h"]

        final, ys = ops(xs).scan(step, {"c": memory["c"], "h": memory["h"]}, (gates, reset))
        return ys, final

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


def memory_for(kind: str, size: int) -> Component | None:
    """The recurrent layer of a setting ``memory``: "lstm", "gru", or None for "none"."""
    return {"none": None, "lstm": LSTM(size), "gru": GRU(size)}[kind]


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
