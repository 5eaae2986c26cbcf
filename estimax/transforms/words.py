"""A vocabulary: words or integers, each with its place, found by the column."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import FeatureError
from estimax.core.strings import Strings
from estimax.native.words import WordTable
from estimax.transforms.entries import IdArray, Values, decimal_text, exceeds_int64
from estimax.transforms.fingerprint import fingerprint64


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
