"""`WordTable`: a hash table that finds the id of every word of a column.

table = WordTable(Strings.of(["Rome", "Oslo"]))
table.find(Strings.of(["Oslo", "Bonn"]), oov_buckets=0, default=-1, drop=False)
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.strings import Strings
from estimax.native import hashing, loading
from estimax.native.checks import check_spans, outside, text_of
from estimax.native.example_types import FeatureValues
from estimax.native.hashing import MISSING, Int64s

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
        self._kernels = _kernels()
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
        if self._kernels is None:
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
            others = self._size + hashing.hash_strings(
                values, oov_buckets, drop_empty=False
            )
        elif oov_buckets:
            others = self._size + hashing.hash_integers(
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


def _kernels() -> ModuleType | None:
    """Return the kernels for hashing, which include those for tables of words."""
    return loading.kernels("hashing", hashing.kernels_agree)
