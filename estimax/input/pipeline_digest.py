"""Recipes: a digest of the verbs of a dataset and of their arguments.

    digest_of(dataset.node)       # "8c1f…", the same in another process

Two `train` calls continue in the same data only if it is the same: the fingerprint
compares files and arrays, the digest what the verbs do with them. `filter` with another
function, or `take` with another number, gives another digest. A function is compared by
its compiled code and by the values that it uses from outside, so far as they are
numbers, text, containers, arrays, dataclasses or other functions.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import zlib
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from estimax.input.sources.arrays import Range, Slices
from estimax.input.sources.file_blocks import FileBlocks
from estimax.input.streams.stream import DatasetNode, inner_nodes

_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, np.generic)


def digest_of(node: DatasetNode) -> str | None:
    """Return the digest; None if a source, such as a generator, has no fingerprint.

    >>> from estimax.input import Dataset
    >>> one, other = (Dataset.range(10).take(n) for n in (3, 4))
    >>> digest_of(one.node) == digest_of(other.node)
    False
    """
    if not all(isinstance(one, FileBlocks | Slices | Range) for one in _leaves(node)):
        return None
    digest = hashlib.blake2b(digest_size=16)
    for part in _parts(node, {}):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _leaves(node: DatasetNode) -> Iterator[DatasetNode]:
    inner = inner_nodes(node)
    if not inner:
        yield node
    for one in inner:
        yield from _leaves(one)


def _parts(value: Any, seen: dict[int, Any]) -> Iterator[str]:
    """Yield texts that differ if the values differ.

    `seen` ends cycles. It keeps the values, because the id of a value that was freed
    may be given to another one.
    """
    if isinstance(value, _PLAIN):
        yield repr(value)
        return
    yield _type_name(value)
    if id(value) in seen:
        return
    seen[id(value)] = value
    if isinstance(value, FileBlocks):
        # The fingerprint compares the files, which may have moved to another folder.
        seen[id(value.paths)] = value.paths
    if isinstance(value, np.ndarray):
        yield f"{value.dtype}{value.shape}"
        if value.dtype.hasobject:
            yield from _parts(value.tolist(), seen)
        else:
            yield str(zlib.crc32(np.ascontiguousarray(value).tobytes()))
    else:
        for member in _members(value):
            yield from _parts(member, seen)


def _members(value: Any) -> Iterator[Any]:
    """Yield what a value consists of; nothing if that is not known."""
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, set | frozenset):
        yield from sorted(value, key=repr)
    elif isinstance(value, list | tuple):
        yield from value
    elif isinstance(value, FunctionType):
        yield from _function_members(value)
    elif isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, CodeType):
        yield from (value.co_code, value.co_names, value.co_consts)
    elif isinstance(value, type | ModuleType):
        yield _name(value)
    elif isinstance(value, Slices):
        return  # the fingerprint compares the arrays
    elif dataclasses.is_dataclass(value):
        # Fields that do not change the elements are declared with compare=False.
        fields = (one for one in dataclasses.fields(value) if one.compare)
        yield from (getattr(value, one.name) for one in fields)
    elif hasattr(value, "__wrapped__"):  # such as a function in jax.jit
        yield value.__wrapped__
    elif callable(value) and hasattr(value, "__dict__"):
        yield from (type(value).__call__, vars(value))


def _function_members(function: FunctionType) -> Iterator[Any]:
    """Yield the code of a function, its defaults and the values from outside."""
    yield from (function.__code__, function.__defaults__, function.__kwdefaults__)
    try:
        outside = inspect.getclosurevars(function)
    except ValueError:  # a variable that has no value yet
        return
    yield outside.nonlocals
    for name, value in outside.globals.items():
        if not isinstance(value, FunctionType):
            yield name, value
        elif value.__module__ == function.__module__:
            yield value
        else:  # the code of other modules uses values that change, such as caches
            yield _name(value)


def _type_name(value: Any) -> str:
    return _name(type(value))


def _name(value: Any) -> str:
    """Return the full name of a function, class or module."""
    module = getattr(value, "__module__", None)
    return f"{module}.{getattr(value, '__qualname__', value.__name__)}"
