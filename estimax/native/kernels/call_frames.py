"""Read the call frame that XLA passes to a compiled function.

    @cfunc(SIGNATURE, cache=True)
    def double(frame):
        if describes_itself(frame):
            return 0
        if not is_call(frame, 1, 1) or not is_matrix(argument(frame, 0)):
            return refusal(frame)
        matrix(output(frame, 0))[:] = 2 * matrix(argument(frame, 0))
        return 0

    register("estimax_double", double)      # once; then jax.ffi.ffi_call calls it

XLA calls a foreign function with the address of one C structure, `XLA_FFI_CallFrame` of
`xla/ffi/api/c_api.h` in jaxlib. Such functions are usually written in C++, which would
need a compiler wherever estimax is installed. Numba is installed already, so kernels
read the structure themselves. The fields that are read, in words of 8 bytes:

    frame       0 size  1 extension  2 interface  4 stage  5… arguments  10… outputs
    arguments   0 size  2 count  3 types (int32 each)  4 buffers (pointers); outputs too
    buffer      0 size  2 dtype  3 data  4 rank  5 dimensions (int64 each)
    interface   0 size  4 version (major, minor: int32 each)  6 the function that
                makes an error
    extension   1 kind  3 metadata;  metadata  3 version

Arguments and outputs are part of the frame; the others are pointed to. Every structure
begins with its size in bytes, and later versions of the interface only append fields.
Before a kernel reads anything else, it compares the sizes, the version, the stage, the
number of buffers, their dtypes and their ranks with what it was written for. It returns
an error otherwise.
"""

# Numba reads the types from the signatures, so annotations are left out.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import ctypes
from typing import Any

import jax
from llvmlite import ir  # type: ignore[import-untyped]  # it ships no types
from numba import carray, njit, types  # type: ignore[attr-defined]  # carray
from numba.extending import intrinsic
from numpy import uint64

from estimax.native.kernels.memory import get, load32, put

SIGNATURE = types.intp(types.intp)

# Fields of the structures, in words of 8 bytes; see the table above.
_SIZE = 0  # every structure: its size in bytes
_EXTENSION, _INTERFACE, _STAGE = 1, 2, 4  # frame
_ARGUMENTS, _OUTPUTS = 5, 10  # frame: where these inner structures begin
_COUNT, _TYPES, _BUFFERS = 2, 3, 4  # arguments and outputs
_DTYPE, _DATA, _RANK, _DIMENSIONS = 2, 3, 4, 5  # buffer
_KIND, _METADATA = 1, 3  # extension
_VERSION = 3  # metadata
_VERSION_OF_INTERFACE, _CREATE_ERROR = 4, 6  # interface
# The smallest sizes in bytes that include all fields read here.
_FRAME_BYTES, _LIST_BYTES, _BUFFER_BYTES, _INTERFACE_BYTES = 15 * 8, 5 * 8, 6 * 8, 7 * 8

# Values of enumerations in c_api.h.
_ASKS = 1  # extension kind: XLA asks for metadata
_EXECUTES = 3  # stage: buffers may be read
_IS_BUFFER = 1  # type of an argument or output
_INT32, _FLOAT32 = 4, 11  # dtypes
# Enumerations and versions have 4 bytes but are read as words of 8. Memory is
# little-endian, so the field itself is in the low half of the word.
_LOW = 0xFFFFFFFF
_MINOR = ~_LOW  # the minor version, in the high half behind the major one
_REFUSAL = "estimax: a kernel was called with buffers that it was not written for"
_INVALID_ARGUMENT = 3  # an error code


def register(name: str, function: Any) -> None:
    """Let XLA programs for the CPU call a Numba `cfunc` by this name."""
    # JAX takes the address of a foreign function as a PyCapsule.
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype = ctypes.py_object
    capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    made = capsule(function.address, None, None)
    jax.ffi.register_ffi_target(name, made, platform="cpu")


def _make_pointer(item):
    """Return pointer(address) -> a C pointer to items of this type, for `carray`."""

    def generate(context, builder, signature, args):
        kind = context.get_value_type(signature.return_type)
        return builder.inttoptr(args[0], kind)

    def pointer(typing, address):
        return types.CPointer(item)(types.intp), generate

    return intrinsic(pointer)


_to_numbers = _make_pointer(types.float32)
_to_ids = _make_pointer(types.int32)


@njit(forceinline=True)
def describes_itself(frame):
    """Return whether XLA only asks for this function's metadata; answer if it does.

    XLA calls every function once when it is registered, with a frame whose extension
    asks which version of the interface the function was written for.
    """
    # Such a frame has no arguments and outputs, and may end behind these fields.
    if frame == 0 or get(frame, _SIZE) < 8 * (_INTERFACE + 1):
        return False
    extension = get(frame, _EXTENSION)
    if extension == 0 or get(extension, _KIND) & _LOW != _ASKS:
        return False
    # Answer with XLA's own version as long as its major version is 0, because minor
    # versions only append fields. Old releases of jaxlib have no interface in this
    # frame and accept version 0.1.
    interface, version = get(frame, _INTERFACE), 1 << 32
    if interface != 0:
        version = get(interface, _VERSION_OF_INTERFACE) & _MINOR
    put(get(extension, _METADATA), _VERSION, version)
    return True


