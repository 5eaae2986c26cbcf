"""Reading the frame that XLA hands to a compiled function.

    @cfunc(SIGNATURE, cache=True)
    def double(frame):
        if describes_itself(frame):
            return 0
        if not is_call(frame, 1, 1) or not is_matrix(argument(frame, 0)):
            return refusal(frame)
        matrix(output(frame, 0))[:] = 2 * matrix(argument(frame, 0))
        return 0

    register("estimax_double", double)      # once; then jax.ffi.ffi_call calls it

XLA's foreign functions get one C structure (`xla/ffi/api/c_api.h` of jaxlib). Written
in C++ they would need a compiler wherever estimax is installed; Numba is there already.
Every structure begins with its size in bytes. A kernel compares the sizes, the version
of the interface, the stage, the number of buffers, their dtypes and their ranks with
what it was written for before it reads anything else, and returns an error otherwise.
"""

# Numba has its own types; annotations would say nothing more.
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

# Places in the structures, counted in words of 8 bytes.
_SIZE = 0  # of every structure: its size in bytes
_EXTENSION, _INTERFACE, _STAGE = 1, 2, 4  # of a frame
_ARGUMENTS, _OUTPUTS = 5, 10  # of a frame: where these structures begin in it
_COUNT, _TYPES, _BUFFERS = 2, 3, 4  # of arguments and outputs
_DTYPE, _DATA, _RANK, _DIMENSIONS = 2, 3, 4, 5  # of a buffer
_KIND, _METADATA = 1, 3  # of an extension
_VERSION = 3  # of metadata
_VERSION_OF_INTERFACE, _CREATE_ERROR = 4, 6  # of the interface
# The least sizes in bytes, for the fields that are read here.
_FRAME_BYTES, _LIST_BYTES, _BUFFER_BYTES, _INTERFACE_BYTES = 15 * 8, 5 * 8, 6 * 8, 7 * 8

_ASKS = 1  # the kind of extension that asks for metadata
_EXECUTES = 3  # the stage in which buffers may be read
_IS_BUFFER = 1  # the type of an argument or output
_INT32, _FLOAT32 = 4, 11  # dtypes
_LOW = 0xFFFFFFFF  # enumerations have 4 bytes, of which the low ones come first
_MINOR = ~_LOW  # of a version: 4 bytes of the major one are below it
_REFUSAL = "estimax: a kernel was called with buffers that it was not written for"
_INVALID_ARGUMENT = 3  # an error code


def register(name: str, function: Any) -> None:
    """Let programs for the CPU call a `cfunc` by this name."""
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype = ctypes.py_object
    capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    made = capsule(function.address, None, None)
    jax.ffi.register_ffi_target(name, made, platform="cpu")


def _make_pointer(item):
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
    """Whether XLA only asked which version of its interface this is for; answered."""
    # A frame that asks has nothing else in it, and may be as short as these fields.
    if frame == 0 or get(frame, _SIZE) < 8 * (_INTERFACE + 1):
        return False
    extension = get(frame, _EXTENSION)
    if extension == 0 or get(extension, _KIND) & _LOW != _ASKS:
        return False
    # Ours is the present one, as long as its major version is 0: a minor one adds only.
    # Old releases of jaxlib do not say which is theirs, and are content with the first.
    interface, version = get(frame, _INTERFACE), 1 << 32
    if interface != 0:
        version = get(interface, _VERSION_OF_INTERFACE) & _MINOR
    put(get(extension, _METADATA), _VERSION, version)
    return True


@njit(forceinline=True)
def is_call(frame, least, outputs):
    """Whether a frame can be read and has `outputs` and at least `least` arguments."""
    if frame == 0 or get(frame, _SIZE) < _FRAME_BYTES:
        return False
    interface = get(frame, _INTERFACE)
    if interface == 0 or get(interface, _SIZE) < _INTERFACE_BYTES:
        return False
    # Within a major version fields are only added.
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
    """Whether arguments or outputs are at least so many, and all are buffers."""
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
    found = get(buffer, _DTYPE) & _LOW
    return found == dtype and get(buffer, _RANK) == rank


@njit(forceinline=True)
def is_matrix(buffer):
    """Whether a buffer is float32 [m, n]."""
    return _is(buffer, _FLOAT32, 2)


@njit(forceinline=True)
def is_number(buffer):
    """Whether a buffer is one float32."""
    return _is(buffer, _FLOAT32, 0)


@njit(forceinline=True)
def is_ids(buffer, size):
    """Whether a buffer is int32 [size]."""
    return _is(buffer, _INT32, 1) and dimension(buffer, 0) == size


def _refuse(typing, function):
    """Have XLA's function at an address make the error that says `_REFUSAL`."""

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


# Not a decorator: mypy would count the typing context among the arguments.
_make_error: Any = intrinsic(_refuse)


@njit(forceinline=True)
def refusal(frame):
    """The error to return for a frame that does not fit; 0 if none can be made.

    Then nothing is written, and the proof at first use finds another result.
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
    """How many arguments there are."""
    return get(frame, _ARGUMENTS + _COUNT)


@njit(forceinline=True)
def argument(frame, number):
    """An argument's buffer."""
    return get(get(frame, _ARGUMENTS + _BUFFERS), number)


@njit(forceinline=True)
def output(frame, number):
    """An output's buffer."""
    return get(get(frame, _OUTPUTS + _BUFFERS), number)


@njit(forceinline=True)
def dimension(buffer, axis):
    """A buffer's size along an axis."""
    return get(get(buffer, _DIMENSIONS), axis)


@njit(forceinline=True)
def address(buffer):
    """Where a buffer's first value is."""
    return get(buffer, _DATA)


@njit(forceinline=True)
def number(buffer):
    """The one value of a float32 buffer."""
    return carray(_to_numbers(address(buffer)), 1)[0]


@njit(forceinline=True)
def ids(buffer):
    """An int32 buffer [n] as an array."""
    return carray(_to_ids(address(buffer)), dimension(buffer, 0))


@njit(forceinline=True)
def matrix(buffer):
    """A float32 buffer [m, n] as an array."""
    shape = (dimension(buffer, 0), dimension(buffer, 1))
    return carray(_to_numbers(address(buffer)), shape)
