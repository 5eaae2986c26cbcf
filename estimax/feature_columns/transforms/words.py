r"""Vocabularies: lists of words or integers, the files users give, and bundle files.

    words = load_words("cities.txt", size=500)      # checked, cached while unchanged
    record = write_words(words, assets, "city-3f2a91c0.txt")
    words = read_words(record, assets)

A bundle's vocabulary file has one word per line, so that people can read it. If a word
contains a line feed, the whole file is escaped: \n for a line feed, \\ for a backslash.

`fingerprint64` is the string hash of TensorFlow's columns: FarmHash's "na" 64-bit
variant. Saved models depend on every bit of it, so it never changes.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimax.core.errors import BundleError, FeatureError, InputError
from estimax.core.strings import Strings
from estimax.feature_columns.transforms.transform import (
    IdArray,
    decimal_text,
    exceeds_int64,
)
from estimax.formats import records
from estimax.native import hashing
from estimax.native.example_types import FeatureValues
from estimax.native.hashing import Hashes, WordTable
from estimax.storage import files, json_text


class WordList:
    """An ordered list of distinct words, all strings or all integers.

    Use `WordList.of` to make one of Python values. Two lists are equal if their words
    are. A digest, computed once, stands for the words, so that comparing and hashing
    are fast even for a million words.

    Args:
      words: The words, as `Strings` or an int64 array.

    Example:
      >>> words = WordList.of(["a", "b"])
      >>> words == WordList.of([b"a", b"b"]), words
      (True, <2 words: b'a', b'b'>)
    """

    def __init__(self, words: Strings | NDArray[np.int64]) -> None:
        self.words = words
        self.digest = _digest(words)

    @staticmethod
    def of(words: Iterable[str | bytes | int]) -> WordList:
        """Make a list of Python words.

        Args:
          words: `str` or `bytes` (text is encoded as UTF-8), or integers; not both.
        """
        listed = list(words)
        if listed and all(isinstance(word, str | bytes) for word in listed):
            # An array of objects: NumPy's bytes type loses trailing zeros.
            array = np.empty(len(listed), object)
            array[:] = listed
            return WordList(Strings.of(array))
        return WordList(np.array(listed, np.int64))

    @property
    def is_integer(self) -> bool:
        """Whether the words are integers and not strings."""
        return not isinstance(self.words, Strings)

    def __len__(self) -> int:
        return len(self.words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WordList) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        first = ", ".join(map(repr, self.words[:3].tolist()))
        return f"<{len(self)} words: {first}{', …' if len(self) > 3 else ''}>"

    def ids_of(
        self, values: FeatureValues, *, oov_buckets: int, default: int, drop: bool
    ) -> IdArray:
        """Return the position of every value in the list.

        Args:
          values: The values, flat.
          oov_buckets: The number of ids behind the words for values not in the list,
            chosen by hash.
          default: The id of such values if there are no OOV buckets.
          drop: Whether '' and -1 are absent; their id is then MISSING.
        """
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
        """Raise `FeatureError` if a word is in the list twice."""
        _ = self._table

    @functools.cached_property
    def _table(self) -> WordTable:
        table = WordTable(self.words)
        repeated = table.repeated
        if repeated is not None:
            word = self.words[repeated : repeated + 1].tolist()[0]
            raise FeatureError(
                f"vocabulary: {word!r} is listed twice (the second time as word "
                f"{repeated}, counted from 0); list every word once."
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
    r"""Return the number of words in a vocabulary file.

    Args:
      path: A text file with one word per line.
      is_tfrecord: Whether it is a gzipped TFRecord file of words instead.

    Returns:
      The number of words.

    Raises:
      FeatureError: The file is empty or cannot be read.

    Example:
      >>> import tempfile
      >>> with tempfile.NamedTemporaryFile() as file:
      ...     _ = Path(file.name).write_text("Oslo\nRome\n")
      ...     count_words(file.name)
      2
    """
    found = len(_words_of(path, is_tfrecord))
    if not found:
        raise FeatureError(f"vocabulary file {path}: it is empty.")
    return found


def load_words(
    path: str, *, size: int, is_integer: bool = False, is_tfrecord: bool = False
) -> WordList:
    r"""Read the first words of a vocabulary file.

    The result is cached until the size or the modification time of the file changes.

    Args:
      path: A text file with one word per line.
      size: The number of words to read; the file may have more.
      is_integer: Whether the words are integers.
      is_tfrecord: Whether it is a gzipped TFRecord file of words instead.

    Returns:
      A `WordList` of `size` words.

    Raises:
      FeatureError: The file cannot be read or is too short; a word is blank, repeated,
        or not an integer although `is_integer` is set.

    Example:
      >>> import tempfile
      >>> with tempfile.NamedTemporaryFile() as file:
      ...     _ = Path(file.name).write_text("Oslo\nRome\nBonn\n")
      ...     load_words(file.name, size=2).words.tolist()
      [b'Oslo', b'Rome']
    """
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
        lines.pop()  # the file ends with a line feed
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


def write_words(words: WordList, folder: Path, name: str) -> dict[str, Any]:
    """Write a vocabulary file of a bundle; return the record that describes it."""
    listed: list[Any] = words.words.tolist()
    if words.is_integer:
        lines, form = [str(number).encode() for number in listed], "integers"
    elif any(b"\n" in word for word in listed):
        lines, form = [_escape_word(word) for word in listed], "escaped"
    else:
        lines, form = listed, "lines"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"".join(line + b"\n" for line in lines))
    return {"file": name, "format": form, "sha256": words.digest.hex()}


def read_words(record: Mapping[str, Any], folder: Path) -> WordList:
    """Read the vocabulary file that `write_words` described; check its digest."""
    try:
        path = files.regular_file(folder, json_text.text(record, "file"))
    except ValueError as error:
        raise BundleError(f"vocabulary in {folder}: {error}.") from None
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise BundleError(f"vocabulary {path}: {error.strerror}.") from error
    if record["format"] == "integers":
        words = WordList(np.array([int(line) for line in lines], np.int64))
    elif record["format"] == "escaped":
        words = WordList(_strings([_unescape_line(line) for line in lines]))
    else:
        words = WordList(_strings(lines))
    if words.digest.hex() != record["sha256"]:
        raise BundleError(
            f"vocabulary {path}: its words are not those that were exported; the file "
            "was changed or cut."
        )
    return words


def _escape_word(word: bytes) -> bytes:
    return word.replace(b"\\", b"\\\\").replace(b"\n", b"\\n")


def _unescape_line(line: bytes) -> bytes:
    return re.sub(rb"\\(.)", lambda m: b"\n" if m[1] == b"n" else m[1], line)


def fingerprint64(strings: Strings | ArrayLike) -> Hashes:
    """Hash every string with TensorFlow's Fingerprint64 (FarmHash).

    Use it to compute ids outside of columns, for example to split data by a user's id.

    Args:
      strings: Strings of any shape; integers are hashed as decimal text.

    Returns:
      uint64 hashes of the same shape.

    Example:
      >>> hex(fingerprint64(Strings.of(["hello"]))[0])
      '0xb48be5a931380ce8'
    """
    if not isinstance(strings, Strings):
        array = np.asarray(strings)
        if array.dtype.kind in "iu":
            return hashing.integer_fingerprints(array).reshape(array.shape)
        strings = Strings.of(strings)
    return hashing.fingerprints(strings).reshape(strings.shape)


def hash_buckets(
    columns: Mapping[str, Strings], num_buckets: int | Mapping[str, int]
) -> dict[str, NDArray[np.int64]]:
    """Return the hash bucket of every string of several columns.

    The ids are those of `tf.strings.to_hash_bucket_fast`. Use it in an input function
    that hashes many columns: one compiled call for all of them is faster than one call
    per column, which takes only a few microseconds, most of all in threads.

    Args:
      columns: Strings by feature, of any shape.
      num_buckets: The number of buckets, the same for all or by feature.

    Returns:
      int64 ids in [0, num_buckets) by feature, of the same shapes.

    Example:
      >>> hash_buckets({"city": Strings.of(["Oslo", "Rome"])}, 1000)
      {'city': array([578, 349])}
    """
    texts = list(columns.values())
    if not texts:
        return {}
    if isinstance(num_buckets, Mapping):
        sizes = [num_buckets[key] for key in columns]
    else:
        sizes = [num_buckets] * len(texts)
    found = hashing.hash_columns(texts, sizes)
    shaped = zip(columns, found, texts, strict=True)
    return {
        key: ids if len(text.shape) == 1 else ids.reshape(text.shape)
        for key, ids, text in shaped
    }


def fingerprint_cat64(first: Hashes, second: Hashes) -> Hashes:
    """Combine hashes pair by pair with TensorFlow's FingerprintCat64.

    Crosses combine the hashes of their parts in this way. The order matters.

    Args:
      first: uint64 hashes.
      second: uint64 hashes, of a shape that broadcasts with `first`.

    Returns:
      The combined uint64 hashes.

    Example:
      >>> one, two = np.array([1], np.uint64), np.array([2], np.uint64)
      >>> bool(fingerprint_cat64(one, two)[0] == fingerprint_cat64(two, one)[0])
      False
    """
    a, b = np.broadcast_arrays(np.asarray(first, np.uint64), np.uint64(second))
    return hashing.concatenated(a, b).reshape(a.shape)