@njit(forceinline=True)
def is_call(frame, least, outputs):
    """Return whether a frame can be read and has the expected numbers of buffers.

    Args:
      frame: The address of the frame.
      least: The smallest number of arguments.
      outputs: The number of outputs.
    """
    # Sizes first: a field may only be read if its structure is known to include it.
    if frame == 0 or get(frame, _SIZE) < _FRAME_BYTES:
        return False
    interface = get(frame, _INTERFACE)
    if interface == 0 or get(interface, _SIZE) < _INTERFACE_BYTES:
        return False
    # Fields keep their places within a major version.
    if get(interface, _VERSION_OF_INTERFACE) & _LOW != 0:
        return False
    if get(frame, _STAGE) & _LOW != _EXECUTES:
        return False
    return (
        _are_buffers(frame + 8 * _ARGUMENTS, least)
        and _are_buffers(frame + 8 * _OUTPUTS, outputs)
        and get(frame, _OUTPUTS + _COUNT) == outputs
    )


@njit(forceinline=True)
def _are_buffers(group, least):
    """Return whether arguments or outputs are at least `least`, and all are buffers."""
    if get(group, _SIZE) < _LIST_BYTES or get(group, _COUNT) < least:
        return False
    for i in range(get(group, _COUNT)):
        if load32(get(group, _TYPES), 4 * i) != uint64(_IS_BUFFER):
            return False
        if get(get(get(group, _BUFFERS), i), _SIZE) < _BUFFER_BYTES:
            return False
    return True


@njit(forceinline=True)
def _is(buffer, dtype, rank):
    """Return whether a buffer has this dtype and rank."""
    found = get(buffer, _DTYPE) & _LOW
    return found == dtype and get(buffer, _RANK) == rank


@njit(forceinline=True)
def is_matrix(buffer):
    """Return whether a buffer is float32 [m, n]."""
    return _is(buffer, _FLOAT32, 2)


@njit(forceinline=True)
def is_number(buffer):
    """Return whether a buffer is a float32 scalar."""
    return _is(buffer, _FLOAT32, 0)


@njit(forceinline=True)
def is_ids(buffer, size):
    """Return whether a buffer is int32 [size]."""
    return _is(buffer, _INT32, 1) and dimension(buffer, 0) == size


@njit(forceinline=True)
def is_id_matrix(buffer, size):
    """Return whether a buffer is int32 [m, size]."""
    return _is(buffer, _INT32, 2) and dimension(buffer, 1) == size


def _refuse(typing, function):
    """Return make_error(address) -> error, which calls XLA's function at the address.

    Emits a C call with a pointer to the structure {size, extension, message, code} on
    the stack. Numba cannot call a function pointer of this type by itself.
    """

    def generate(context, builder, signature, args):
        word = ir.IntType(64)
        message = context.insert_const_string(builder.module, _REFUSAL)
        told = builder.alloca(ir.ArrayType(word, 4))
        parts = (
            word(4 * 8),  # the structure's size
            word(0),  # no extension
            builder.ptrtoint(message, word),
            word(_INVALID_ARGUMENT),
        )
        for i, part in enumerate(parts):
            place = builder.gep(told, [ir.IntType(32)(0), ir.IntType(32)(i)])
            builder.store(part, place)
        kind = ir.FunctionType(word, [told.type])
        made = builder.inttoptr(args[0], kind.as_pointer())
        return builder.call(made, [told])

    return types.intp(types.intp), generate


# `intrinsic` is called rather than used as a decorator: as a decorator, mypy would
# count the typing context among the arguments.
_make_error: Any = intrinsic(_refuse)


@njit(forceinline=True)
def refusal(frame):
    """Return the error for a frame that does not fit; 0 if none can be made.

    0 means success to XLA. Nothing has been written then, so the comparison of the
    kernels with XLA at first use (`loading.kernels`) fails and they are not used.
    """
    if frame == 0 or get(frame, _SIZE) < _FRAME_BYTES:
        return 0
    interface = get(frame, _INTERFACE)
    if interface == 0 or get(interface, _SIZE) < _INTERFACE_BYTES:
        return 0
    if get(interface, _VERSION_OF_INTERFACE) & _LOW != 0:
        return 0
    return _make_error(get(interface, _CREATE_ERROR))


@njit(forceinline=True)
def arguments(frame):
    """Return the number of arguments."""
    return get(frame, _ARGUMENTS + _COUNT)


@njit(forceinline=True)
def argument(frame, number):
    """Return the address of an argument's buffer structure."""
    return get(get(frame, _ARGUMENTS + _BUFFERS), number)


@njit(forceinline=True)
def output(frame, number):
    """Return the address of an output's buffer structure."""
    return get(get(frame, _OUTPUTS + _BUFFERS), number)


@njit(forceinline=True)
def dimension(buffer, axis):
    """Return the size of a buffer along an axis."""
    return get(get(buffer, _DIMENSIONS), axis)


@njit(forceinline=True)
def address(buffer):
    """Return the address of a buffer's first value."""
    return get(buffer, _DATA)


@njit(forceinline=True)
def number(buffer):
    """Return the value of a float32 scalar."""
    return carray(_to_numbers(address(buffer)), 1)[0]


@njit(forceinline=True)
def id_matrix(buffer):
    """Return an int32 buffer [m, n] as an array that shares its memory."""
    shape = (dimension(buffer, 0), dimension(buffer, 1))
    return carray(_to_ids(address(buffer)), shape)


@njit(forceinline=True)
def ids(buffer):
    """Return an int32 buffer [n] as an array that shares its memory."""
    return carray(_to_ids(address(buffer)), dimension(buffer, 0))


@njit(forceinline=True)
def matrix(buffer):
    """Return a float32 buffer [m, n] as an array that shares its memory."""
    shape = (dimension(buffer, 0), dimension(buffer, 1))
    return carray(_to_numbers(address(buffer)), shape)
