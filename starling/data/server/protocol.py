"""What a table server and its clients agree on: the layout of their segments and the places of the counters."""

from __future__ import annotations

from typing import Any

from starling.core.segments import Field
from starling.core.spaces import Dict

__all__ = [
    "CONSUMER_WAITS",
    "HEAD",
    "KEYS",
    "PRIORITY",
    "PROBABILITIES",
    "PRODUCER_WAITS",
    "TAIL",
    "UPDATE_HEAD",
    "UPDATE_KEYS",
    "UPDATE_PRIORITIES",
    "UPDATE_TAIL",
    "WEIGHTS",
    "describe",
    "sampler_fields",
    "writer_fields",
]

# Items or batches that were published, and those of them that were taken; flags of who sleeps until the bell rings.
HEAD, TAIL, CONSUMER_WAITS, PRODUCER_WAITS, UPDATE_HEAD, UPDATE_TAIL = range(6)
PRIORITY, KEYS, PROBABILITIES, WEIGHTS = "(priority)", "(keys)", "(probabilities)", "(weights)"
UPDATE_KEYS, UPDATE_PRIORITIES = "(update keys)", "(update priorities)"


def describe(signature: Dict) -> list[list[Any]]:
    """A signature as plain data: [path, shape, dtype] for each leaf."""
    return [[path, list(leaf.shape), leaf.dtype] for path, leaf in signature.items()]


def writer_fields(layout: list[list[Any]], slots: int) -> list[Field]:
    """A ring of ``slots`` items with their priorities (NaN: none given)."""
    leaves: list[Field] = [(path, (slots, *shape), dtype) for path, shape, dtype in layout]
    return [*leaves, (PRIORITY, (slots,), "float64")]


def sampler_fields(layout: list[list[Any]], batch: int, depth: int, updates: int) -> list[Field]:
    """A ring of ``depth`` batches, and another of priority updates on their way back."""
    leaves: list[Field] = [(path, (depth, batch, *shape), dtype) for path, shape, dtype in layout]
    numbers: list[Field] = [
        (KEYS, (depth, batch), "int64"),
        (PROBABILITIES, (depth, batch), "float64"),
        (WEIGHTS, (depth, batch), "float32"),
        (UPDATE_KEYS, (updates,), "int64"),
        (UPDATE_PRIORITIES, (updates,), "float64"),
    ]
    return [*leaves, *numbers]
