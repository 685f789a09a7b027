"""Devices by name, and keeping a process to its own.

    parse_devices("cuda:0,cuda:1")       # ("cuda:0", "cuda:1")
    restrict(("cuda:2", "cuda:3"))       # ("cuda:0", "cuda:1"): the only two this process sees from now on

A device is called by its kind and number, ``cpu:0``, ``cuda:1``, ``tpu:0``, on every backend. A framework takes hold of
every accelerator that it sees, so a process that computes on the processor alone must see none: ``restrict`` comes
before the first use of a backend.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence

from starling.core.errors import ConfigError, RunError, UnknownNameError

__all__ = ["KINDS", "environment_for", "parse_devices", "restrict"]

KINDS = ("cpu", "cuda", "tpu")


def parse_devices(text: str) -> tuple[str, ...]:
    """The devices in a comma-separated text; a kind alone is its first device, an empty text means the default."""
    names = [name.strip() for name in text.split(",")] if text.strip() else []
    devices = tuple(_parse(name, text) for name in names)
    for device in devices:
        if devices.count(device) > 1:
            raise ConfigError(f"devices={text!r} names {device} twice; name each device once.")
    return devices


def _parse(name: str, text: str) -> str:
    kind, colon, number = name.partition(":")
    if kind not in KINDS:
        raise UnknownNameError("kind of device", kind, KINDS, f"devices={text!r}")
    if colon and not (number.isascii() and number.isdigit()):
        raise ConfigError(f"devices={text!r}: {name!r} arrived; expected a kind and a number, such as {kind}:0.")
    return f"{kind}:{int(number or 0)}"


def environment_for(devices: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that make ``devices`` the only ones a process sees, where ``environment`` holds those of now."""
    numbers = [int(device.partition(":")[2]) for device in devices if device.startswith("cuda:")]
    already = environment.get("CUDA_VISIBLE_DEVICES")
    if already is None:
        visible = [str(number) for number in numbers]
    else:  # cuda:1 is then the second of these
        known = [name.strip() for name in already.split(",") if name.strip()]
        absent = [number for number in numbers if number >= len(known)]
        if absent:
            raise ConfigError(
                f"device cuda:{absent[0]} was asked for, but CUDA_VISIBLE_DEVICES={already!r} shows {len(known)}; "
                "ask for another, or show it."
            )
        visible = [known[number] for number in numbers]
    variables = {"CUDA_VISIBLE_DEVICES": ",".join(visible)}
    if all(device.startswith("cpu:") for device in devices):
        variables["JAX_PLATFORMS"] = "cpu"
    return variables


def restrict(devices: Sequence[str], environment: MutableMapping[str, str] = os.environ) -> tuple[str, ...]:
    """Let this process see ``devices`` alone; returns what they are called from now on.

    Visible GPUs are numbered from 0, so ``cuda:2`` is ``cuda:0`` in a process that sees no other. No devices leave the
    process as it is.
    """
    if not devices:
        return ()
    variables = environment_for(devices, environment)
    changed = {name: value for name, value in variables.items() if environment.get(name) != value}
    if "JAX_PLATFORMS" in changed and "jax" in sys.modules:
        raise RunError(
            f"this process was to be kept to {', '.join(devices)}, but jax is loaded and has read JAX_PLATFORMS; "
            "call restrict before the first use of a backend."
        )
    environment.update(changed)
    numbers = iter(range(len(devices)))
    return tuple(f"cuda:{next(numbers)}" if device.startswith("cuda:") else device for device in devices)
