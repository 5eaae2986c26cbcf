"""TensorFlow checkpoints that somebody changed on purpose, checksums included."""

import random
import shutil
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from estimax import checkpoints
from estimax.core.errors import CheckpointError
from estimax.native import checksum

FOLDER = Path(__file__).parent / "tensorflow"
KERNEL = np.arange(6, dtype=np.float32).reshape(2, 3)
MAGIC = 0xDB4775248B80FB57


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number, value):
    """A field of a message: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def shape_of(*sizes):
    return b"".join(field(2, field(1, size)) for size in sizes)


def entry(*, dtype=1, shape=(2, 3), shard=0, offset=0, size=24, crc=None, more=b""):
    crc = checksum.masked_crc32c(KERNEL.tobytes()) if crc is None else crc
    stored_crc = varint(6 << 3 | 5) + struct.pack("<I", crc)
    numbers = field(3, shard) + field(4, offset) + field(5, size)
    return field(1, dtype) + field(2, shape_of(*shape)) + numbers + stored_crc + more


def block(pairs):
    items = [varint(0) + varint(len(k)) + varint(len(v)) + k + v for k, v in pairs]
    return b"".join(items) + struct.pack("<II", 0, 1)


def stored(content, kind=0):
    """A block with its trailer."""
    return content + bytes([kind]) + crc_of(content, kind)


def crc_of(content, kind):
    return struct.pack("<I", checksum.masked_crc32c(content + bytes([kind])))


def index_of(content, *, kind=0, handles=None):
    """A whole index file around one block."""
    first = stored(content, kind)
    handles = handles or [(0, len(content))]
    listed = [
        (bytes([i + 1]), varint(a) + varint(n)) for i, (a, n) in enumerate(handles)
    ]
    root = block(listed)
    footer = varint(0) * 2 + varint(len(first)) + varint(len(root))
    magic = struct.pack("<Q", MAGIC)
    return first + stored(root) + footer.ljust(40, b"\0") + magic


def written(folder, index):
    prefix = folder / "model.ckpt-1"
    Path(f"{prefix}.index").write_bytes(index)
    Path(f"{prefix}.data-00000-of-00001").write_bytes(KERNEL.tobytes())
    return prefix


def read_all(prefix):
    source = checkpoints.open_source(prefix)
    return {name: source.read(name) for name in source.shapes}


def check_refused(prefix):
    tracemalloc.start()
    with pytest.raises(CheckpointError, match=r"model\.ckpt-1"):
        read_all(prefix)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000


def test_the_files_made_here_are_what_tensorflow_writes(tmp_path):
    prefix = written(tmp_path, index_of(block([(b"", b""), (b"kernel", entry())])))
    np.testing.assert_array_equal(read_all(prefix)["kernel"], KERNEL)


@pytest.mark.parametrize(
    "changed",
    [
        {"shape": (2**40, 3)},
        {"shape": (2**64 - 2, 3)},
        {"shape": (2**40, 2**40)},
        {"shape": (0, 2**63)},
        {"shape": (1,) * 100},
        {"size": 2**62, "shape": (2**60,)},
        {"size": 2**64 - 1},
        {"offset": 2**62},
        {"offset": 2**64 - 8},
        {"offset": 4},
        {"shard": 2**40},
        {"crc": 3},
        {"more": field(2, 3)},
        {"more": field(5, b"size")},
        {"more": field(1, b"dtype")},
        {"more": field(6, 3)},
        {"more": field(2, field(2, 3))},
        {"more": field(2, field(2, field(1, b"x")))},
        {"more": field(7, 1)},
        {"more": b"\x0a\xff"},
        {"more": b"\x80" * 40},
        {"more": varint(2**70)},
        {"more": b"\x0b"},
    ],
    ids=str,
)
def test_entries(tmp_path, changed):
    content = block([(b"", b""), (b"kernel", entry(**changed))])
    check_refused(written(tmp_path, index_of(content)))


def one_slice(*extents):
    inner = [field(1, field(1, start) + field(2, size)) for start, size in extents]
    return field(7, b"".join(inner))


def slice_key(name, extents):
    from estimax.formats.tensorflow_checkpoints import _slice_key

    return _slice_key(name, tuple(extents))


def sliced(shape, parts):
    """An index of a variable in parts: (extents, shape) each."""
    described = b"".join(one_slice(*extents) for extents, _ in parts)
    pairs = [
        (slice_key("kernel", extents), entry(shape=size)) for extents, size in parts
    ]
    whole = entry(shape=shape, size=0, more=described)
    return index_of(block([*sorted(pairs), (b"kernel", whole)]))


def test_slices_that_fit_are_put_together(tmp_path):
    parts = [(((0, 2), (0, 3)), (2, 3)), (((2, 2), (0, 3)), (2, 3))]
    found = read_all(written(tmp_path, sliced((4, 3), parts)))["kernel"]
    np.testing.assert_array_equal(found, np.concatenate([KERNEL, KERNEL]))


@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        # A whole that its slices do not fill, of any size.
        ((2**40, 3), [(((0, 2), (0, 3)), (2, 3))]),
        ((4, 3), [(((0, 2), (0, 3)), (2, 3))]),
        # Slices over each other, beyond the whole, of another shape, of another rank.
        ((4, 3), [(((0, 2), (0, 3)), (2, 3)), (((1, 2), (0, 3)), (2, 3))]),
        ((2, 3), [(((1, 2), (0, 3)), (2, 3))]),
        ((2, 3), [(((0, 2), (0, 3)), (3, 2))]),
        ((6,), [(((0, 2), (0, 3)), (2, 3))]),
        ((2, 3), [(((2**63, 2), (0, 3)), (2, 3))]),
    ],
    ids=str,
)
def test_slices(tmp_path, shape, parts):
    check_refused(written(tmp_path, sliced(shape, parts)))


def growing_keys(count):
    """Keys that each repeat all of the one before: few bytes, much memory."""
    items = [varint(i) + varint(1) + varint(0) + b"k" for i in range(count)]
    return b"".join(items) + struct.pack("<II", 0, 1)


@pytest.mark.parametrize(
    "index",
    [
        index_of(block([(b"kernel", entry())])[:-4] + struct.pack("<I", 2**31)),
        index_of(varint(9) + varint(6) + varint(0) + b"kernel" + bytes(8)),
        index_of(varint(0) + varint(2**60) + varint(0) + b"kernel" + bytes(8)),
        index_of(varint(0) + varint(6) + varint(2**60) + b"kernel" + bytes(8)),
        index_of(growing_keys(50_000)),
        index_of(b""),
        index_of(b"\0"),
        index_of(block([(b"\xff\xfe", entry())])),
        # Snappy: a length beyond any that so few bytes unpack to, and garbage.
        index_of(varint(2**50) + b"\0" * 20, kind=1),
        index_of(varint(2**31 - 1) + b"\0" * 20, kind=1),
        index_of(b"\x08garbage", kind=1),
        index_of(b"", kind=1),
        index_of(b"abc", kind=7),
        index_of(block([(b"kernel", entry())]), handles=[(0, 2**60)]),
        index_of(block([(b"kernel", entry())]), handles=[(2**60, 8)]),
        index_of(
            block([(b"k", entry())]), handles=[(0, len(block([(b"k", entry())])))] * 9
        ),
        b"\x80" * 40 + struct.pack("<Q", MAGIC),
        b"\xff" * 400 + struct.pack("<Q", MAGIC),
    ],
    ids=range(18),
)
def test_blocks(tmp_path, index):
    check_refused(written(tmp_path, index))


@pytest.mark.parametrize("seed", range(4))
def test_random_changes_are_read_or_refused(tmp_path, seed):
    shutil.copytree(FOLDER / "v2", tmp_path / "v2")
    index = tmp_path / "v2" / "model.ckpt-5.index"
    original = index.read_bytes()
    rng = random.Random(seed)
    outcomes = set()
    tracemalloc.start()
    for _ in range(150):
        data = bytearray(original)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
        index.write_bytes(with_checksums(data))
        try:
            outcomes.add(len(read_all(tmp_path / "v2")) > 0)
        except CheckpointError:
            outcomes.add("refused")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "refused" in outcomes
    assert peak < 50_000_000


def with_checksums(data):
    """Make the checksums of the two blocks of an index fit again."""
    footer = data[-48:]
    try:
        numbers, place = [], 0
        while len(numbers) < 4:
            value = shift = 0
            while footer[place] & 0x80:
                value |= (footer[place] & 0x7F) << shift
                place, shift = place + 1, shift + 7
            numbers.append(value | footer[place] << shift)
            place += 1
        _, _, root, size = numbers
        end = root + size + 1
        data[end : end + 4] = crc_of(bytes(data[root : end - 1]), data[end - 1])
        content = bytes(data[: root - 5])
        data[root - 4 : root] = crc_of(content, data[root - 5])
    except (IndexError, struct.error):
        pass
    return bytes(data)
