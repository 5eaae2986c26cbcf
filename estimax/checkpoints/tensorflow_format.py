"""TensorFlow's checkpoints, read without TensorFlow: `model.ckpt-1000.index` and data.

    entries = read_index("runs/tf/model.ckpt-1000")
    array = read_array("runs/tf/model.ckpt-1000", "dnn/logits/kernel", entries)

The index is a sorted table in LevelDB's layout: blocks of key and value pairs, a block
that lists the blocks, a footer that says where that one is. A value tells the dtype,
shape and place of an array in the data files. Checksums are verified throughout.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import CheckpointError
from estimax.native import checksum
from estimax.wire.messages import fields, varint

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TRAILER = 5  # how a block is compressed, and its checksum
_SNAPPY = 1

# TensorFlow's numbers of the dtypes that an array can have here; text has none.
_DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.float64),
    3: np.dtype(np.int32),
    4: np.dtype(np.uint8),
    5: np.dtype(np.int16),
    6: np.dtype(np.int8),
    8: np.dtype(np.complex64),
    9: np.dtype(np.int64),
    10: np.dtype(np.bool_),
    14: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype(np.uint16),
    19: np.dtype(np.float16),
    22: np.dtype(np.uint32),
    23: np.dtype(np.uint64),
}
# What the first generation of optimizers called their slots.
_V1_SLOTS = {
    "Adagrad": "accumulator",
    "Ftrl": "accumulator",
    "Ftrl_1": "linear",
    "Adam": "m",
    "Adam_1": "v",
    "Momentum": "momentum",
    "RMSProp": "rms",
    "RMSProp_1": "momentum",
    "Adadelta": "accum_grad",
    "Adadelta_1": "accum_var",
}
Slice = tuple[tuple[int, int], ...]  # (start, length) of each axis; -1: all of it


@dataclass(frozen=True)
class Entry:
    """Where an array lies: in one piece, or in the slices of a partitioned variable."""

    dtype: np.dtype[Any] | None
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int
    slices: tuple[Slice, ...]


Entries = dict[bytes, Entry]


def read_index(prefix: str) -> Entries:
    """Every entry of a checkpoint, by its key; a name is its own key."""
    path = Path(f"{prefix}.index")
    data = path.read_bytes()
    if len(data) < _FOOTER or _number(data[-8:]) != _MAGIC:
        raise CheckpointError(f"{path} is no TensorFlow checkpoint (version 2).")
    try:
        place = len(data) - _FOOTER
        for _ in range(2):  # past the table of filters, which has none
            _, place = varint(data, place)
        offset, place = varint(data, place)
        size, _ = varint(data, place)
        found: dict[bytes, bytes] = {}
        for handle in _pairs(_block(data, offset, size, path)).values():
            start, place = varint(handle, 0)
            length, _ = varint(handle, place)
            found |= _pairs(_block(data, start, length, path))
        return {key: _entry(value) for key, value in found.items() if key}
    except (IndexError, struct.error) as error:
        raise CheckpointError(f"{path} is damaged: {error}.") from error


def names(entries: Entries) -> list[str]:
    """The names of the arrays that can be read, sorted."""
    # Keys that begin with a zero are slices of others.
    known = [k for k, e in entries.items() if not k.startswith(b"\0") and e.dtype]
    return sorted(key.decode() for key in known)


def read_array(prefix: str, name: str, entries: Entries) -> NDArray[Any]:
    """One array, verified; the slices of a partitioned variable are put together."""
    entry = entries[name.encode()]
    if not entry.slices:
        return _read(prefix, name, entry, entries)
    whole = np.empty(entry.shape, entry.dtype)
    for one in entry.slices:
        key = _slice_key(name, one)
        if key not in entries:
            raise CheckpointError(f"{prefix}: a slice of {name!r} is missing: {one}.")
        into = tuple(slice(a, None if n < 0 else a + n) for a, n in one)
        whole[into] = _read(prefix, name, entries[key], entries)
    return whole


def slots_of(
    shapes: Mapping[str, Any], variables: set[str]
) -> dict[str, dict[str, str]]:
    """The optimizer's arrays of each variable, by the names that optimizers here use.

    >>> slots_of({"w/Ftrl": (), "w/Ftrl_1": (), "training/Adam/b/m": ()}, {"w"})
    {'w': {'accumulator': 'w/Ftrl', 'linear': 'w/Ftrl_1'}}
    """
    found: dict[str, dict[str, str]] = {}
    for name in shapes:
        owner, _, slot = name.rpartition("/")
        for part in ("/part_0", "/t_0"):
            owner = owner.removesuffix(part)
        if owner.startswith("training/"):
            owner = owner.split("/", 2)[-1]
        else:
            slot = _V1_SLOTS.get(slot, "")
        if owner in variables and slot:
            found.setdefault(owner, {})[slot] = name
    return found


def _read(prefix: str, name: str, entry: Entry, entries: Entries) -> NDArray[Any]:
    path = _data_file(prefix, entry.shard)
    with open(path, "rb") as file:
        file.seek(entry.offset)
        data = file.read(entry.size)
    assert entry.dtype is not None, f"{name} is no array of numbers"
    if len(data) != entry.size or entry.size != (
        math.prod(entry.shape) * entry.dtype.itemsize
    ):
        raise CheckpointError(
            f"{path}: {name!r} should have {entry.size} bytes at offset "
            f"{entry.offset}, found {len(data)}. The file is cut short."
        )
    found = checksum.masked_crc32c(data)
    if found != entry.crc:
        raise CheckpointError(
            f"{path}: {name!r} is damaged: expected checksum {entry.crc:08x}, found "
            f"{found:08x}."
        )
    return np.frombuffer(data, entry.dtype).reshape(entry.shape)


def _data_file(prefix: str, shard: int) -> Path:
    folder, stem = Path(prefix).parent, Path(prefix).name
    found = sorted(folder.glob(f"{stem}.data-{shard:05d}-of-*"))
    if not found:
        raise CheckpointError(f"{prefix}.data-{shard:05d}-of-… is missing.")
    return found[0]


def _block(data: bytes, offset: int, size: int, path: Path) -> bytes:
    content = data[offset : offset + size]
    kind = data[offset + size]
    (crc,) = struct.unpack_from("<I", data, offset + size + 1)
    if checksum.masked_crc32c(data[offset : offset + size + 1]) != crc:
        raise CheckpointError(f"{path}: the block at {offset} is damaged.")
    if kind == 0:
        return content
    if kind != _SNAPPY:
        raise CheckpointError(f"{path}: unknown compression {kind} of a block.")
    import pyarrow as pa

    length, _ = varint(content, 0)
    return bytes(pa.Codec("snappy").decompress(content, length))


def _pairs(block: bytes) -> dict[bytes, bytes]:
    """The keys and values of a block; a key is stored as how it differs from the last.

    Behind them are places to start reading in the middle, and the number of those.
    """
    restarts = _number(block[-4:])
    end = len(block) - 4 * (restarts + 1)
    found: dict[bytes, bytes] = {}
    place, key = 0, b""
    while place < end:
        shared, place = varint(block, place)
        own, place = varint(block, place)
        size, place = varint(block, place)
        key = key[:shared] + block[place : place + own]
        found[key] = block[place + own : place + own + size]
        place += own + size
    return found


def _entry(message: bytes) -> Entry:
    values: dict[int, Any] = {}
    slices: list[Slice] = []
    for number, value in fields(message):
        if number == 7:
            slices.append(_slice(value))
        else:
            values[number] = value
    return Entry(
        dtype=_DTYPES.get(values.get(1, 0)),
        shape=tuple(_sizes(values.get(2, b""))),
        shard=values.get(3, 0),
        offset=values.get(4, 0),
        size=values.get(5, 0),
        crc=_number(values.get(6, b"")),
        slices=tuple(slices),
    )


def _sizes(shape: bytes) -> Iterator[int]:
    for number, dimension in fields(shape):
        if number == 2:
            yield dict(fields(dimension)).get(1, 0)


def _slice(message: bytes) -> Slice:
    extents: list[tuple[int, int]] = []
    for number, extent in fields(message):
        if number == 1:
            values = dict(fields(extent))
            extents.append((values.get(1, 0), values.get(2, -1)))
    return tuple(extents)


def _slice_key(name: str, one: Slice) -> bytes:
    """The key of a slice: a zero, the name, and numbers that sort as their bytes do."""
    # The bytes 0 and 255 would be escaped, but no name of a variable has them.
    key = _rising(0) + name.encode() + b"\0\1" + _rising(len(one))
    return key + b"".join(_signed(n) for extent in one for n in extent)


def _rising(value: int) -> bytes:
    length = (value.bit_length() + 7) // 8
    return bytes([length]) + value.to_bytes(length, "big")


def _signed(value: int) -> bytes:
    """As many leading ones as bytes, then the number; inverted when it is negative."""
    bits = (~value if value < 0 else value).bit_length()
    length = bits // 7 + 1
    header = ((1 << length) - 1) << (7 * length)
    number = header ^ (value & ((1 << (8 * length)) - 1))
    return (number & ((1 << (8 * length)) - 1)).to_bytes(length, "big")


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")
