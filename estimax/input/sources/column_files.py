"""Chunks as bytes: their buffers one behind the other, and a description in JSON.

    data, described = pack_chunk(chunk)       # `described` is for json.dumps
    unpack_chunk(buffer, described)           # arrays that share the buffer's memory

Any column in any structure; nothing in a description is ever executed. Unpacking checks
every size, offset and dtype before an array is made, because columns go to compiled
kernels, which do not check them: a wrong offset there ends the process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.streams.chunks import Chunk, Columns, Elements
from estimax.input.streams.columns import as_column, row_count
from estimax.input.streams.ragged import Ragged
from estimax.input.streams.structure import Structure, named_leaves

# Arrays begin at multiples of this in their chunk, as every dtype and SIMD load likes.
ALIGNMENT = 64
# Structures of examples are a few levels deep.
_DEEPEST = 64


class DescriptionError(InputError):
    """A description that is damaged, or does not fit its buffer."""


def pack_chunk(chunk: Chunk) -> tuple[bytearray, Any]:
    """Return a chunk's bytes, and what `unpack_chunk` needs to find it in them."""
    data = bytearray()
    if isinstance(chunk, Columns):
        return data, {"rows": len(chunk), "tree": _pack(data, chunk.tree)}
    return data, {"items": [_pack(data, item) for item in chunk.items]}


def unpack_chunk(buffer: NDArray[np.uint8], described: Any) -> Chunk:
    """Return a chunk whose arrays are views of the buffer.

    Raises:
      DescriptionError: The description is malformed or does not fit the buffer.
    """
    try:
        if "rows" not in described:
            return Elements([_unpack(buffer, item) for item in described["items"]])
        rows = _count(described["rows"])
        tree = _unpack(buffer, described["tree"])
        for name, column in named_leaves(tree):
            found = row_count(column, name)
            _check(found == rows, f"{name or 'a column'} has {found} rows, not {rows}")
        return Columns(tree, rows)
    except DescriptionError:
        raise
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DescriptionError(f"its description is malformed ({error})") from error


def _pack(data: bytearray, tree: Structure) -> Any:
    if isinstance(tree, Mapping):
        return {"dict": [[key, _pack(data, value)] for key, value in tree.items()]}
    if isinstance(tree, tuple):
        return {"tuple": [_pack(data, value) for value in tree]}
    if tree is None:
        return {"none": True}
    if isinstance(tree, bytes):
        return {"bytes": _pack(data, np.frombuffer(tree, np.uint8))}
    column = as_column(tree)
    if isinstance(column, Sparse):
        both = [_pack(data, np.ascontiguousarray(column.indices))]
        both.append(_pack(data, column.values))
        return {"sparse": both, "shape": [int(n) for n in column.dense_shape]}
    if isinstance(column, Ragged):
        parts = [_pack(data, part) for part in (column.values, *column.row_splits)]
        return {"ragged": parts}
    if isinstance(column, Strings):
        first, last = column.offsets[0], column.offsets[-1]
        both = [_pack(data, column.data[first:last])]
        both.append(_pack(data, column.offsets - first))
        return {"text": both, "shape": list(column.shape)}
    array = column
    data += bytes(-len(data) % ALIGNMENT)
    start = len(data)
    data += np.ascontiguousarray(array).tobytes()
    return {"array": [array.dtype.str, list(array.shape), start]}


def _unpack(buffer: NDArray[np.uint8], saved: Any, depth: int = 0) -> Structure:
    _check(depth < _DEEPEST, f"it nests deeper than {_DEEPEST} levels")
    if "dict" in saved:
        return {k: _unpack(buffer, value, depth + 1) for k, value in saved["dict"]}
    if "tuple" in saved:
        return tuple(_unpack(buffer, value, depth + 1) for value in saved["tuple"])
    if "none" in saved:
        return None
    if "bytes" in saved:
        return _array(buffer, saved["bytes"]).tobytes()
    return _column(buffer, saved)


def _column(buffer: NDArray[np.uint8], saved: Any) -> Any:  # a column of any kind
    if "text" in saved:
        return _strings(buffer, saved)
    if "sparse" in saved:
        return _sparse(buffer, saved)
    if "ragged" in saved:
        values, *parts = saved["ragged"]
        column = _values(buffer, values)
        splits = tuple(_array(buffer, part) for part in parts)
        ends = [*(len(inner) - 1 for inner in splits[1:]), len(column)]
        for one, end in zip(splits, ends, strict=True):
            _check_offsets(one, end, "the row splits of a ragged column")
        return Ragged(column, splits)
    return _array(buffer, saved)


def _values(buffer: NDArray[np.uint8], saved: Any) -> NDArray[Any] | Strings:
    """The values of a sparse or ragged column: numbers or text."""
    return _strings(buffer, saved) if "text" in saved else _array(buffer, saved)


def _array(buffer: NDArray[np.uint8], saved: Any) -> NDArray[Any]:
    name, shape, start = saved["array"]
    _check(isinstance(name, str), f"{name!r} is no dtype")
    dtype = np.dtype(name)
    _check(not dtype.hasobject and dtype.itemsize > 0, f"it holds dtype {name!r}")
    dims = tuple(_count(n) for n in shape)
    # In Python's integers, which do not overflow.
    end = _count(start) + math.prod(dims) * dtype.itemsize
    _check(end <= len(buffer), f"an array ends at byte {end} of {len(buffer)}")
    array: NDArray[Any] = buffer[start:end].view(dtype).reshape(dims)
    return array


def _strings(buffer: NDArray[np.uint8], saved: Any) -> Strings:
    data, offsets = (_array(buffer, part) for part in saved["text"])
    shape = tuple(_count(n) for n in saved["shape"])
    _check(data.dtype == np.uint8 and data.ndim == 1, "the bytes of text are no bytes")
    _check(len(offsets) == math.prod(shape) + 1, "text has too few or many offsets")
    _check_offsets(offsets, len(data), "the offsets of text")
    return Strings(data, offsets, shape)


def _sparse(buffer: NDArray[np.uint8], saved: Any) -> Sparse:
    places, values = saved["sparse"]
    indices, column = _array(buffer, places), _values(buffer, values)
    shape = tuple(_count(n) for n in saved["shape"])
    is_right = indices.dtype == np.int64 and indices.shape == (len(column), len(shape))
    _check(is_right, "the indices of a sparse column do not fit its values")
    if len(shape) > 1 and len(indices):
        # Those of further axes come from the data and may be anything, as in TF.
        rows = indices[:, 0]
        in_range = rows[0] >= 0 and rows[-1] < shape[0]
        is_sorted = bool((rows[1:] >= rows[:-1]).all())
        _check(in_range and is_sorted, "the rows of a sparse column are out of range")
    return Sparse(indices, column, shape)


def _check_offsets(offsets: NDArray[Any], end: int, what: str) -> None:
    _check(offsets.ndim == 1 and offsets.dtype.kind == "i" and len(offsets), what)
    is_right = offsets[0] == 0 and offsets[-1] == end
    is_right = bool(is_right and (offsets[1:] >= offsets[:-1]).all())
    _check(is_right, f"{what} do not ascend from 0 to {end}")


def _count(value: Any) -> int:
    _check(type(value) is int and value >= 0, f"{value!r} is no count")
    return int(value)


def _check(is_right: Any, what: str) -> None:
    if not is_right:
        raise DescriptionError(what)
