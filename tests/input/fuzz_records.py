"""Feed mutated records and files to the kernels, with guard pages around every array.

    python fuzz_records.py --records 200000 --files 20000 --seed 1

All arrays that the kernels touch end at, or begin behind, a page that must not be
touched: one byte too far ends the process with a segmentation fault. What parses is
compared with the decoder in Python. Prints a line of counts at the end.
"""

import argparse
import contextlib
import ctypes
import faulthandler
import math
import mmap
import os
import random
import struct
import tempfile
import zlib
from types import SimpleNamespace

import numpy as np

from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.formats import messages, records
from estimax.formats.records import RecordError, iter_record_blocks, write_records
from estimax.input import (
    Example,
    FixedLenFeature,
    RaggedFeature,
    SequenceExample,
    VarLenFeature,
    serialize_examples,
)
from estimax.input.examples import parsing
from estimax.input.examples.sequences import parse_sequence_example
from estimax.native import (
    buffers,
    encoding,
    example_batches,
    examples,
    loading,
    sequences,
)

DTYPES = {"bytes_list": "string", "float_list": "float32", "int64_list": "int64"}
KEYS = {"f": "float32", "n": "int64", "s": "string", "key of 20 bytes long": "int64"}
PAGE = mmap.PAGESIZE
REGION = 64 * PAGE
SLOTS = 48


