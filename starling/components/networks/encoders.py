"""Encoders: from an observation, an array or a tree of them, to features [*, F].

    encoder = encoder_for(observation_space)
    features = encoder(p.encoder, obs)

Every encoder takes any leading dimensions: [B, …] when acting, [T, B, …] when learning from sequences. A mask of
possible actions travels beside the observation and is no feature: ``split_mask`` takes it out, and ``encoder_for``
makes the encoder of what that leaves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from starling.backends import ops
from starling.components.base import Component, api
from starling.components.networks.images import CNN, NatureCNN
from starling.components.networks.layers import Sequential, as_float, flatten
from starling.components.networks.preprocessing import OneHot, Scale
from starling.core.errors import SpaceError
from starling.core.params import Params
from starling.core.spaces import Bool, Dict, Float, Int, Leaf, Space, Tuple

__all__ = [
    "ACTION_MASK",
    "ChannelsLast",
    "DictEncoder",
    "Flatten",
    "OneHot",
    "TupleEncoder",
    "encoder_for",
    "split_mask",
]

ACTION_MASK = "action_mask"
NATURE_SIDE = 36  # the smallest image the three convolutions of NatureCNN fit on
SMALL_SIDE = 5  # below this there is nothing to convolve
MOST_ONE_HOT = 4096  # features; more whole numbers than that are taken as quantities
MOST_VALUES = 2**16


class Flatten(Component):
    """Numbers or truth values as they are: ``rank`` dimensions become one."""

    rank: int = 1

    @api
    def __call__(self, p: Params, x: Any) -> Any:  # [*, (rank dims)] -> [*, F]
        return flatten(as_float(x), self.rank)


class ChannelsLast(Component):
    """Images [*, C, H, W] as [*, H, W, C]."""

    @api(x="* C H W")
    def __call__(self, p: Params, x: Any) -> Any:
        return ops(x).moveaxis(x, -3, -1)


class DictEncoder(Component):
    """The features of every entry side by side, by sorted key; the action mask is no entry."""

    encoders: Mapping[str, Component]

    hands_on: ClassVar[bool] = True

    @api
    def __call__(self, p: Params, x: Any) -> Any:  # {key: [*, …]} -> [*, F]
        keys = [key for key in sorted(self.encoders) if key != ACTION_MASK]
        return _side_by_side([self.encoders[key](p[f"encoders_{key}"], x[key]) for key in keys])


class TupleEncoder(Component):
    """The features of every element side by side."""

    encoders: tuple[Component, ...]

    hands_on: ClassVar[bool] = True

    @api
    def __call__(self, p: Params, x: Any) -> Any:  # ([*, …], …) -> [*, F]
        return _side_by_side([e(p[f"encoders_{i}"], x[i]) for i, e in enumerate(self.encoders)])


def _side_by_side(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else ops(parts[0]).concat(parts, axis=-1)


def split_mask(obs: Any) -> tuple[Any, Any]:
    """An observation and its mask of possible actions, or None; works on a space as well.

    {"observation": x, "action_mask": m} -> (x, m); other entries stay a dict without the mask.
    """
    entries: Any = obs.spaces if isinstance(obs, Dict) else obs
    if not isinstance(entries, Mapping) or ACTION_MASK not in entries:
        return obs, None
    rest = {key: value for key, value in entries.items() if key != ACTION_MASK}
    inner = rest["observation"] if set(rest) == {"observation"} else Dict(rest) if isinstance(obs, Dict) else rest
    return inner, entries[ACTION_MASK]


def encoder_for(space: Space, image: Component | None = None) -> Component:
    """The default encoder of what ``split_mask`` leaves of an observation in ``space``.

    ``image`` replaces the network for images, whatever their size.
    """
    return _encoder(split_mask(space)[0], image)


def _encoder(space: Space, image: Component | None) -> Component:
    if isinstance(space, Dict):
        entries = {key: _encoder(child, image) for key, child in space.spaces.items() if key != ACTION_MASK}
        if not entries:
            raise SpaceError(f"the observation space {space} has nothing to encode; it needs at least one entry.")
        return DictEncoder(entries)
    if isinstance(space, Tuple):
        if not space.spaces:
            raise SpaceError("an empty tuple arrived as observation space; it needs at least one element.")
        return TupleEncoder(tuple(_encoder(child, image) for child in space.spaces))
    if not isinstance(space, Leaf):
        raise SpaceError(f"the space {space} arrived; supported are Float, Int, Bool, and Dict or Tuple of these.")
    return _image_encoder(space, image) if _is_image(space) else _vector_encoder(space)


def _is_image(space: Leaf) -> bool:
    """Three dimensions of bytes, floats or truth values, of which two are long enough to convolve."""
    if len(space.shape) != 3 or (isinstance(space, Int) and space.dtype != "uint8"):
        return False
    return min(space.shape[:2]) >= SMALL_SIDE or min(space.shape[1:]) >= SMALL_SIDE


def _image_encoder(space: Leaf, image: Component | None) -> Component:
    channels_first = space.shape[0] < SMALL_SIDE or (min(space.shape[1:]) >= NATURE_SIDE and space.shape[0] <= 16)
    sides = space.shape[1:] if channels_first else space.shape[:2]
    default = NatureCNN() if min(sides) >= NATURE_SIDE else CNN(((32, 3, 1),), size=128)
    steps: list[Component] = [ChannelsLast()] if channels_first else []
    if isinstance(space, Float) and float(np.max(space.high)) == 255.0:
        steps.append(Scale())  # floats that are bytes in truth; real bytes are scaled by the network
    steps.append(default if image is None else image)
    return steps[0] if len(steps) == 1 else Sequential(tuple(steps))


def _vector_encoder(space: Leaf) -> Component:
    rank = len(space.shape)
    if isinstance(space, (Float, Bool)):
        return Flatten(rank)
    low, high = int(np.min(space.low)), int(np.max(space.high))
    if (high - low) * max(math.prod(space.shape), 1) <= MOST_ONE_HOT:
        return OneHot(high - low, low, rank)
    if high - low > MOST_VALUES:
        raise SpaceError(
            f"the space {space} of whole numbers {low} … {high - 1} arrived; up to {MOST_VALUES} values can be "
            "encoded. Give the space its true bounds, or an encoder of your own."
        )
    return Sequential((Scale(1.0 / (high - 1 - low), float(low)), Flatten(rank)))
