"""Chunks in a file: raw buffers one behind the other, described by a JSON index.

    write_chunk(file, chunk)        # -> a description, for json.dumps
    read_chunk(memory, description) # arrays that share the mapped memory

Any column in any structure; nothing in the file is ever executed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.ragged import Ragged
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.chunks import Chunk, Columns, Elements
from estimax.input.columns import as_column
from estimax.input.structure import Structure

# Mapped arrays begin at multiples of this, as every dtype and SIMD load likes.
_ALIGNMENT = 64


def write_chunk(file: BinaryIO, chunk: Chunk) -> Any:
    """Append a chunk; what `read_chunk` needs to find it again."""
    if isinstance(chunk, Columns):
        return {"rows": len(chunk), "tree": _write(file, chunk.tree)}
    return {"items": [_write(file, item) for item in chunk.items]}


def read_chunk(memory: NDArray[np.uint8], described: Any) -> Chunk:
    """A chunk whose arrays are views of the mapped file, which cannot be written to."""
    if "rows" in described:
        return Columns(_read(memory, described["tree"]), int(described["rows"]))
    return Elements([_read(memory, item) for item in described["items"]])


def _write(file: BinaryIO, tree: Structure) -> Any:
    if isinstance(tree, Mapping):
        return {"dict": [[key, _write(file, value)] for key, value in tree.items()]}
    if isinstance(tree, tuple):
        return {"tuple": [_write(file, value) for value in tree]}
    if tree is None:
        return {"none": True}
    if isinstance(tree, bytes):
        return {"bytes": _write(file, np.frombuffer(tree, np.uint8))}
    column = as_column(tree)
    if isinstance(column, Sparse):
        both = [_write(file, np.ascontiguousarray(column.indices))]
        both.append(_write(file, column.values))
        return {"sparse": both, "shape": [int(n) for n in column.dense_shape]}
    if isinstance(column, Ragged):
        parts = [_write(file, part) for part in (column.values, *column.row_splits)]
        return {"ragged": parts}
    if isinstance(column, Strings):
        first, last = column.offsets[0], column.offsets[-1]
        both = [_write(file, column.data[first:last])]
        both.append(_write(file, column.offsets - first))
        return {"text": both, "shape": list(column.shape)}
    array = column
    start = -(-file.tell() // _ALIGNMENT) * _ALIGNMENT
    file.write(bytes(start - file.tell()))
    file.write(np.ascontiguousarray(array).tobytes())
    return {"array": [array.dtype.str, list(array.shape), start]}


def _read(memory: NDArray[np.uint8], saved: Any) -> Structure:
    if "array" in saved:
        dtype, shape, start = saved["array"]
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if start + size > len(memory):
            raise InputError(
                f"a cache file is cut short: expected {start + size} bytes or more, "
                f"found {len(memory)}. Delete the cache; it is made again."
            )
        return memory[start : start + size].view(dtype).reshape(shape)
    if "dict" in saved:
        return {key: _read(memory, value) for key, value in saved["dict"]}
    if "tuple" in saved:
        return tuple(_read(memory, value) for value in saved["tuple"])
    if "bytes" in saved:
        return _read(memory, saved["bytes"]).tobytes()
    if "text" in saved:
        data, offsets = (_read(memory, part) for part in saved["text"])
        return Strings(data, offsets, tuple(saved["shape"]))
    if "sparse" in saved:
        indices, values = (_read(memory, part) for part in saved["sparse"])
        return Sparse(indices, values, tuple(saved["shape"]))
    if "ragged" in saved:
        values, *splits = (_read(memory, part) for part in saved["ragged"])
        return Ragged(values, tuple(splits))
    return None
