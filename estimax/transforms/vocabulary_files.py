"""Vocabulary files: one word per line, or one per record of a gzipped TFRecord file."""

from __future__ import annotations

import functools
import os

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import FeatureError, InputError
from estimax.core.strings import Strings
from estimax.transforms.words import WordList
from estimax.wire import records


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
