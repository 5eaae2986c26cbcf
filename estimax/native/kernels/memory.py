"""Compiled loads, stores, moves and sums in memory: what Numba lacks for kernels.

Nothing here checks a bound or wraps a negative place: the kernels that call these have
compared the place with the end of the buffer first.

Data is an array, or an `address` of one. Functions that kernels call get addresses:
Numba counts references to arrays on every way through a function, which took longer
than the parsing. Whoever takes an address keeps the array: kernels, their arguments.
"""

# Numba has its own types; annotations would say nothing more.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import sys
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]  # it ships no types
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy import int64, uint64

# One unaligned load each: put together byte by byte, hashing took twice as long.
assert sys.byteorder == "little", "the kernels read bytes as little-endian numbers"

_WIDE = ir.IntType(64)


def _make_load(bits):
    """A function (bytes, place) -> the little-endian integer there, as uint64."""
    integer = ir.IntType(bits)

    def generate(context, builder, signature, args):
        place = _place(context, builder, signature, args)
        loaded = builder.load(builder.bitcast(place, integer.as_pointer()))
        loaded.align = 1
        return loaded if bits == 64 else builder.zext(loaded, _WIDE)

    def load(typing, data, at):
        return types.uint64(_kind(data), types.intp), generate

    return intrinsic(load)


def _make_store(bits):
    """A function (bytes, place, value) that writes the value's low bits there."""
    integer = ir.IntType(bits)

    def generate(context, builder, signature, args):
        place = _place(context, builder, signature, args)
        value = args[2] if bits == 64 else builder.trunc(args[2], integer)
        stored = builder.store(value, builder.bitcast(place, integer.as_pointer()))
        stored.align = 1
        return context.get_dummy_value()

    def store(typing, data, at, value):
        return types.void(_kind(data), types.intp, types.uint64), generate

    return intrinsic(store)


def _kind(data):
    return types.intp if isinstance(data, types.Integer) else data


def _place(context, builder, signature, args):
    kind = signature.args[0]
    if isinstance(kind, types.Integer):
        start = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
    else:
        array = context.make_array(kind)(context, builder, args[0])
        start = builder.bitcast(array.data, ir.IntType(8).as_pointer())
    return builder.gep(start, [args[1]])


load8, load32, load64 = _make_load(8), _make_load(32), _make_load(64)
store8, store32, store64 = _make_store(8), _make_store(32), _make_store(64)


def _address(typing, array):
    """Where an array's items begin in memory."""

    def generate(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, _WIDE)

    return types.int64(array), generate


# Not as decorators: mypy would count the typing context among the arguments.
address: Any = intrinsic(_address)


@njit(forceinline=True)
def get(address, i):
    """Item i of an int64 array."""
    return int64(load64(address, 8 * i))


@njit(forceinline=True)
def put(address, i, value):
    """Set item i of an int64 array."""
    store64(address, 8 * i, uint64(value))


def _move(typing, target, to, source, at, count):
    """Copy `count` bytes; the ranges may overlap, and places are counted in bytes."""

    def generate(context, builder, signature, args):
        there = _place(context, builder, signature, args)
        rest = signature.args[2:]
        here = _place(context, builder, types.void(*rest), args[2:])
        cgutils.raw_memmove(builder, there, here, args[4], 1)
        return context.get_dummy_value()

    places = (_kind(target), types.intp, _kind(source), types.intp, types.intp)
    return types.void(*places), generate


move: Any = intrinsic(_move)


def _make_add(count):
    """A function (data, place, others, place) that adds `count` float32s to data's."""
    numbers = ir.VectorType(ir.FloatType(), count)

    def numbers_at(context, builder, kinds, args):
        place = _place(context, builder, types.void(*kinds), args)
        return builder.bitcast(place, numbers.as_pointer())

    def generate(context, builder, signature, args):
        to = numbers_at(context, builder, signature.args[:2], args[:2])
        source = numbers_at(context, builder, signature.args[2:], args[2:])
        sums = builder.fadd(builder.load(to, align=4), builder.load(source, align=4))
        builder.store(sums, to, align=4)
        return context.get_dummy_value()

    def add(typing, target, to, source, at):
        kinds = _kind(target), types.intp, _kind(source), types.intp
        return types.void(*kinds), generate

    return intrinsic(add)


add_one, add_four = _make_add(1), _make_add(4)


def _make_prefetch(for_writing):
    """A function (address) that has the processor fetch the line of memory there."""

    def generate(context, builder, signature, args):
        line, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [line, flag, flag, flag])
        fetch = cgutils.get_or_insert_function(
            builder.module, kind, "llvm.prefetch.p0i8"
        )
        # To be read or written, kept in every cache, data.
        flags = [flag(int(for_writing)), flag(3), flag(1)]
        builder.call(fetch, [builder.inttoptr(args[0], line), *flags])
        return context.get_dummy_value()

    def prefetch(typing, address):
        return types.void(types.intp), generate

    return intrinsic(prefetch)


_prefetch_to_read, _prefetch_to_write = _make_prefetch(False), _make_prefetch(True)

# Rows of a large table are not in any cache: so many are on their way at a time.
ROWS_AHEAD = 16
_LINE = 64  # bytes


@njit(forceinline=True)
def prefetch_to_read(address, size):
    """Have bytes fetched that will be read soon. Any address will do."""
    for line in range(address & -_LINE, address + size, _LINE):
        _prefetch_to_read(line)


@njit(forceinline=True)
def prefetch_to_write(address, size):
    """Have bytes fetched that will be written soon. Any address will do."""
    for line in range(address & -_LINE, address + size, _LINE):
        _prefetch_to_write(line)


def _make_crc_step(bits):
    """A function (crc, value) -> crc: the processor's own CRC-32C instruction."""
    integer, crc = ir.IntType(bits), ir.IntType(64 if bits == 64 else 32)
    name = f"llvm.x86.sse42.crc32.{crc.width}.{bits}"

    def generate(context, builder, signature, args):
        kind = ir.FunctionType(crc, [crc, integer])
        step = cgutils.get_or_insert_function(builder.module, kind, name)
        if bits == 64:
            return builder.call(step, args)
        narrow = [builder.trunc(args[0], crc), builder.trunc(args[1], integer)]
        return builder.zext(builder.call(step, narrow), _WIDE)

    def advance(typing, value, data):
        return types.uint64(types.uint64, types.uint64), generate

    return intrinsic(advance)


crc_step8, crc_step64 = _make_crc_step(8), _make_crc_step(64)


def has_crc_instruction() -> bool:
    """Whether the code that Numba makes here may use `crc_step8` and `crc_step64`."""
    from numba.core.registry import cpu_target

    # What Numba compiles for, which NUMBA_CPU_FEATURES may set lower than the machine.
    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    return triple.startswith("x86_64") and "+sse4.2" in features.split(",")
