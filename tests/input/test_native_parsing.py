"""Compiled kernels and the references in Python give the same columns and errors."""

import random
import subprocess
import sys

import fuzz_records
import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input import (
    Example,
    FixedLenFeature,
    FixedLenSequenceFeature,
    RaggedFeature,
    SequenceExample,
    VarLenFeature,
    parse_example,
    parse_sequence_example,
    serialize_examples,
)
from estimax.input.streams.columns import Ragged

KEYS = fuzz_records.KEYS
DEFAULTS = {"float32": [1.0, -2.0], "int64": [1, 2], "string": [b"a", b"b" * 30]}
FEATURES = {
    "variable": {key: VarLenFeature(dtype) for key, dtype in KEYS.items()},
    "required": {key: FixedLenFeature([], dtype) for key, dtype in KEYS.items()},
    "with defaults": {
        key: FixedLenFeature([2], dtype, DEFAULTS[dtype]) for key, dtype in KEYS.items()
    },
    "padded": {
        key: FixedLenSequenceFeature([2], dtype, allow_missing=True)
        for key, dtype in KEYS.items()
    },
}
LISTS = {
    "variable": FEATURES["variable"],
    "ragged": {key: RaggedFeature(dtype) for key, dtype in KEYS.items()},
    "padded": {
        key: FixedLenSequenceFeature([], dtype, allow_missing=True)
        for key, dtype in KEYS.items()
    },
}


@pytest.mark.parametrize("features", FEATURES.values(), ids=FEATURES)
def test_mutated_examples_give_the_same_columns_or_the_same_error(features, both):
    for batch in _batches(400, seed=7):
        one, other = both(lambda batch=batch: parse_example(batch, features))
        assert one == other, batch


@pytest.mark.parametrize("lists", LISTS.values(), ids=LISTS)
def test_mutated_lists_give_the_same_columns_or_the_same_error(lists, both):
    for batch in _batches(300, seed=8):
        one, other = both(
            lambda batch=batch: parse_sequence_example(batch, None, lists)
        )
        assert one == other, batch


def test_columns_are_written_alike(both):
    columns = {
        "f": np.array([[0.5, np.nan], [np.inf, -0.0]]),
        "n": np.array([-(2**63), 2**63 - 1]),
        "s": ["", "x" * 300],
        "tags": Sparse.of_rows([["a", "b"], []]),
        "steps": Ragged(np.arange(3), (np.array([0, 2, 3]), np.array([0, 0, 1, 3]))),
    }
    one, other = both(lambda: serialize_examples(columns))
    assert one == other
    rows = np.array([[2**31 - 1, -1]], np.int32), np.array([[True]]), np.zeros((1, 0))
    one, other = both(lambda: serialize_examples(dict(zip("abc", rows, strict=True))))
    assert one == other


@pytest.fixture
def both(monkeypatch):
    """Return a function's outcome with kernels and without."""

    def run(function):
        outcomes = []
        for setting in ("wait", "off"):
            monkeypatch.setattr("estimax.native.loading.setting", setting)
            outcomes.append(_outcome(function))
        return outcomes

    return run


def _outcome(function):
    try:
        return _plain(function())
    except InputError as error:
        return str(error), vars(error)


def _plain(found):
    if isinstance(found, dict):
        return {key: _plain(column) for key, column in found.items()}
    if isinstance(found, tuple):
        return [_plain(one) for one in found]
    if isinstance(found, Sparse):
        parts = found.indices, found.values, np.array(found.dense_shape)
        return ["sparse", *map(_plain, parts)]
    if isinstance(found, Ragged):
        return ["ragged", _plain(found.values), *map(_plain, found.row_splits)]
    if isinstance(found, Strings):
        return found.shape, found.tolist()
    return found.shape, str(found.dtype), found.tobytes()


def _batches(count, seed):
    """Yield batches whose last record is mutated, behind some of a regular layout."""
    rng = random.Random(seed)
    seeds = [fuzz_records._record(rng) for _ in range(100)]
    for _ in range(count):
        before = [
            fuzz_records._regular_record(rng, may_lack=rng.random() < 0.3)
            for _ in range(rng.randrange(3))
        ]
        source = rng.choice([*seeds, *before])
        yield [*before, fuzz_records._mutated(rng, source, rng.choice(seeds))]


