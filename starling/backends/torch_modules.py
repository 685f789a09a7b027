"""``torch.nn.Module`` with its parameters outside, through ``torch.func.functional_call``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn.parameter import UninitializedParameter
from torch.utils.flop_counter import FlopCounterMode

from starling.backends.modules import Adapter
from starling.core.errors import ConfigError

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
        def call(*values: Any) -> Any:
            return torch.func.functional_call(self.module, params, values)

        for _ in range(self.vmap):
            call = torch.func.vmap(call)
        return call(*args)

    def check_stateless(self, params: dict[str, Any], *args: Any) -> None:
        for name, part in self.module.named_modules():
            if isinstance(part, torch.nn.modules.dropout._DropoutNd) and part.training and part.p > 0:
                self.refuse_state(f"PyTorch's generator (dropout {name or type(part).__name__!r})")
        before = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        after = {name: buffer.clone() for name, buffer in before.items()}
        if before:
            with torch.no_grad():
                torch.func.functional_call(self.module, {**params, **after}, args)
        changed = [name for name in before if not torch.equal(before[name], after[name])]
        if changed:
            self.refuse_state(f"buffer {changed[0]!r}")

    def flops(self, params: dict[str, Any], *args: Any) -> float:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            self.run(params, *args)
        return float(counter.get_total_flops())
