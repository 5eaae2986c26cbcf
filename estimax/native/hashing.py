"""Hash columns with TensorFlow's fingerprints: strings, integers and crosses.

fingerprints(Strings.of(["hello"]))            # array([0xb48be5a931380ce8], uint64)
hash_strings(city, 1000, drop_empty=True)      # ids in [0, 1000), or MISSING

`WordTable` is a hash table that finds the id of every word of a column:

    table = WordTable(Strings.of(["Rome", "Oslo"]))
    table.find(Strings.of(["Oslo", "Bonn"]), oov_buckets=0, default=-1, drop=False)
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.strings import Strings
from estimax.native import loading
from estimax.native.buffers import Scratch
from estimax.native.example_types import FeatureValues
from estimax.native.reference import hashing as reference
from estimax.native.reference.hashing import MISSING
from estimax.native.string_arrays import check_spans, outside, text_of

__all__ = ["MISSING"]

Int64s = NDArray[np.int64]
Hashes = NDArray[np.uint64]
_scratch = Scratch()


def fingerprints(strings: Strings) -> Hashes:
    """Return the fingerprint of every string, flat."""
    data, offsets = text_of(strings)
    kernels = _kernels()
    if kernels is None:
        return reference.fingerprints(data, *_spans(data, offsets))
    out = np.empty(strings.size, np.uint64)
    _check(kernels.fingerprints(data, offsets, out), data, offsets)
    return out


def integer_fingerprints(values: NDArray[np.integer[Any]]) -> Hashes:
    """Return the fingerprint of every integer's decimal text, flat."""
    flat = _flat(values, np.int64)
    kernels = _kernels()
    if kernels is None:
        return reference.integer_fingerprints(flat)
    out = np.empty(len(flat), np.uint64)
    kernels.int_fingerprints(flat, out)
    return out


def concatenated(first: Hashes, second: Hashes) -> Hashes:
    """Return FingerprintCat64 of every pair of hashes, flat.

    Raises:
      ValueError: The arrays have different sizes.
    """
    a, b = _flat(first, np.uint64), _flat(second, np.uint64)
    if len(a) != len(b):
        raise ValueError(f"expected as many hashes as {len(a)}, got {len(b)}")
    kernels = _kernels()
    if kernels is None:
        return reference.concatenated(a, b)
    out = np.empty(len(a), np.uint64)
    kernels.concatenated(a, b, out)
    return out


def hash_strings(strings: Strings, size: int, *, drop_empty: bool) -> Int64s:
    """Return the fingerprint of every string modulo `size`, flat.

    If `drop_empty` is true, the id of an empty string is MISSING.
    """
    _check_size(size)
    data, offsets = text_of(strings)
    kernels = _kernels()
    if kernels is None:
        starts, lengths = _spans(data, offsets)
        ids = _remainders(reference.fingerprints(data, starts, lengths), size)
        return np.where(lengths == 0, MISSING, ids) if drop_empty else ids
    out = np.empty(strings.size, np.int64)
    _check(kernels.hash_strings(data, offsets, size, drop_empty, out), data, offsets)
    return out


def hash_integers(
    values: NDArray[np.integer[Any]], size: int, *, drop_minus_one: bool
) -> Int64s:
    """Return the fingerprint of every integer's decimal text modulo `size`, flat.

    If `drop_minus_one` is true, the id of -1 is MISSING.
    """
    _check_size(size)
    flat = _flat(values, np.int64)
    kernels = _kernels()
    if kernels is None:
        ids = _remainders(reference.integer_fingerprints(flat), size)
        return np.where(flat == -1, MISSING, ids) if drop_minus_one else ids
    out = np.empty(len(flat), np.int64)
    kernels.hash_ints(flat, size, drop_minus_one, out)
    return out


