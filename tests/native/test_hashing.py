"""Compiled hashes and those of NumPy are the same; wrong offsets are errors."""

import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.native import hashing, records, string_arrays
from estimax.native.hashing import WordTable

RNG = np.random.default_rng(5)
LENGTHS = [*range(70), 127, 128, 129, 192, 200, 500, 1000]
WORDS = Strings.of([RNG.bytes(n) for n in LENGTHS] * 2)
INTS = np.array([0, -1, 1, 9, 10, 99, 2**40, -(2**63), 2**63 - 1, *range(-50, 50)])


def both(monkeypatch, compute):
    """What compiled code and the reference return."""
    found = []
    for native in ("wait", "off"):
        monkeypatch.setattr("estimax.native.loading.setting", native)
        found.append(compute())
    return found


@pytest.mark.parametrize(
    "compute",
    [
        lambda: hashing.fingerprints(WORDS),
        lambda: hashing.integer_fingerprints(INTS),
        lambda: hashing.hash_strings(WORDS, 97, drop_empty=True),
        lambda: hashing.hash_strings(WORDS, 97, drop_empty=False),
        lambda: hashing.hash_integers(INTS, 97, drop_minus_one=True),
        lambda: np.concatenate(hashing.hash_columns([WORDS, WORDS[3:9]], [7, 11])),
        lambda: records.frame(WORDS),
        lambda: string_arrays.gather(WORDS, np.array([5, 0, 69, 5])).tolist(),
        lambda: WordTable(WORDS[:50]).find(WORDS, oov_buckets=0, default=-3, drop=True),
        lambda: WordTable(WORDS[:50]).find(
            WORDS, oov_buckets=10, default=-3, drop=False
        ),
        lambda: WordTable(INTS[3:9]).find(INTS, oov_buckets=4, default=0, drop=True),
        lambda: WordTable(WORDS).repeated,
    ],
)
def test_compiled_code_and_the_reference_agree(monkeypatch, compute):
    compiled, reference = both(monkeypatch, compute)
    np.testing.assert_array_equal(compiled, reference)


def test_crosses_of_rows_with_any_number_of_values_agree(monkeypatch):
    counts = RNG.integers(0, 4, (3, 40))
    starts = np.zeros((3, 41), np.int64)
    starts[:, 1:] = counts.cumsum(axis=1)
    starts += np.concatenate([[0], starts[:-1, -1]]).cumsum()[:, None]
    values = RNG.integers(0, 2**63, starts.max(), dtype=np.uint64)

    def compute():
        return np.concatenate(hashing.cross_rows(values, starts, 2**64 - 5, 1000))

    compiled, reference = both(monkeypatch, compute)
    np.testing.assert_array_equal(compiled, reference)
    assert len(compiled) > 100


BAD_OFFSETS = {
    "beyond the data": [0, 1, 2, 10**9],
    "decreasing": [0, 3, 1, 2],
    "negative": [-5, 1, 2, 3],
    "beyond all memory": [0, 1, 2, 2**62],
}


@pytest.mark.parametrize("native", ["wait", "off"])
@pytest.mark.parametrize("offsets", BAD_OFFSETS.values(), ids=BAD_OFFSETS)
@pytest.mark.parametrize(
    "use",
    [
        hashing.fingerprints,
        lambda bad: hashing.hash_strings(bad, 10, drop_empty=True),
        lambda bad: hashing.hash_columns([Strings.of(["a"]), bad], [5, 5]),
        lambda bad: hashing.hash_columns([bad, bad[:2]], [5, 5]),
        lambda bad: WordTable(bad),
        lambda bad: WordTable(Strings.of(["a"])).find(
            bad, oov_buckets=0, default=0, drop=False
        ),
        records.frame,
        lambda bad: string_arrays.gather(bad, np.arange(3)),
    ],
)
def test_a_string_outside_its_data_is_an_error(use, offsets, native, monkeypatch):
    monkeypatch.setattr("estimax.native.loading.setting", native)
    data = np.frombuffer(b"abc", np.uint8)
    with pytest.raises(InputError, match=r"stay within the \d+ bytes of data; string"):
        use(Strings(data, np.array(offsets), (3,)))


@pytest.mark.parametrize(
    ("data", "offsets", "words"),
    [
        (np.zeros(3, np.float32), np.array([0, 1]), "data must be bytes"),
        (np.zeros((3, 2), np.uint8), np.array([0, 1]), "data must be bytes"),
        (np.zeros(3, np.uint8), np.array([[0, 1]]), "offsets must be int64"),
        (np.zeros(3, np.uint8), np.array([], np.int64), "offsets must be int64"),
    ],
)
def test_arrays_that_are_no_strings_are_errors(data, offsets, words):
    with pytest.raises(InputError, match=words):
        hashing.fingerprints(Strings(data, offsets, (1,)))


def test_strided_data_is_read_as_it_looks():
    data = np.frombuffer(b"a.b.c.", np.uint8)[::2]
    found = hashing.fingerprints(Strings(data, np.array([0, 2, 3]), (2,)))
    np.testing.assert_array_equal(found, hashing.fingerprints(Strings.of(["ab", "c"])))


def test_no_buckets_are_an_error():
    with pytest.raises(ValueError, match="must be positive, got 0"):
        hashing.hash_strings(WORDS, 0, drop_empty=False)


def test_a_buffer_smaller_than_said_is_an_error():
    with pytest.raises(ValueError, match=r"\[0, 11\) is not within a buffer of 10"):
        records.unframe(np.zeros(10, np.uint8), 0, 11, check=True, least=1, most=5)
