"""Rows of a table put in the order of another vocabulary.

    info = VocabInfo("new.txt", 3, 1, "old.txt")
    rows = remapped(info, old_rows, initial_rows)      # numpy, no loop over words

A word that both vocabularies have keeps its row; every other row, those of
out-of-vocabulary buckets included, stays as it was initialised.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import CheckpointError, ConfigError, MissingFileError

Vocabulary = str | os.PathLike[str] | Sequence[str]
Array = NDArray[Any]


@dataclass(frozen=True)
class VocabInfo:
    """How the rows of a variable follow from a vocabulary, then and now.

    A vocabulary is a file of one word per line, or the words themselves. Rows without
    a match keep the variable's own initial values, unless a `backup_initializer`
    (`f(key, shape)`, as JAX's are) makes others; it is called with the whole
    variable's shape. `axis` 1 remaps columns, as for a class vocabulary; a vector has
    one axis only, which is then meant. `old_vocab_size` -1 means all of the words.

    >>> VocabInfo(["z", "q", "x"], 3, 1, ["x", "y", "z"]).axis
    0
    """

    new_vocab: Vocabulary
    new_vocab_size: int
    num_oov_buckets: int
    old_vocab: Vocabulary
    old_vocab_size: int = -1
    backup_initializer: Callable[..., Any] | None = None
    axis: int = 0

    def __post_init__(self) -> None:
        if self.axis not in (0, 1):
            raise ConfigError(f"VocabInfo: axis must be 0 or 1, got {self.axis}.")
        for name in ("new_vocab", "old_vocab"):
            if not getattr(self, name):
                raise ConfigError(f"VocabInfo: {name} is empty; name a file or words.")
        if self.new_vocab_size < 1 or self.num_oov_buckets < 0:
            raise ConfigError(
                "VocabInfo: new_vocab_size must be >= 1 and num_oov_buckets >= 0, got "
                f"{self.new_vocab_size} and {self.num_oov_buckets}."
            )


def matches(info: VocabInfo) -> NDArray[np.int64]:
    """For each new row the old row of the same word, -1 where there is none."""
    import pyarrow.compute as pc

    new = _words(info.new_vocab, info.new_vocab_size)
    old = _words(info.old_vocab, info.old_vocab_size)
    found = pc.index_in(new, value_set=old)
    at = np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    return np.concatenate([at, np.full(info.num_oov_buckets, -1, np.int64)])


def remapped(
    info: VocabInfo, at: NDArray[np.int64], old: Array, initial: Array, *, name: str
) -> Array:
    """The new array: old rows (or columns) where `at` names one, else the initial."""
    axis = min(info.axis, initial.ndim - 1)
    length = initial.shape[axis] if initial.ndim else 0
    others = [n for i, n in enumerate(initial.shape) if i != axis]
    if old.ndim != initial.ndim or others != [
        n for i, n in enumerate(old.shape) if i != axis
    ]:
        raise CheckpointError(
            f"warm start: {name} is {list(old.shape)} in the checkpoint and "
            f"{list(initial.shape)} in the model; a vocabulary changes axis {axis} "
            "only."
        )
    if length > len(at):
        raise CheckpointError(
            f"warm start: {name} has {length} entries along axis {axis}, but its "
            f"VocabInfo tells of {len(at)}: new_vocab_size {info.new_vocab_size} and "
            f"{info.num_oov_buckets} out-of-vocabulary buckets."
        )
    at = at[:length]
    if at.max(initial=-1) >= old.shape[axis]:
        raise CheckpointError(
            f"warm start: {name} has {old.shape[axis]} entries along axis {axis} in "
            f"the checkpoint, fewer than the words of old_vocab (one of them is word "
            f"{int(at.max())}). Is it the vocabulary that the model was trained with?"
        )
    kept = np.flatnonzero(at >= 0)
    result = np.array(initial)
    into: list[Any] = [slice(None)] * initial.ndim
    into[axis] = kept
    result[tuple(into)] = np.take(old, at[kept], axis=axis)
    return result


def _words(given: Vocabulary, size: int) -> Any:  # an Arrow array; it has no types
    """The words, each with its line feed: an array over the file's own bytes.

    A table of ten million rows has as many words; none of them becomes an object.
    """
    import pyarrow as pa

    text = _lines(given)
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
    if size > len(ends):
        raise ConfigError(
            f"VocabInfo: {_shown(given)} has {len(ends)} words, fewer than the size "
            f"of {size} that is given for it."
        )
    ends = ends if size < 0 else ends[:size]
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends), buffers)


def _lines(given: Vocabulary) -> bytes:
    """The text of a vocabulary, every word ended by one line feed."""
    if not isinstance(given, str | os.PathLike):
        return "".join(f"{word}\n" for word in given).encode()
    try:
        with open(given, "rb") as file:
            text = file.read().replace(b"\r\n", b"\n")
    except OSError as error:
        raise MissingFileError(
            f"VocabInfo: vocabulary file {_shown(given)} cannot be read "
            f"({error.strerror})."
        ) from None
    return text if text.endswith(b"\n") or not text else text + b"\n"


def _shown(given: Vocabulary) -> str:
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    return "a list of words"
