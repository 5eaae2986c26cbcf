"""How a compiled function is called by an XLA program: the frame it is handed.

    @cfunc(SIGNATURE, cache=True)
    def double(frame):
        if describes_itself(frame):
            return 0
        matrix(output(frame, 0))[:] = 2 * matrix(argument(frame, 0))
        return 0

    register("estimax_double", double)      # once; then jax.ffi.ffi_call calls it

XLA's foreign functions get one C structure (`xla/ffi/api/c_api.h` of jaxlib, whose
layout is stable for a year at a time). Written in C++ they would need a compiler
wherever estimax is installed; Numba is there already. A function returns 0: no error.
"""

# Numba has its own types; annotations would say nothing more.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import ctypes
from typing import Any

import jax
from numba import carray, njit, types  # type: ignore[attr-defined]  # carray
from numba.extending import intrinsic

from estimax.native.kernels.memory import get, put

SIGNATURE = types.intp(types.intp)

# The places of 8 bytes in the structures, counted from 0.
_EXTENSION, _INTERFACE = 1, 2  # of a frame
_COUNT = 7  # of a frame: the number of its arguments
_ARGUMENTS, _OUTPUTS = 9, 14  # of a frame: pointers to pointers to buffers
_DATA, _DIMENSIONS = 3, 5  # of a buffer
_KIND, _METADATA = 1, 3  # of an extension
_ASKS = 1  # the kind that asks for metadata
_VERSION, _VERSION_OF_INTERFACE = 3, 4  # of metadata, and of the interface
_MINOR = ~0xFFFFFFFF  # of a version: 4 bytes of the major one are below it


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
    extension = get(frame, _EXTENSION)
    if extension == 0 or get(extension, _KIND) & 0xFFFFFFFF != _ASKS:
        return False
    # Ours is the present one, as long as its major version is 0: a minor one adds only.
    # Old releases of jaxlib do not say which is theirs, and are content with the first.
    interface, version = get(frame, _INTERFACE), 1 << 32
    if interface != 0:
        version = get(interface, _VERSION_OF_INTERFACE) & _MINOR
    put(get(extension, _METADATA), _VERSION, version)
    return True


@njit(forceinline=True)
def arguments(frame):
    """How many arguments there are."""
    return get(frame, _COUNT)


@njit(forceinline=True)
def argument(frame, number):
    """An argument's buffer."""
    return get(get(frame, _ARGUMENTS), number)


@njit(forceinline=True)
def output(frame, number):
    """An output's buffer."""
    return get(get(frame, _OUTPUTS), number)


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