def hash_columns(columns: Sequence[Strings], sizes: Sequence[int]) -> list[Int64s]:
    """Return the ids of several columns, each flat, as `hash_strings` would.

    All columns are hashed by one call of compiled code. A column of a batch takes only
    a few microseconds, so separate calls would be slower, especially in threads.
    """
    for size in sizes:
        _check_size(size)
    if len(sizes) != len(columns):
        raise ValueError(f"expected {len(columns)} sizes, got {len(sizes)}")
    kernels = _kernels()
    if kernels is None or not columns:
        pairs = zip(columns, sizes, strict=True)
        return [hash_strings(text, size, drop_empty=False) for text, size in pairs]
    data, shifts = columns[0].data, np.zeros(len(columns), np.int64)
    # The columns that a parser returns share one buffer, so nothing is copied.
    if all(column.data is data for column in columns):
        data, _ = text_of(columns[0])
        offsets = [column.offsets for column in columns]
    else:
        texts = [text_of(column) for column in columns]
        data, shifts = _concat_texts(texts)
        offsets = [each for _, each in texts]
    counts = np.array([len(each) - 1 for each in offsets])
    joined = _scratch.take("offsets", max(int(counts.sum()), 0) + len(columns))
    out = np.empty(len(joined) - len(columns), np.int64)
    try:
        np.concatenate(offsets, out=joined, casting="no")
        arguments = (data, joined, shifts, counts, np.array(sizes, np.uint64))
        is_wrong = counts.min() < 0 or kernels.hash_columns(*arguments, out) >= 0
    except (TypeError, ValueError):  # the offsets are not int64 [count + 1]
        is_wrong = True
    if is_wrong:
        for column in columns:  # raises an error for the column that is wrong
            check_spans(*text_of(column))
        raise AssertionError("a wrong column was not found")
    ends = counts.cumsum().tolist()
    return [out[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def _concat_texts(
    texts: Sequence[tuple[NDArray[np.uint8], Int64s]],
) -> tuple[NDArray[np.uint8], Int64s]:
    """Return the bytes of all columns in one array, and a shift for their offsets."""
    # A slice with wrong offsets is cut without an error here; the kernel reports it.
    parts = [data[max(offsets[0], 0) : offsets[-1]] for data, offsets in texts]
    ends = np.cumsum([len(part) for part in parts])
    shifts = np.concatenate([[0], ends[:-1]]) - [offsets[0] for _, offsets in texts]
    return np.concatenate(parts), shifts


def cross_rows(
    values: Hashes, starts: Int64s, seed: int, size: int
) -> tuple[Int64s, Int64s]:
    """Hash every combination of one value per key, row by row, last key fastest.

    Args:
      values: The hashes of the values of all keys.
      starts: [K, R + 1]; the values of key k in row r are
        `values[starts[k, r]:starts[k, r + 1]]`.
      seed: The hash with which every combination begins.
      size: The number of buckets.

    Returns:
      The ids of all rows, flat; and where the ids of each row begin, [R + 1].

    Raises:
      ValueError: `starts` does not increase within the values, or `size` is not
        positive.
    """
    _check_size(size)
    values, starts = _flat(values, np.uint64), np.ascontiguousarray(starts, np.int64)
    counts = np.diff(starts, axis=1)
    if starts.ndim != 2 or not starts.size or (counts < 0).any():
        raise ValueError(f"starts must be increasing [K, R + 1], got {starts.shape}")
    if starts.min() < 0 or starts.max() > len(values):
        raise ValueError(f"starts must stay within the {len(values)} values")
    out_starts = np.zeros(starts.shape[1], np.int64)
    np.cumsum(counts.prod(axis=0), out=out_starts[1:])
    kernels = _kernels()
    if kernels is None:
        return reference.cross_rows(values, starts, seed, size, out_starts), out_starts
    out = np.empty(out_starts[-1], np.int64)
    kernels.cross_rows(values, starts, seed, size, out_starts, out)
    return out, out_starts


def _kernels() -> ModuleType | None:
    return loading.kernels("hashing", kernels_agree)


def kernels_agree(kernels: ModuleType) -> bool:
    """Return whether the kernels agree with the reference on tiny columns."""
    # At least one string for each formula of the algorithm, and all its limits.
    lengths = np.array([0, 1, 3, 4, 7, 8, 16, 17, 32, 33, 64, 65, 128, 200])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    data = (np.arange(offsets[-1]) * 37 % 251).astype(np.uint8)
    expected = reference.fingerprints(data, offsets[:-1], lengths)
    found = np.empty(len(lengths), np.uint64)
    if kernels.fingerprints(data, offsets, found) != -1:
        return False
    ints = np.array([0, 7, -1, 10**18, -(2**63), 2**63 - 1])
    found_ints, pairs = np.empty(len(ints), np.uint64), np.empty(len(ints), np.uint64)
    kernels.int_fingerprints(ints, found_ints)
    kernels.concatenated(found_ints, found[: len(ints)], pairs)
    expected_ints = reference.integer_fingerprints(ints)
    starts = np.array([[0, 2, 2, 3], [3, 5, 6, 7]])
    out_starts = np.array([0, 4, 4, 5])
    crossed = np.empty(5, np.int64)
    kernels.cross_rows(found, starts, 99, 1000, out_starts, crossed)
    words = np.array([5, -3, 2**40])
    slots, places = np.full(8, -1, np.int32), np.empty(4, np.int64)
    distinct = kernels.fill_int_slots(words, slots) == -1
    sought = np.array([2**40, 5, 6, -3])
    kernels.find_ints(sought, words, slots, 0, -1, False, places)
    named = np.zeros(32, np.uint64)
    distinct &= kernels.fill_word_slots(data, offsets, named) == -1
    text_places = np.empty(len(lengths), np.int64)
    arguments = (data, offsets, data, offsets, named, 0, -1, False, text_places)
    return (
        distinct
        and kernels.find_words(*arguments) == -1
        and places.tolist() == [2, 0, -1, 1]
        and np.array_equal(text_places, np.arange(len(lengths)))
        and np.array_equal(found, expected)
        and np.array_equal(found_ints, expected_ints)
        and np.array_equal(
            pairs, reference.concatenated(expected_ints, expected[: len(ints)])
        )
        and np.array_equal(
            crossed, reference.cross_rows(expected, starts, 99, 1000, out_starts)
        )
    )


def _spans(data: NDArray[np.uint8], offsets: Int64s) -> tuple[Int64s, Int64s]:
    """Return starts and lengths; raise `InputError` if a string is out of bounds."""
    check_spans(data, offsets)
    return offsets[:-1], np.diff(offsets)


def _check(bad: int, data: NDArray[np.uint8], offsets: Int64s) -> None:
    if bad >= 0:
        raise outside(data, offsets, bad)


def _check_size(size: int) -> None:
    if not 0 < size < 2**63:
        raise ValueError(f"the number of buckets must be positive, got {size}")


def _remainders(hashes: Hashes, size: int) -> Int64s:
    return (hashes % np.uint64(size)).astype(np.int64)


def _flat(values: NDArray[Any], dtype: type) -> NDArray[Any]:
    return np.ascontiguousarray(values, dtype).reshape(-1)


_MOST_WORDS = 2**31 - 1


class WordTable:
    """A hash table of distinct words, which are all strings or all integers.

    The id of a word is its position among the words. `repeated` is the position of the
    first word that occurs a second time, or None; `find` raises an error then.

    Args:
      words: The words, at most 2**31 - 1.

    >>> table = WordTable(np.array([10, 20]))
    >>> table.find(np.array([20, 7]), oov_buckets=0, default=-1, drop=False)
    array([ 1, -1])
    """

    def __init__(self, words: Strings | NDArray[np.int64]) -> None:
        if len(words) > _MOST_WORDS:
            raise ValueError(f"a vocabulary has at most {_MOST_WORDS} words")
        if isinstance(words, Strings):
            self._words: Any = text_of(words)
        else:
            self._words = np.ascontiguousarray(words, np.int64).reshape(-1)
        self._size = len(words)
        self._is_text = isinstance(words, Strings)
        self._kernels: Any = _kernels()
        self.repeated: int | None
        if self._kernels is None:
            self._by_word = _dictionary(words)
            self.repeated = _first_repeated(words, self._by_word)
        else:
            self._slots, self.repeated = self._fill(self._kernels)

    def _fill(self, kernels: ModuleType) -> tuple[NDArray[Any], int | None]:
        # At most half of the slots are used, so that a lookup rarely needs a second
        # probe.
        size = 1 << (2 * self._size + 1).bit_length()
        slots: NDArray[Any]
        if self._is_text:
            slots = np.zeros(size, np.uint64)
            place = kernels.fill_word_slots(*self._words, slots)
            if place < -1:
                data, offsets = self._words
                raise outside(data, offsets, -2 - place)
        else:
            slots = np.full(size, -1, np.int32)
            place = kernels.fill_int_slots(self._words, slots)
        return slots, place if place >= 0 else None

    def find(
        self, values: FeatureValues, *, oov_buckets: int, default: int, drop: bool
    ) -> Int64s:
        """Return the id of every value, flat.

        Args:
          values: Strings for a table of strings, else integers.
          oov_buckets: If positive, values that are not in the table get one of this
            many ids behind those of the words, by hash.
          default: The id of values that are not in the table if `oov_buckets` is 0.
          drop: Return MISSING for empty strings and -1.

        Raises:
          TypeError: The values are not of the kind of the words.
          ValueError: A word is repeated, or `oov_buckets` is negative.
        """
        if isinstance(values, Strings) != self._is_text:
            kind = "text" if self._is_text else "integers"
            raise TypeError(f"a vocabulary of {kind} cannot find {type(values)}")
        if self.repeated is not None or oov_buckets < 0:
            raise ValueError("words must be distinct and oov_buckets at least 0")
        rest = (oov_buckets, default, drop)
        if self._kernels is None and not self._take_kernels():
            return self._find_by_dictionary(values, *rest)
        out = np.empty(values.size, np.int64)
        if isinstance(values, Strings):
            text = text_of(values)
            arguments = (*text, *self._words, self._slots, *rest, out)
            bad = self._kernels.find_words(*arguments)
            if bad >= 0:
                raise outside(*text, bad)
        else:
            flat = np.ascontiguousarray(values, np.int64).reshape(-1)
            self._kernels.find_ints(flat, self._words, self._slots, *rest, out)
        return out

    def _take_kernels(self) -> bool:
        """Return whether kernels are compiled meanwhile; use them if they are."""
        kernels = _kernels()
        if kernels is None:
            return False
        # Slots first: other threads use them as soon as there are kernels.
        self._slots, _ = self._fill(kernels)
        self._kernels = kernels
        return True

    def _find_by_dictionary(
        self, values: FeatureValues, oov_buckets: int, default: int, drop: bool
    ) -> Int64s:
        flat: list[Any]
        nothing: Any
        if isinstance(values, Strings):
            check_spans(*text_of(values))
            flat, nothing = values.tolist(), b""
        else:
            flat, nothing = values.reshape(-1).astype(np.int64).tolist(), -1
        ids = np.array([self._by_word.get(value, -1) for value in flat], np.int64)
        others = np.full(len(ids), default, np.int64)
        if oov_buckets and isinstance(values, Strings):
            others = self._size + hash_strings(values, oov_buckets, drop_empty=False)
        elif oov_buckets:
            others = self._size + hash_integers(
                np.asarray(values), oov_buckets, drop_minus_one=False
            )
        ids = np.where(ids < 0, others, ids)
        if drop:
            ids[[value == nothing for value in flat]] = MISSING
        return ids


def _dictionary(words: FeatureValues) -> dict[Any, int]:
    if isinstance(words, Strings):
        check_spans(*text_of(words))
    listed = words.tolist()
    # In reverse order, so that a repeated word keeps its first position.
    return {word: i for i, word in reversed(list(enumerate(listed)))}


def _first_repeated(words: FeatureValues, by_word: dict[Any, int]) -> int | None:
    if len(by_word) == len(words):
        return None
    return next(i for i, word in enumerate(words.tolist()) if by_word[word] != i)
