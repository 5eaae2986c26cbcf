"""A checksum of the rows of a batch, by which processes notice that theirs differ."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.staging.host_plan import RawBatch


def checksum_of_rows(batch: RawBatch, crc: int = 0) -> int:
    """Return a CRC of the names, types, shapes and bytes of all values of a batch.

    `crc` is that of the batches before it.

    >>> from estimax.staging.trace import Origin
    >>> x = Origin("features", "x")
    >>> checksum_of_rows({x: np.ones(3)}) == checksum_of_rows({x: np.zeros(3)})
    False
    """
    for origin in sorted(batch, key=lambda one: one.name):
        crc = zlib.crc32(origin.name.encode(), crc)
        for array in _arrays_of(batch[origin]):
            crc = zlib.crc32(f"{array.dtype}{array.shape}".encode(), crc)
            flat = np.ascontiguousarray(array).reshape(-1)
            crc = zlib.crc32(flat.view(np.uint8).data, crc)
    return crc


def _arrays_of(value: Any) -> Iterator[Any]:
    """Yield the arrays of numbers that a raw value consists of."""
    if isinstance(value, Strings):
        yield value.lengths.reshape(value.shape)
        yield value.data[value.offsets[0] : value.offsets[-1]]
    elif isinstance(value, Sparse):
        yield value.indices
        yield from _arrays_of(value.values)
    else:
        yield np.asarray(value)
