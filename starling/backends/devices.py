"""Devices by name, and keeping a process to its own.

    parse_devices("cuda:0,cuda:1")                       # ("cuda:0", "cuda:1")
    environment_for(("cuda:2", "cuda:3"), os.environ)    # the variables of a process that sees these two alone …
    renumbered(("cuda:2", "cuda:3"))                     # … and calls them ("cuda:0", "cuda:1")

A device is called by its kind and number, ``cpu:0``, ``cuda:1``, ``tpu:0``, on every backend. A framework takes hold of
every accelerator that it sees, so a process that computes on the processor alone must see none, from its start.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from starling.core.errors import ConfigError, UnknownNameError

__all__ = ["KINDS", "check_elsewhere", "environment_for", "parse_devices", "renumbered"]

KINDS = ("cpu", "cuda", "tpu")


def parse_devices(given: Any, where: str = "devices") -> tuple[str, ...]:
    """The devices in a list, or a comma-separated text; a kind alone is its first device, nothing is the default."""
    names = [name.strip() for name in given.split(",") if given.strip()] if isinstance(given, str) else given
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{where}={given!r}; a list of devices was expected, such as [cuda:0, cuda:1].")
    devices = tuple(_parse(name, f"{where}={given!r}") for name in names)
    for device in devices:
        if devices.count(device) > 1:
            raise ConfigError(f"{where}={given!r} names {device} twice; name each device once.")
    return devices


def _parse(name: str, where: str) -> str:
    kind, colon, number = name.partition(":")
    if kind not in KINDS:
        raise UnknownNameError("kind of device", kind, KINDS, where)
    if colon and not (number.isascii() and number.isdigit()):
        raise ConfigError(f"{where}: {name!r} arrived; expected a kind and a number, such as {kind}:0.")
    return f"{kind}:{int(number or 0)}"


def environment_for(devices: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that make ``devices`` the only ones a process sees, where ``environment`` holds those of now.

    No devices leave the process as it is.
    """
    if not devices:
        return {}
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


def renumbered(devices: Sequence[str]) -> tuple[str, ...]:
    """What a process calls ``devices`` that sees no others: visible GPUs are numbered from 0."""
    numbers = iter(range(len(devices)))
    return tuple(f"cuda:{next(numbers)}" if device.startswith("cuda:") else device for device in devices)


def check_elsewhere(backend: str, devices: Sequence[str]) -> None:
    """Refuse devices that ``backend`` does not see, without this process taking hold of them: another looks."""
    done = subprocess.run([sys.executable, "-c", _CHECK, backend, *devices], capture_output=True, text=True)
    if done.returncode:
        raise ConfigError(done.stdout.strip() or done.stderr.strip())


_CHECK = """
import sys
from starling.backends import get_backend
from starling.core.errors import RequestError
try:
    get_backend(sys.argv[1]).check_devices(sys.argv[2:])
except RequestError as error:
    sys.exit(print(error) or 2)
"""