HOSTILE = """
import sys
import numpy as np
import estimax.input as ex
from estimax.core.errors import InputError
from estimax.input.streams.columns import Ragged
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings

features = {"x": ex.FixedLenFeature([], "string", b"")}
lists = {"x": ex.RaggedFeature("string")}
data = np.zeros(0, np.uint8)
cases = {
    "beyond the data": [0, 0, 0, 10**9],
    "decreasing": [0, 0, 10**9, 0],
    "negative": [-(10**9), 0, 0, 0],
    "all negative": [-(10**9)] * 4,
    "overflowing": [0, 2**63 - 1, 0, 0],
}
functions = {
    "parse_example": lambda text: ex.parse_example(text, features),
    "parse_sequence_example": lambda text: ex.parse_sequence_example(text, None, lists),
    "context": lambda text: ex.parse_sequence_example(text, features),
    "serialize_examples": lambda text: ex.serialize_examples({"x": text}),
    "sparse text": lambda text: ex.serialize_examples(
        {"x": Sparse.of_lists(text, np.arange(4))}
    ),
}


def expect_error(name, function):
    try:
        function()
    except InputError as error:
        print(name, error, file=sys.stderr)
        return
    sys.exit(f"{name}: no error")


for case, offsets in cases.items():
    for data in (b"", b"abc"):
        text = Strings(np.frombuffer(data, np.uint8), np.array(offsets), (3,))
        for name, function in functions.items():
            expect_error(f"{name}, {case}", lambda: function(text))

offsets = np.array([0, 1, 2, 3])
malformed = {
    "too few strings": Strings(np.zeros(0, np.uint8), np.zeros(2, np.int64), (3,)),
    "no offsets": Strings(np.zeros(3, np.uint8), offsets[:0], (3,)),
    "wide data": Strings(np.zeros(3, np.int64), offsets, (3,)),
    "data of two axes": Strings(np.zeros((3, 3), np.uint8), offsets, (3,)),
}
for case, text in malformed.items():
    for name, function in functions.items():
        expect_error(f"{name}, {case}", lambda: function(text))

numbers = np.arange(3)
far, back = np.array([0, 1, 10**9]), np.array([0, 10**9, 3])
columns = {
    "splits beyond the values": Sparse.of_lists(numbers, far, 3),
    "splits that decrease": Sparse.of_lists(numbers, back, 3),
    "ragged beyond": Ragged(numbers, (far,)),
    "ragged that decreases": Ragged(numbers, (back,)),
    "ragged outer rows beyond": Ragged(numbers, (far, np.array([0, 1, 3]))),
    "ragged negative": Ragged(numbers, (np.array([-2, 0, 3]),)),
    "complex": np.zeros(3, complex),
    "unsigned of 64 bits": np.zeros(3, np.uint64),
}
for case, column in columns.items():
    expect_error(case, lambda: ex.serialize_examples({"x": column}))
"""


@pytest.mark.parametrize("setting", ["wait", "off"])
def test_offsets_and_splits_that_lie_are_an_error_and_never_a_crash(
    setting, monkeypatch
):
    monkeypatch.setenv("ESTIMAX_NATIVE", setting)
    # In a process of its own: a crash would end the tests. Without assertions, as
    # `python -O` must be as safe.
    done = subprocess.run(
        [sys.executable, "-O", "-c", HOSTILE], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_an_offset_beyond_the_data_is_named(native):
    text = Strings(np.frombuffer(b"abc", np.uint8), np.array([0, 0, 10**9]), (2,))
    match = "within the 3 bytes of data; string 1 begins at 0 and ends at 1000000000"
    with pytest.raises(InputError, match=match):
        parse_example(text, FEATURES["variable"])
    with pytest.raises(InputError, match=match):
        serialize_examples({"x": text})


def test_strided_and_narrow_offsets_are_read(native):
    record = Example.of({"n": [1]}).serialize()
    data = np.frombuffer(record * 2, np.uint8)
    wide = np.array([0, 9, len(record), 9, 2 * len(record)])[::2]
    features = {"n": FixedLenFeature([], "int64")}
    for offsets in (wide, wide.astype(np.int32)):
        found = parse_example(Strings(data, offsets, (2,)), features)
        assert found["n"].tolist() == [1, 1]
    scattered = np.repeat(data, 2)[::2]
    found = parse_example(Strings(scattered, wide, (2,)), features)
    assert found["n"].tolist() == [1, 1]


def test_a_float_keeps_the_bits_of_its_nan(native):
    bits = np.array([0x7FA00001, 0xFFC12345], np.uint32)
    records = serialize_examples({"x": bits.view(np.float32)})
    found = parse_example(records, {"x": FixedLenFeature([], "float32")})
    assert found["x"].view(np.uint32).tolist() == bits.tolist()


def test_lists_are_read_without_kernels(monkeypatch):
    monkeypatch.setattr("estimax.native.loading.setting", "off")
    record = SequenceExample.of({}, {"n": [[1], [2, 3]]}).serialize()
    lists = {"n": RaggedFeature("int64")}
    _, columns, _ = parse_sequence_example([record, record], None, lists)
    assert columns["n"].tolist() == [[[1], [2, 3]]] * 2
