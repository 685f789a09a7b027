"""Who learns and who acts: ``auto`` resolved by what was measured (see docs/architecture.md)."""

from __future__ import annotations

from dataclasses import dataclass

from starling.algorithms.base import Algorithm
from starling.backends import available, get_backend
from starling.components.graph.assembly import Assembly
from starling.components.graph.shapes import SIZES, batch_axis
from starling.components.networks.modules import required_backend
from starling.core.machine import processors
from starling.core.trees import leaves

__all__ = ["Backends", "choose_backends", "limit_threads"]

SMALL = 300_000  # parameters up to which NumPy acts faster than a compiled graph
WORTH_THREADS = 3e8  # operations of a gradient step below which handing work to threads costs more than it saves


@dataclass(frozen=True)
class Backends:
    """Who learns and who acts, and why."""

    learn: str
    act: str
    reason: str


def choose_backends(assembly: Assembly, learn: str, act: str) -> Backends:
    """Resolve ``auto`` by what was measured: see docs/architecture.md."""
    images = any(len(spec.shape) == 4 for spec in assembly.parameters.values())
    small = assembly.parameter_count <= SMALL and not images
    needed = required_backend(assembly.root)
    if learn == "auto":
        learn = needed or ("torch" if images and "torch" in available() else "jax")
    if act == "auto":
        act = needed or ("numpy" if small else learn)
    size = f"{assembly.parameter_count:,} parameters{' with convolutions' if images else ''}"
    return Backends(learn, act, size)


def update_flops(algorithm: Algorithm, assembly: Assembly) -> float:
    """Roughly the floating-point operations of one gradient step: the loss forward and twice that backward."""
    timed = any(batch_axis(leaf) == 1 for leaf in leaves(assembly.arguments.get("loss", {}).get("batch")))
    traced = SIZES["batch"] * (SIZES["time"] if timed else 1)
    loss = next((call.flops for call in assembly.calls if call.api == "loss"), 0.0)
    return 3.0 * loss * algorithm.step_rows / traced


def limit_threads(assembly: Assembly, backend: str, roles: int = 1) -> None:
    """Keep a backend to one thread where more cost more than they save: for small work (NumPy acts on few rows at a
    time), and where every processor has a role of its own, because threads that wait for each other spin."""
    algorithm: Algorithm = assembly.root  # type: ignore[assignment]
    small = backend == "numpy" or update_flops(algorithm, assembly) < WORTH_THREADS
    if small or (roles > 1 and roles >= processors()):
        get_backend(backend).prefer_one_thread()
