"""Networks for images [*, H, W, C], bytes or floats.

Any leading dimensions are welcome: they are made one for the convolutions and given back afterwards. Bytes count from
0 to 255 and are divided by 255; floats are taken as they are.
"""

from __future__ import annotations

import math
from typing import Any

from starling.backends import ops
from starling.components.base import Component, api
from starling.components.networks.initialisers import zeros
from starling.components.networks.layers import affine, as_float, flatten, initialiser
from starling.core.params import Params

__all__ = ["CNN", "ImpalaResNet", "NatureCNN"]

IMAGE = "* H W C"


class CNN(Component):
    """Convolutions with ReLU, then one linear layer with ReLU; ``size=0`` leaves that one out."""

    layers: tuple[tuple[int, int, int], ...]  # (channels, window, stride)
    size: int = 512
    padding: str = "VALID"
    init: str = "lecun"

    @api(x=IMAGE)
    def __call__(self, p: Params, x: Any) -> Any:  # [*, H, W, C] -> [*, size]
        lead, x = _one_batch(x)
        for i, (channels, window, stride) in enumerate(self.layers):
            x = _convolve(p, x, channels, window, stride, self.padding, self.init, tag=str(i))
            x = ops(x).relu(x)
        return _features(p, x, lead, self.size, self.init)


class NatureCNN(CNN):
    """The network of DQN (Mnih et al., 2015), for images of 36×36 and above."""

    layers: tuple[tuple[int, int, int], ...] = ((32, 8, 4), (64, 4, 2), (64, 3, 1))


class ImpalaResNet(Component):
    """The fifteen convolutions of IMPALA's large network (Espeholt et al., 2018), then one linear layer."""

    channels: tuple[int, ...] = (16, 32, 32)
    blocks: int = 2
    size: int = 256
    init: str = "lecun"

    @api(x=IMAGE)
    def __call__(self, p: Params, x: Any) -> Any:  # [*, H, W, C] -> [*, size]
        lead, x = _one_batch(x)
        xp = ops(x)
        for i, channels in enumerate(self.channels):
            x = _convolve(p, x, channels, 3, 1, "SAME", self.init, tag=str(i))
            x = xp.max_pool2d(x, 3, 2, "SAME")
            for j in range(self.blocks):
                y = _convolve(p, xp.relu(x), channels, 3, 1, "SAME", self.init, tag=f"{i}_{j}_0")
                x = x + _convolve(p, xp.relu(y), channels, 3, 1, "SAME", self.init, tag=f"{i}_{j}_1")
        return _features(p, xp.relu(x), lead, self.size, self.init)


def _one_batch(x: Any) -> tuple[tuple[int, ...], Any]:
    """The leading dimensions, and the images as floats [B, H, W, C]."""
    xp = ops(x)
    lead = tuple(x.shape[:-3])
    if x.dtype == xp.uint8:
        x = as_float(x) * (1.0 / 255.0)
    return lead, xp.reshape(as_float(x), (math.prod(lead), *x.shape[-3:])) if len(lead) != 1 else as_float(x)


def _convolve(
    p: Params, x: Any, channels: int, window: int, stride: int, padding: str, init: str, tag: str
) -> Any:  # [B, H, W, C] -> [B, H', W', channels]
    kernel = p.get("kernel" + tag, (window, window, x.shape[-1], channels), initialiser(init))
    return ops(x).conv2d(x, kernel, stride, padding) + p.get("bias" + tag, (channels,), zeros)


def _features(p: Params, x: Any, lead: tuple[int, ...], size: int, init: str) -> Any:
    """[B, H, W, C] flattened, through the linear layer, with the leading dimensions back: [*, size]."""
    x = flatten(x, 3)
    if size:
        x = affine(p, x, size, init)
        x = ops(x).relu(x)
    return x if len(lead) == 1 else ops(x).reshape(x, (*lead, x.shape[-1]))
