"""A layer with gates."""

from __future__ import annotations

from typing import Any

from starling import Component, api
from starling.backends import ops
from starling.components.networks.initialisers import lecun
from starling.core.params import Params

__all__ = ["Gate"]


class Gate(Component):
    """A layer whose every output has a gate of its own."""

    size: int

    @api(x="* I")
    def __call__(self, p: Params, x: Any) -> Any:  # [*, I] -> [*, size]
        shape = (x.shape[-1], self.size)
        value, gate = x @ p.get("value", shape, lecun), x @ p.get("gate", shape, lecun)
        return value * (0.5 + 0.5 * ops(x).tanh(gate))
