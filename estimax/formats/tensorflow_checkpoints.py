"""Read checkpoints of TensorFlow, without TensorFlow: `model.ckpt-1000.index` and data.

    entries = read_index("runs/tf/model.ckpt-1000")
    array = read_array("runs/tf/model.ckpt-1000", "dnn/logits/kernel", entries)

The index is a sorted table in the layout of LevelDB: blocks of key and value pairs, a
block that lists the other blocks, and a footer with the offset of that list. A value
holds the dtype, the shape and the offset of an array in the data files.

The files may be forged. All checksums are verified, and no memory is allocated for a
size before it is compared with the sizes of the files.
"""

from __future__ import annotations

import glob
import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import CheckpointError
from estimax.formats.messages import fields, varint
from estimax.formats.saved_models import DTYPES
from estimax.native import checksum

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TRAILER = 5  # bytes after a block: compression type and checksum
_SNAPPY = 1
# Three bytes of snappy unpack to at most 64 bytes.
_SNAPPY_RATIO = 22
# Every 16th key of a block is stored in full. Each key in between may share all of it,
# so that keys unpack to at most 16 times the size of their block.
_KEY_RATIO = 16
_MOST_AXES = 32

# Slot names of the optimizers of TensorFlow 1, and ours.
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
Slice = tuple[tuple[int, int], ...]  # (start, length) of each axis; -1 for all


@dataclass(frozen=True)
class TensorEntry:
    """Where an array is stored: as one, or as slices of a partitioned variable."""

    dtype: np.dtype[Any] | None
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int
    slices: tuple[Slice, ...]


TensorEntries = dict[bytes, TensorEntry]


def read_index(prefix: str) -> TensorEntries:
    """Return the entries of a checkpoint by key; the key of an array is its name."""
    path = Path(f"{prefix}.index")
    data = path.read_bytes()
    if len(data) < _FOOTER or _number(data[-8:]) != _MAGIC:
        raise CheckpointError(f"{path} is no TensorFlow checkpoint (version 2).")
    try:
        place = len(data) - _FOOTER
        for _ in range(2):  # skip offset and size of the filter table, which is empty
            _, place = varint(data, place)
        offset, place = varint(data, place)
        size, _ = varint(data, place)
        found: dict[bytes, bytes] = {}
        end = 0
        for handle in _pairs(_block(data, offset, size, path)).values():
            start, place = varint(handle, 0)
            length, _ = varint(handle, place)
            if start < end:
                raise ValueError(f"the block at {start} overlaps the one before it")
            end = start + length
            found |= _pairs(_block(data, start, length, path))
        entries = {key: _entry(value) for key, value in found.items() if key}
        names(entries)  # raises if a name is not valid text
    except CheckpointError:
        raise
    except (ValueError, TypeError, struct.error) as error:
        raise CheckpointError(f"{path} is damaged: {error}.") from error
    return entries


def names(entries: TensorEntries) -> list[str]:
    """Return the names of the arrays that can be read, sorted."""
    # Keys that begin with a zero byte are slices of other arrays.
    known = [k for k, e in entries.items() if not k.startswith(b"\0") and e.dtype]
    return sorted(key.decode() for key in known)


def read_array(prefix: str, name: str, entries: TensorEntries) -> NDArray[Any]:
    """Return one array with its checksum verified, joining slices if there are any."""
    entry = entries[name.encode()]
    if not entry.slices:
        return _read(prefix, name, entry)
    places = [_bounds(prefix, name, entry.shape, one) for one in entry.slices]
    _check_tiling(prefix, name, entry.shape, places)
    parts = []
    for one, place in zip(entry.slices, places, strict=True):
        part = entries.get(_slice_key(name, one))
        if part is None:
            raise CheckpointError(f"{prefix}: a slice of {name!r} is missing: {one}.")
        lengths = tuple(stop - start for start, stop in place)
        if part.shape != lengths or part.dtype != entry.dtype:
            raise CheckpointError(
                f"{prefix}: a slice of {name!r} should be {entry.dtype} of shape "
                f"{list(lengths)}, found {part.dtype} of {list(part.shape)}."
            )
        # Check that the file has all bytes of the slice, before the whole is allocated.
        _data_file(prefix, name, part)
        parts.append((tuple(slice(*extent) for extent in place), part))
    whole = np.empty(entry.shape, entry.dtype)
    for into, part in parts:
        whole[into] = _read(prefix, name, part)
    return whole


