"""Memory operations that Numba lacks: unaligned loads and stores, prefetch, CRC-32C.

    address(array)                  # of the first item, as int64
    load64(data, at)                # 8 bytes at byte offset `at`, little-endian, uint64
    store32(data, at, value)        # write the low 32 bits of `value`
    get(address, i), put(address, i, value)     # item i of an int64 array
    move(target, to, source, at, count)         # memmove
    prefetch_to_read(address, size)             # start fetching cache lines

Nothing here checks bounds, and a negative offset is not counted from the end. The
calling kernel must compare every offset with the end of its buffer first.

`data` is a NumPy array or the `address` of one. Inner functions of kernels take
addresses: Numba updates the reference count of an array on every path through a
function that receives one, and in the parser that took longer than the parsing. An
address does not keep its array alive. The kernel does: it holds the array as an
argument until it returns.

Each function is an `intrinsic`: a `generate` function that emits LLVM instructions at
the call site, and a typing function that returns the signature with it.
"""

# Numba reads the types from the signatures, so annotations are left out.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import sys
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]  # it ships no types
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy import int64, uint64

# Each load is a single unaligned machine load. Hashing took twice as long when the
# number was assembled byte by byte. This works on little-endian processors only.
assert sys.byteorder == "little", "the kernels read bytes as little-endian numbers"

_WIDE = ir.IntType(64)


def _make_load(bits):
    """Return load(data, at) -> the little-endian integer of `bits` bits, as uint64."""
    integer = ir.IntType(bits)

    def generate(context, builder, signature, args):
        place = _place(context, builder, signature, args)
        loaded = builder.load(builder.bitcast(place, integer.as_pointer()))
        # Alignment 1 tells LLVM that the address may be odd. Without it LLVM assumes
        # natural alignment and may emit instructions that fault.
        loaded.align = 1
        return loaded if bits == 64 else builder.zext(loaded, _WIDE)

    def load(typing, data, at):
        return types.uint64(_kind(data), types.intp), generate

    return intrinsic(load)


def _make_store(bits):
    """Return store(data, at, value), which writes the low `bits` bits of the value."""
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
    """Return the argument type for `data`: an address (any integer) or an array."""
    return types.intp if isinstance(data, types.Integer) else data


def _place(context, builder, signature, args):
    """Emit the byte pointer `data + at` for the first two arguments of an intrinsic."""
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
    """Return the address of an array's first item."""

    def generate(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, _WIDE)

    return types.int64(array), generate


# `intrinsic` is called rather than used as a decorator: as a decorator, mypy would
# count the typing context among the arguments.
address: Any = intrinsic(_address)


@njit(forceinline=True)
def get(address, i):
    """Return item i of the int64 array at an address."""
    return int64(load64(address, 8 * i))


@njit(forceinline=True)
def put(address, i, value):
    """Set item i of the int64 array at an address."""
    store64(address, 8 * i, uint64(value))


def _move(typing, target, to, source, at, count):
    """Copy `count` bytes. Offsets are in bytes, and the ranges may overlap."""

    def generate(context, builder, signature, args):
        there = _place(context, builder, signature, args)
        # `_place` reads the first two arguments; skip (target, to) to reach the source.
        rest = signature.args[2:]
        here = _place(context, builder, types.void(*rest), args[2:])
        cgutils.raw_memmove(builder, there, here, args[4], 1)
        return context.get_dummy_value()

    places = (_kind(target), types.intp, _kind(source), types.intp, types.intp)
    return types.void(*places), generate


move: Any = intrinsic(_move)


def _make_add(count):
    """Return add(target, to, source, at), which adds `count` float32s to the target."""
    # A vector of four numbers is loaded, added and stored by one instruction each.
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
    """Return prefetch(address), which starts fetching the cache line there."""

    def generate(context, builder, signature, args):
        line, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [line, flag, flag, flag])
        fetch = cgutils.get_or_insert_function(
            builder.module, kind, "llvm.prefetch.p0i8"
        )
        # The flags of llvm.prefetch: 0 to read or 1 to write; locality 3, which keeps
        # the line in all cache levels; 1 for data rather than instructions.
        flags = [flag(int(for_writing)), flag(3), flag(1)]
        builder.call(fetch, [builder.inttoptr(args[0], line), *flags])
        return context.get_dummy_value()

    def prefetch(typing, address):
        return types.void(types.intp), generate

    return intrinsic(prefetch)


_prefetch_to_read, _prefetch_to_write = _make_prefetch(False), _make_prefetch(True)

# Rows of a large table are in no cache, so each access waits for memory. Kernels start
# fetching the row that comes this many iterations later.
ROWS_AHEAD = 16
_LINE = 64  # bytes of a cache line


@njit(forceinline=True)
def prefetch_to_read(address, size):
    """Start fetching `size` bytes that will be read soon.

    Any address is safe: the processor ignores a prefetch that it cannot translate.
    """
    # `address & -_LINE` rounds down to the first cache line that holds the bytes.
    for line in range(address & -_LINE, address + size, _LINE):
        _prefetch_to_read(line)


@njit(forceinline=True)
def prefetch_to_write(address, size):
    """Start fetching `size` bytes that will be written soon; any address is safe."""
    for line in range(address & -_LINE, address + size, _LINE):
        _prefetch_to_write(line)


def _make_crc_step(bits):
    """Return step(crc, value) -> crc, which is the CRC-32C instruction of SSE4.2.

    `bits` is how many bits of data one step consumes. The instruction for 64 bits takes
    and returns the CRC in a 64-bit register, the one for 8 bits in a 32-bit register.
    """
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
    """Return whether Numba compiles for a processor that has the CRC instruction."""
    from numba.core.registry import cpu_target

    # Ask Numba, not the machine: NUMBA_CPU_FEATURES may switch features off.
    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    return triple.startswith("x86_64") and "+sse4.2" in features.split(",")
