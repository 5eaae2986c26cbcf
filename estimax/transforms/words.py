"""A vocabulary: words or integers, each with its place, found by the column."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import FeatureError
from estimax.core.strings import Strings
from estimax.transforms.compiled import kernels
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
        rest = (oov_buckets, default, drop)
        if isinstance(self.words, Strings):
            assert isinstance(values, Strings)
            out = np.empty(values.size, np.int64)
            text = (values.data, values.offsets, self.words.data, self.words.offsets)
            kernels().find_words(*text, self._slots, *rest, out)
        else:
            assert isinstance(values, np.ndarray)
            flat = np.ascontiguousarray(values, np.int64)
            out = np.empty(flat.size, np.int64)
            kernels().find_ints(flat, self.words, self._slots, *rest, out)
            if exceeds_int64(values):
                beyond = np.flatnonzero(flat < 0)
                out[beyond] = default
                if oov_buckets:
                    hashed = fingerprint64(decimal_text(values[beyond]))
                    out[beyond] = len(self) + (hashed % np.uint64(oov_buckets))
        return out

    def check_distinct(self) -> None:
        """Raise when a word is there twice."""
        _ = self._slots

    @functools.cached_property
    def _slots(self) -> NDArray[Any]:
        # At most half full, so that a probe seldom takes a second step.
        size = 1 << (2 * len(self) + 1).bit_length()
        slots: NDArray[Any]
        if isinstance(self.words, Strings):
            slots = np.zeros(size, np.uint64)
            text = (self.words.data, self.words.offsets)
            repeated = kernels().fill_word_slots(*text, slots)
        else:
            slots = np.full(size, -1, np.int32)
            repeated = kernels().fill_int_slots(self.words, slots)
        if repeated >= 0:
            word = self.words[repeated : repeated + 1].tolist()[0]
            raise FeatureError(
                f"vocabulary: {word!r} is there twice (the second time as word "
                f"{repeated}, counted from 0); every word must be there once."
            )
        return slots


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
