"""What a draw returns, in buffers that are used again; and the importance weights of a draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from starling.core.errors import ConfigError
from starling.data.tables.draw_kernels import rarity
from starling.data.tables.kernels import SOURCE, STRIDE, TARGET, WIDTH, address
from starling.data.tables.layout import Columns

__all__ = ["Results", "Sample", "check_beta", "make_sample", "weigh"]

IN_TURN = 2  # results, where the caller does not say


def check_beta(beta: float) -> float:
    """The exponent of importance weights; ConfigError where it is none."""
    if not 0 <= beta <= 1:
        raise ConfigError(f"beta={beta}; the exponent of importance weights lies between 0 (none) and 1 (full).")
    return beta


@dataclass(eq=False, slots=True)
class Sample:
    """Drawn items: ``data`` is a tree like the signature with a leading batch dimension.

    ``probabilities`` are the chances with which the items were drawn; ``weights`` correct for them (all one unless
    the sampler is prioritized). The remaining fields are the table's own.
    """

    data: Any
    keys: np.ndarray
    probabilities: np.ndarray
    weights: np.ndarray
    batch_size: int
    owner: Columns
    slots: np.ndarray
    uniforms: np.ndarray
    rest: np.ndarray
    leaves: list[np.ndarray]
    plan: np.ndarray


def make_sample(columns: Columns, batch_size: int, given: Mapping[str, np.ndarray] | None = None) -> Sample:
    """Buffers for a batch, and the plan by which rows are copied into them.

    ``given`` brings the buffers by the paths of the leaves, with keys, probabilities and weights in parentheses. They
    are left as they are: there may be a draw in them already.
    """
    if given is None:
        leaves = columns.empty(batch_size)
        given = {
            "(keys)": np.empty(batch_size, np.int64),
            "(probabilities)": np.empty(batch_size),
            "(weights)": np.ones(batch_size, np.float32),
        }
    else:
        leaves = [given[path] for path in columns.paths]
    keys, probabilities, weights = (given[name] for name in ("(keys)", "(probabilities)", "(weights)"))
    plain = [i for i in range(len(leaves)) if i not in columns.pools]
    plan = np.empty((len(plain), 4), np.int64)
    for line, i in enumerate(plain):
        plan[line, SOURCE], plan[line, STRIDE] = address(columns.arrays[i]), columns.arrays[i].strides[0]
        plan[line, WIDTH], plan[line, TARGET] = columns.widths[i], address(leaves[i])
    return Sample(
        data=columns.tree(leaves),
        keys=keys,
        probabilities=probabilities,
        weights=weights,
        batch_size=batch_size,
        owner=columns,
        slots=np.empty(batch_size, np.int64),
        uniforms=np.empty(batch_size),
        rest=np.empty(batch_size),
        leaves=leaves,
        plan=plan,
    )


def weigh(sample: Sample, beta: float) -> None:
    """Set the weights of a draw: (items · probability) ** −beta, divided by the largest of the batch."""
    rarity(sample.probabilities, sample.batch_size, sample.weights)
    np.power(sample.weights, np.float32(beta), out=sample.weights)


class Results:
    """Results that are handed out in turn, and used again some calls later: when whoever was lent one is done."""

    def __init__(self, columns: Columns, in_turn: int = IN_TURN) -> None:
        self._columns, self._in_turn = columns, in_turn
        self._made: dict[int, list[Sample]] = {}
        self._turn = 0
        self._lent: dict[int, Callable[[], None]] = {}  # by the identity of a result's keys

    def next(self, batch_size: int) -> Sample:
        of_size = self._made.get(batch_size)
        if of_size is None:
            of_size = self._made[batch_size] = [make_sample(self._columns, batch_size) for _ in range(self._in_turn)]
        self._turn += 1
        sample = of_size[self._turn % self._in_turn]
        if self._lent:
            self._lent.pop(id(sample.keys), _nothing)()
        return sample

    def lend(self, keys: np.ndarray, wait: Callable[[], None]) -> None:
        """``wait`` returns when the result with these ``keys`` may be written to again."""
        self._lent[id(keys)] = wait


def _nothing() -> None:
    """There is nothing to wait for."""
