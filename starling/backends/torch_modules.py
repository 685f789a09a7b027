"""``torch.nn.Module`` with its parameters outside, through ``torch.func.functional_call``."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import UninitializedParameter
from torch.utils.flop_counter import FlopCounterMode

from starling.backends.modules import Adapter
from starling.core.errors import ConfigError
from starling.core.trees import leaves, map_leaves

__all__ = ["TorchAdapter"]


class TorchAdapter(Adapter):
    """Parameters that ask for a gradient come from outside; the others and the buffers stay constants."""

    def initial(self, *args: Any) -> dict[str, np.ndarray]:
        found = {}
        for name, parameter in self.module.named_parameters():
            if isinstance(parameter, UninitializedParameter):
                raise ConfigError(f"parameter {name!r} of a lazy module has no shape yet; run the module once first.")
            if parameter.requires_grad and parameter.dtype != torch.float32:
                raise ConfigError(f"parameter {name!r} is {parameter.dtype}; float32 was expected: module.float().")
            if parameter.requires_grad:
                found[name] = parameter.detach().cpu().numpy().copy()
        return found

    def run(self, params: dict[str, Any], *args: Any) -> Any:
        given = {**self._constants(leaves(args)[0].device), **params}

        def call(*values: Any) -> Any:
            return torch.func.functional_call(self.module, given, values)

        for _ in range(self.vmap):
            call = torch.func.vmap(call)
        return call(*args)

    def _constants(self, device: torch.device) -> dict[str, Any]:
        """What the module holds beside its parameters, where it is not on the device that computes."""
        held = itertools.chain(self.module.named_parameters(), self.module.named_buffers())
        return {name: value.to(device) for name, value in held if value.device != device}

    def check_stateless(self, params: dict[str, Any], *args: Any) -> None:
        example = map_leaves(lambda x: x[(0,) * self.vmap], args)
        before = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        after = {name: buffer.clone() for name, buffer in before.items()}
        generator = torch.get_rng_state()
        with torch.no_grad():
            torch.func.functional_call(self.module, {**params, **after}, example)
        drew = not torch.equal(generator, torch.get_rng_state())
        torch.set_rng_state(generator)
        if drew:
            self.refuse_state("PyTorch's random generator (by dropout?)")
        changed = [name for name in before if not torch.equal(before[name], after[name])]
        if changed:
            self.refuse_state(f"buffer {changed[0]!r}")

    def flops(self, params: dict[str, Any], *args: Any) -> float:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            self.run(params, *args)
        return float(counter.get_total_flops())