class Guarded:
    """NumPy with an `empty` that gives arrays at the edge of memory."""

    def __init__(self):
        libc = ctypes.CDLL(None, use_errno=True)
        self._memory = mmap.mmap(-1, SLOTS * (REGION + PAGE) + PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for i in range(SLOTS + 1):
            guard = ctypes.c_void_p(base + i * (REGION + PAGE))
            assert libc.mprotect(guard, ctypes.c_size_t(PAGE), 0) == 0
        self._starts = [base + PAGE + i * (REGION + PAGE) for i in range(SLOTS)]
        self._next = 0
        self._at_end = False

    def __getattr__(self, name):
        return getattr(np, name)

    def reset(self, *, at_end):
        """Give all memory out anew, at the ends or the beginnings of the regions."""
        self._next, self._at_end = 0, at_end

    def empty(self, shape, dtype=np.float64):
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if size > REGION or self._next == SLOTS:
            return np.empty(shape, dtype)
        start = self._starts[self._next] + (REGION - size if self._at_end else 0)
        self._next += 1
        if size == 0:
            return np.empty(shape, dtype)
        raw = (ctypes.c_uint8 * size).from_address(start)
        return np.frombuffer(raw, dtype).reshape(shape)

    def copy_of(self, data):
        out = self.empty(len(data), np.uint8)
        out[:] = np.frombuffer(data, np.uint8)
        return out


def main():
    faulthandler.enable()
    options = _options()
    rng = random.Random(options.seed)
    guarded = Guarded()
    loading.setting = "wait"
    # Loaded and proven first: else the references would be fuzzed, and not the kernels.
    assert examples.example_kernels() is not None
    sequences.find_lists([], Strings.of([]))
    serialize_examples({"x": [0]})
    assert not [name for name, module in loading._loaded.items() if module is None]
    for module in (encoding, example_batches, sequences, records):
        module.np = guarded
    # Nothing is kept from batch to batch: all of it stands at an edge.
    buffers.Scratch.take = lambda scratch, name, size: guarded.empty(size, np.int64)
    records.BufferPool = lambda dtype: SimpleNamespace(
        take=lambda size: guarded.empty(size, dtype)
    )
    parsed, refused = _fuzz_records(rng, guarded, options.records)
    _fuzz_neighbours(rng, guarded, options.records // 4)
    _fuzz_encoding(rng, guarded, options.records // 8)
    read, broken = _fuzz_files(rng, guarded, options.files)
    assert not options.records or (parsed and refused)
    assert not options.files or (read and broken)
    print(f"records: {parsed} parsed, {refused} refused; ", end="")
    print(f"files: {read} read whole, {broken} broken")


def _fuzz_records(rng, guarded, count):
    features = {key: VarLenFeature(dtype) for key, dtype in KEYS.items()}
    ragged = {key: RaggedFeature(dtype) for key, dtype in KEYS.items()}
    parser = parsing.ExampleParser(features)
    defaults = {"float32": [1.0] * 2, "int64": [1] * 2, "string": [b"a", b"b" * 30]}
    fixed = {
        k: FixedLenFeature([2], dtype, defaults[dtype]) for k, dtype in KEYS.items()
    }
    fixed_parser = parsing.ExampleParser(fixed)
    seeds = [_record(rng) for _ in range(200)]
    parsed = refused = 0
    for i in range(count):
        data = _mutated(rng, rng.choice(seeds), rng.choice(seeds))
        guarded.reset(at_end=i % 2 == 0)
        batch = Strings(guarded.copy_of(data), np.array([0, len(data)]), (1,))
        with contextlib.suppress(InputError):
            fixed_parser(batch)
        try:
            found = parser(batch)
            parse_sequence_example(batch, None, ragged)
        except InputError:
            refused += 1
            if i % 8 == 0:
                _check_refused(data, features)
            continue
        parsed += 1
        if i % 8 == 0:
            _check_parsed(data, found)
    return parsed, refused


def _fuzz_neighbours(rng, guarded, count):
    """A record must be read alike alone and behind one whose layout it may share."""
    variable = {key: VarLenFeature(dtype) for key, dtype in KEYS.items()}
    fixed = {key: FixedLenFeature([], dtype) for key, dtype in KEYS.items()}
    defaults = {"float32": 1.5, "int64": 7, "string": b"b" * 30}
    optional = {
        k: FixedLenFeature([], kind, defaults[kind]) for k, kind in KEYS.items()
    }
    # With one that is not fixed, texts too are written to an array made out here.
    mixed = optional | {"n": VarLenFeature("int64")}
    kinds = (variable, fixed, optional, mixed)
    parsers = [parsing.ExampleParser(one) for one in kinds]
    for i in range(count):
        before = _regular_record(rng)
        after = _regular_record(rng, may_lack=i % 4 == 1) if i % 2 else before
        data = _mutated(rng, after, _record(rng))
        ends = np.cumsum([0, len(before), len(data)])
        for parser in parsers:
            guarded.reset(at_end=i % 4 < 2)
            both = Strings(guarded.copy_of(before + data), ends, (2,))
            alone = Strings(guarded.copy_of(data), ends[1:] - ends[1], (1,))
            found, expected = _rows(parser, both), _rows(parser, alone)
            assert (found is None) == (expected is None), data
            assert found is None or found[1] == expected[0], (data, found, expected)


def _fuzz_encoding(rng, guarded, count):
    """Columns are written as single examples are, within their arrays."""
    for i in range(count):
        rows = rng.randrange(4)
        texts = [rng.randbytes(rng.choice([0, 3, 9, 130])) for _ in range(rows)]
        numbers = [rng.randrange(-(2**63), 2**63) >> rng.choice([0, 55, 63])] * rows
        floats = np.array([rng.random() for _ in range(2 * rows)], np.float32)
        guarded.reset(at_end=i % 2 == 0)
        ends = np.cumsum([0, *map(len, texts)])
        columns = {
            "f": floats.reshape((rows, 2)),
            "n": np.array(numbers, np.int64),
            "s": Strings(guarded.copy_of(b"".join(texts)), ends, (rows,)),
        }
        expected = [
            {"f": floats[2 * row : 2 * row + 2], "n": numbers[row], "s": texts[row]}
            for row in range(rows)
        ]
        assert serialize_examples(columns).tolist() == [
            Example.of(one).serialize() for one in expected
        ]


def _rows(parser, batch):
    """Each row's values as text, or None if the batch is refused."""
    try:
        found = parser(batch)
    except InputError:
        return None
    rows = [[] for _ in range(len(batch))]
    for key, column in found.items():
        if isinstance(column, Sparse):
            values = np.asarray(column.values).tolist()
            for (row, place), value in zip(column.indices, values, strict=True):
                rows[row].append(f"{key} {place} {value!r}")
            assert column.dense_shape[1] == column.indices[:, 1].max(initial=-1) + 1
        else:
            for row, value in enumerate(np.asarray(column).tolist()):
                rows[row].append(f"{key} {value!r}")
    return rows


def _regular_record(rng, *, may_lack=False):
    values = {
        "f": [rng.random()],
        "n": [rng.randrange(128)],
        "s": [rng.randbytes(rng.randrange(12))],
        "key of 20 bytes long": [rng.randrange(128)],
        "other": [rng.randbytes(rng.choice([3, 200]))],
    }
    kept = [key for key in values if not may_lack or rng.random() < 0.6]
    return Example.of({key: values[key] for key in kept}).serialize()


def _check_parsed(data, found):
    """What the kernels accept, Python reads alike, if it does not see more of it."""
    try:
        expected = messages.decode_example(data)
    except InputError:
        return
    for key, column in found.items():
        kind, values = expected.get(key, (None, []))
        assert kind is None or DTYPES[kind] == KEYS[key]
        given = column.values.tolist()
        assert len(given) == len(values)
        for one, other in zip(given, values, strict=True):
            is_nan = isinstance(one, float) and math.isnan(one) and math.isnan(other)
            assert is_nan or one == other, (key, one, other)


def _check_refused(data, features):
    """What Python reads, with the right kinds, the kernels must read."""
    try:
        context, lists = messages.decode_sequence_example(data)
    except InputError:
        return
    steps = [(key, step) for key in lists for step in lists[key]]
    for key, (kind, _) in [*context.items(), *steps]:
        if kind is not None and key in KEYS and DTYPES[kind] != KEYS[key]:
            return
    raise AssertionError(f"refused without reason: {data!r}")


def _fuzz_files(rng, guarded, count):
    read = broken = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "file")
        seeds = []
        for kind in ("", "GZIP", "ZLIB") * 5:
            write_records(path, [_record(rng) for _ in range(rng.randrange(6))], kind)
            with open(path, "rb") as file:
                seeds.append((file.read(), kind))
        for i in range(count):
            data, kind = rng.choice(seeds)
            with open(path, "wb") as file:
                file.write(_mutated(rng, data, rng.choice(seeds)[0]))
            guarded.reset(at_end=i % 2 == 0)
            try:
                size = rng.choice([16, 100, 5000])
                for _ in iter_record_blocks(path, kind, block_bytes=size):
                    guarded.reset(at_end=i % 2 == 0) if size == 5000 else None
                read += 1
            except RecordError:
                broken += 1
    return read, broken


def _record(rng):
    values = {
        "f": [rng.choice([0.5, math.inf, -1e30]) for _ in range(rng.randrange(5))],
        "n": [rng.randrange(-(2**63), 2**63) for _ in range(rng.randrange(5))],
        "s": [rng.randbytes(rng.randrange(20)) for _ in range(rng.randrange(4))],
        "key of 20 bytes long": [rng.randrange(300)],
        "other": [b"unread"],
    }
    keys = rng.sample(sorted(values), rng.randrange(len(values) + 1))
    chosen = {key: values[key] for key in keys}
    if rng.random() < 0.7:
        return Example.of(chosen).serialize()
    lists = {key: [values[key]] * rng.randrange(4) for key in keys}
    return SequenceExample.of(chosen, lists).serialize()


def _mutated(rng, data, other):
    data = bytearray(data)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 5, 20])):
        at = rng.randrange(len(data) + 1)
        what = rng.randrange(8)
        if what == 0:
            del data[at : at + rng.randrange(1, 9)]
        elif what == 1:
            data[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif what == 2:
            del data[at:]
        elif what == 3:
            cut = rng.randrange(len(other) + 1)
            data[at:at] = other[cut : cut + rng.randrange(40)]
        elif what == 4:
            data[at : at + 9] = b"\xff" * 9
        elif what == 5 and len(data) >= 12:
            _lie_about_length(rng, data)
        elif at < len(data):
            data[at] = rng.choice([data[at] ^ 1 << rng.randrange(8), 0, 127, 128, 255])
    return bytes(data)


def _lie_about_length(rng, data):
    """A length that its checksum confirms, so that readers believe it."""
    length = struct.pack("<Q", rng.choice([0, 1, 1 << 20, 1 << 40, 1 << 63, 2**64 - 1]))
    from estimax.native import checksum

    data[:12] = length + struct.pack("<I", checksum.masked_crc32c(length))
    if rng.random() < 0.3:
        data[:] = zlib.compress(bytes(data), 1)


def _options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=3000)
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
