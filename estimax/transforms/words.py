"""A vocabulary: words or integers, each with its place, found by the column."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import FeatureError, InputError
from estimax.core.strings import Strings
from estimax.native.words import WordTable
from estimax.transforms.entries import IdArray, Values, decimal_text, exceeds_int64
from estimax.transforms.fingerprint import fingerprint64
from estimax.wire import records


class WordList:
    """Distinct words (all strings, or all integers) in their order.

    Equal when the words are; a digest made once stands for them, so comparing and
    hashing cost nothing even for a million words.

    >>> words = WordList.of(["a", "b"])
    >>> words == WordList.of([b"a", b"b"]), len(words)
    (True, 2)
    """

    def __init__(self, words: Strings | NDArray[np.int64]) -> None:
        self.words = words
        self.digest = _digest(words)

    @staticmethod
    def of(words: Iterable[str | bytes | int]) -> WordList:
        """Build from Python words; all text or all integers."""
        listed = list(words)
        if listed and all(isinstance(word, str | bytes) for word in listed):
            # As objects: NumPy's own bytes lose trailing zeros.
            array = np.empty(len(listed), object)
            array[:] = listed
            return WordList(Strings.of(array))
        return WordList(np.array(listed, np.int64))

    @property
    def is_integer(self) -> bool:
        """Whether the words are integers."""
        return not isinstance(self.words, Strings)

    def __len__(self) -> int:
        return len(self.words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WordList) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<{len(self)} words {self.digest.hex()[:8]}>"

    def ids_of(
        self, values: Values, *, oov_buckets: int, default: int, drop: bool
    ) -> IdArray:
        """The place of every value, flat; others go to OOV buckets or the default."""
        ids = self._table.find(
            values, oov_buckets=oov_buckets, default=default, drop=drop
        )
        if isinstance(values, np.ndarray) and exceeds_int64(values):
            beyond = np.flatnonzero(values > np.iinfo(np.int64).max)
            ids[beyond] = default
            if oov_buckets:
                hashed = fingerprint64(decimal_text(values.reshape(-1)[beyond]))
                ids[beyond] = len(self) + (hashed % np.uint64(oov_buckets))
        return ids

    def check_distinct(self) -> None:
        """Raise `FeatureError` when a word is there twice."""
        _ = self._table

    @functools.cached_property
    def _table(self) -> WordTable:
        table = WordTable(self.words)
        repeated = table.repeated
        if repeated is not None:
            word = self.words[repeated : repeated + 1].tolist()[0]
            raise FeatureError(
                f"vocabulary: {word!r} is there twice (the second time as word "
                f"{repeated}, counted from 0); every word must be there once."
            )
        return table


def _digest(words: Strings | NDArray[np.int64]) -> bytes:
    digest = hashlib.sha256()
    if isinstance(words, Strings):
        digest.update(b"strings")
        digest.update(np.ascontiguousarray(words.lengths).data)
        digest.update(words.data[words.offsets[0] : words.offsets[-1]].data)
    else:
        digest.update(b"integers")
        digest.update(np.ascontiguousarray(words).data)
    return digest.digest()


def count_words(path: str, *, is_tfrecord: bool = False) -> int:
    """How many words a vocabulary file has; an error when none, or no file."""
    found = len(_words_of(path, is_tfrecord))
    if not found:
        raise FeatureError(f"vocabulary file {path}: it is empty.")
    return found


def load_words(
    path: str, *, size: int, is_integer: bool = False, is_tfrecord: bool = False
) -> WordList:
    """The first `size` words of a file, checked; read once while the file stays."""
    at = _stat(path)
    stamp = (at.st_mtime_ns, at.st_size)
    return _load(path, size, is_integer, is_tfrecord, stamp)


@functools.lru_cache(maxsize=256)
def _load(
    path: str, size: int, is_integer: bool, is_tfrecord: bool, stamp: tuple[int, int]
) -> WordList:
    words = _words_of(path, is_tfrecord)
    if len(words) < size:
        raise FeatureError(
            f"vocabulary file {path}: it has {len(words)} words, fewer than the "
            f"vocabulary_size of {size}."
        )
    words = words[:size]
    for number, word in enumerate(words, 1):
        if not word:
            raise FeatureError(f"vocabulary file {path}, line {number}: it is blank.")
    listed = WordList(_integers(path, words) if is_integer else _strings(words))
    try:
        listed.check_distinct()
    except FeatureError as error:
        raise FeatureError(f"vocabulary file {path}: {error}") from None
    return listed


def _words_of(path: str, is_tfrecord: bool) -> list[bytes]:
    _stat(path)
    if is_tfrecord:
        return _records(path)
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")
    if not lines[-1]:
        lines.pop()  # what follows the last line feed is no line
    return [line.removesuffix(b"\r") for line in lines]


def _records(path: str) -> list[bytes]:
    try:
        return records.read_records(path, "GZIP").tolist()
    except InputError as error:
        raise FeatureError(f"vocabulary file {error}") from None


def _stat(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        raise FeatureError(
            f"vocabulary file {path}: cannot be read ({error.strerror})."
        ) from None


def _strings(words: list[bytes]) -> Strings:
    array = np.empty(len(words), object)
    array[:] = words
    return Strings.of(array)


def _integers(path: str, words: list[bytes]) -> NDArray[np.int64]:
    numbers = []
    for line, word in enumerate(words, 1):
        try:
            numbers.append(int(word))
        except ValueError:
            raise FeatureError(
                f"vocabulary file {path}, line {line}: {word!r} is not an integer, but "
                "the column's dtype is."
            ) from None
    return np.array(numbers, np.int64)