def slots_of(
    shapes: Mapping[str, Any], variables: set[str]
) -> dict[str, dict[str, str]]:
    """Return the names of optimizer state: variable -> our slot name -> name.

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


def _read(prefix: str, name: str, entry: TensorEntry) -> NDArray[Any]:
    path = _data_file(prefix, name, entry)
    with open(path, "rb") as file:
        file.seek(entry.offset)
        data = file.read(entry.size)
    found = checksum.masked_crc32c(data)
    if found != entry.crc:
        raise CheckpointError(
            f"{path}: {name!r} is damaged: expected checksum {entry.crc:08x}, found "
            f"{found:08x}."
        )
    assert entry.dtype is not None, f"{name} is no array of numbers"
    return np.frombuffer(data, entry.dtype).reshape(entry.shape)


def _data_file(prefix: str, name: str, entry: TensorEntry) -> Path:
    """Return the file of an array; raise CheckpointError if bytes are missing."""
    pattern = f"{glob.escape(prefix)}.data-{entry.shard:05d}-of-*"
    found = sorted(glob.glob(pattern))
    if not found:
        raise CheckpointError(f"{prefix}.data-{entry.shard:05d}-of-… is missing.")
    path = Path(found[0])
    itemsize = entry.dtype.itemsize if entry.dtype else 0
    there = max(os.path.getsize(path) - entry.offset, 0)
    if entry.size > there or entry.size != math.prod(entry.shape) * itemsize:
        raise CheckpointError(
            f"{path}: {name!r}, {entry.dtype} of shape {list(entry.shape)}, should "
            f"have {entry.size} bytes at offset {entry.offset}, found {there}. The "
            "file is cut short or its index is damaged."
        )
    return path


Bounds = tuple[tuple[int, int], ...]  # (start, stop) of each axis


def _bounds(prefix: str, name: str, shape: tuple[int, ...], one: Slice) -> Bounds:
    """Return (start, stop) of a slice along each axis of the whole array."""
    if len(one) == len(shape):
        bounds = tuple(
            (start, size if length < 0 else start + length)
            for (start, length), size in zip(one, shape, strict=True)
        )
        pairs = zip(bounds, shape, strict=True)
        if all(0 <= start <= stop <= size for (start, stop), size in pairs):
            return bounds
    raise CheckpointError(
        f"{prefix}: {name!r} has shape {list(shape)}, but a slice {one} beyond it."
    )


def _check_tiling(
    prefix: str, name: str, shape: tuple[int, ...], places: list[Bounds]
) -> None:
    """Raise CheckpointError unless the slices cover each element exactly once."""
    filled = sum(math.prod(stop - start for start, stop in one) for one in places)
    bounds = np.array(places, np.int64)  # [slices, axes, 2]
    starts, stops = bounds[..., 0], bounds[..., 1]
    overlap = any(
        np.any(np.all((starts[:i] < stops[i]) & (starts[i] < stops[:i]), axis=1))
        for i in range(1, len(places))
    )
    if overlap or filled != math.prod(shape):
        raise CheckpointError(
            f"{prefix}: {name!r} has shape {list(shape)}, but its {len(places)} slices "
            "do not cover each element exactly once."
        )


def _block(data: bytes, offset: int, size: int, path: Path) -> bytes:
    if offset + size + _TRAILER > len(data):
        raise ValueError(f"a block of {size} bytes at {offset} is cut short")
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
    if length > _SNAPPY_RATIO * len(content):
        raise ValueError(f"the block at {offset} claims to unpack to {length} bytes")
    try:
        return bytes(pa.Codec("snappy").decompress(content, length))
    except (OSError, pa.ArrowInvalid) as error:
        raise ValueError(f"the block at {offset} cannot be unpacked: {error}") from None


def _pairs(block: bytes) -> dict[bytes, bytes]:
    """Return the keys and values of a block.

    A key is stored as the number of bytes shared with the key before it, and the rest.
    After the pairs come the offsets of full keys ("restarts") and their number.
    """
    restarts = _number(block[-4:])
    end = len(block) - 4 * (restarts + 1)
    if len(block) < 4 or end < 0:
        raise ValueError(f"a block of {len(block)} bytes has {restarts} restarts")
    found: dict[bytes, bytes] = {}
    place, key = 0, b""
    length_of_keys = 0
    while place < end:
        shared, place = varint(block, place)
        own, place = varint(block, place)
        size, place = varint(block, place)
        length_of_keys += shared + own
        if (
            shared > len(key)
            or own + size > end - place
            or length_of_keys > _KEY_RATIO * len(block)
        ):
            raise ValueError(f"a key of {shared} + {own} bytes at {place} does not fit")
        key = key[:shared] + block[place : place + own]
        found[key] = block[place + own : place + own + size]
        place += own + size
    return found


def _entry(message: bytes) -> TensorEntry:
    values: dict[int, Any] = {}
    slices: list[Slice] = []
    for number, value in fields(message):
        if number == 7:
            slices.append(_slice(value))
        else:
            values[number] = value
    return TensorEntry(
        dtype=DTYPES.get(_whole(values, 1)),
        shape=_sizes(values.get(2, b"")),
        shard=_whole(values, 3),
        offset=_whole(values, 4),
        size=_whole(values, 5),
        crc=_number(values.get(6, b"")),
        slices=tuple(slices),
    )


def _whole(values: Mapping[int, Any], number: int, default: int = 0) -> int:
    """Return an integer field of a message; raise ValueError if it is no integer."""
    value = values.get(number, default)
    if not isinstance(value, int):
        raise ValueError(f"field {number} of a message is no number")
    return value


def _sizes(shape: bytes) -> tuple[int, ...]:
    axes = [dimension for number, dimension in fields(shape) if number == 2]
    if len(axes) > _MOST_AXES:
        raise ValueError(f"an array has {len(axes)} axes")
    sizes = tuple(_whole(dict(fields(dimension)), 1) for dimension in axes)
    # Treat 0 as 1: an axis of size 0 must not hide one that is impossibly large.
    if math.prod(max(n, 1) for n in sizes) >= 2**59:
        raise ValueError(f"an array has the shape {list(sizes)}")
    return sizes


def _slice(message: bytes) -> Slice:
    extents: list[tuple[int, int]] = []
    for number, extent in fields(message):
        if number == 1:
            values = dict(fields(extent))
            extents.append((_whole(values, 1), _whole(values, 2, -1)))
    return tuple(extents)


def _slice_key(name: str, one: Slice) -> bytes:
    """Return the key of a slice: a zero, the name, and numbers in sortable bytes."""
    # The bytes 0 and 255 in a name would have to be escaped, but names have none.
    key = _rising(0) + name.encode() + b"\0\1" + _rising(len(one))
    return key + b"".join(_encode_signed(n) for extent in one for n in extent)


def _rising(value: int) -> bytes:
    length = (value.bit_length() + 7) // 8
    return bytes([length]) + value.to_bytes(length, "big")


def _encode_signed(value: int) -> bytes:
    """Return a signed number such that bytes sort as the numbers do.

    The leading one-bits give the number of bytes. Negative numbers are inverted.
    """
    bits = (~value if value < 0 else value).bit_length()
    length = bits // 7 + 1
    header = ((1 << length) - 1) << (7 * length)
    number = header ^ (value & ((1 << (8 * length)) - 1))
    return (number & ((1 << (8 * length)) - 1)).to_bytes(length, "big")


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")
