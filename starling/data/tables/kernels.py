"""Compiled loops that move rows, whatever their type.

Rows are bytes here: one compiled loop serves every signature. A *plan* is an int64 matrix with one line per leaf:
where its first row lies, the distance between rows, the bytes of one row, and where the copies go.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = [
    "SOURCE",
    "STRIDE",
    "TARGET",
    "WIDTH",
    "address",
    "copy_bytes",
    "count_at_most",
    "fence",
    "fill_bytes",
    "fill_zero",
    "gather_rows",
    "interleave_4x16",
    "load_1",
    "load_8",
    "prefetch",
    "same_bytes",
    "store_1",
]

SOURCE, STRIDE, WIDTH, TARGET = range(4)


def address(array: np.ndarray) -> int:
    """Where the array's first byte lies."""
    return int(array.__array_interface__["data"][0])


@intrinsic
def copy_bytes(typing_context: Any, target: Any, source: Any, count: Any) -> Any:
    """memcpy between two addresses given as integers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        cgutils.raw_memcpy(
            builder, builder.inttoptr(args[0], pointer), builder.inttoptr(args[1], pointer), args[2], itemsize=1
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def fill_zero(typing_context: Any, target: Any, count: Any) -> Any:
    """memset to zero at an address given as an integer."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
        cgutils.memset(builder, pointer, args[1], 0)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def fill_bytes(typing_context: Any, target: Any, value: Any, count: Any) -> Any:
    """memset at an address given as an integer."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
        cgutils.memset(builder, pointer, args[2], builder.trunc(args[1], ir.IntType(8)))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def load_1(typing_context: Any, source: Any) -> Any:
    """The byte at an address as a number from 0 to 255."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = builder.load(builder.inttoptr(args[0], ir.IntType(8).as_pointer()))
        return builder.zext(byte, ir.IntType(64))

    return types.int64(types.int64), generate


@intrinsic
def store_1(typing_context: Any, target: Any, value: Any) -> Any:
    """Write a number from 0 to 255 as the byte at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
        builder.store(builder.trunc(args[1], ir.IntType(8)), pointer)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def load_8(typing_context: Any, source: Any) -> Any:
    """The eight bytes at an address as an unsigned number."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()), align=1)

    return types.uint64(types.int64), generate


@intrinsic
def interleave_4x16(typing_context: Any, target: Any, one: Any, two: Any, three: Any, four: Any) -> Any:
    """Write sixteen bytes of each of four sources in turn: abcdabcd…, sixty-four bytes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sixteen, index = ir.VectorType(ir.IntType(8), 16), ir.IntType(32)
        a, b, c, d = (builder.load(builder.inttoptr(arg, sixteen.as_pointer()), align=1) for arg in args[1:])
        joined = ir.Constant(ir.VectorType(index, 32), list(range(32)))
        ab, cd = builder.shuffle_vector(a, b, joined), builder.shuffle_vector(c, d, joined)
        turns = [16 * source + i for i in range(16) for source in range(4)]
        mixed = builder.shuffle_vector(ab, cd, ir.Constant(ir.VectorType(index, 64), turns))
        builder.store(mixed, builder.inttoptr(args[0], mixed.type.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), generate


@intrinsic
def prefetch(typing_context: Any, source: Any) -> Any:
    """Ask for the bytes at an address, which will be read soon."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        ask = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        builder.call(ask, [builder.inttoptr(args[0], pointer), number(0), number(3), number(1)])  # read, keep, data
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def copy_8(typing_context: Any, target: Any, source: Any) -> Any:
    """Copy eight bytes: a load and a store, no call."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = ir.IntType(64).as_pointer()
        value = builder.load(builder.inttoptr(args[1], pointer), align=1)
        builder.store(value, builder.inttoptr(args[0], pointer), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def copy_4(typing_context: Any, target: Any, source: Any) -> Any:
    """Copy four bytes: a load and a store, no call."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = ir.IntType(32).as_pointer()
        value = builder.load(builder.inttoptr(args[1], pointer), align=1)
        builder.store(value, builder.inttoptr(args[0], pointer), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def count_at_most(typing_context: Any, source: Any, limit: Any) -> Any:
    """How many of the eight float64 at an address are at most ``limit``: one vector comparison."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        eight = ir.VectorType(ir.DoubleType(), 8)
        values = builder.load(builder.inttoptr(args[0], eight.as_pointer()), align=8)
        one = builder.insert_element(ir.Constant(eight, ir.Undefined), args[1], ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), 8), [0] * 8)
        below = builder.fcmp_ordered("<=", values, builder.shuffle_vector(one, one, zeros))
        bits = builder.zext(builder.bitcast(below, ir.IntType(8)), ir.IntType(64))
        return builder.ctpop(bits)

    return types.int64(types.int64, types.float64), generate


@intrinsic
def _fence(typing_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@njit(cache=True, nogil=True)
def fence():  # type: ignore[no-untyped-def]
    """All that this thread wrote before is seen by others before anything it writes or reads hereafter."""
    _fence()


@njit(cache=True, nogil=True)
def same_bytes(one, other, width):  # type: ignore[no-untyped-def]
    """Whether ``width`` bytes, at least eight, are equal at two addresses."""
    done = 0
    while done + 8 <= width:
        if load_8(one + done) != load_8(other + done):
            return False
        done += 8
    return done == width or load_8(one + width - 8) == load_8(other + width - 8)


@njit(cache=True, nogil=True, inline="always")
def copy_row(target, source, width):  # type: ignore[no-untyped-def]
    if width <= 64 and width % 4 == 0:
        done = np.int64(0)
        while done + 8 <= width:
            copy_8(target + done, source + done)
            done += 8
        if done < width:
            copy_4(target + done, source + done)
    else:
        copy_bytes(target, source, width)


@njit(cache=True, nogil=True)
def gather_rows(plan, slots, count):  # type: ignore[no-untyped-def]
    """Copy the rows ``slots`` of every leaf to the leaf's target, one after the other."""
    for i in range(count):
        for leaf in range(plan.shape[0]):
            width = plan[leaf, WIDTH]
            copy_row(plan[leaf, TARGET] + i * width, plan[leaf, SOURCE] + slots[i] * plan[leaf, STRIDE], width)
