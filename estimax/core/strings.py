"""`Strings`: arrays of byte strings as one flat buffer and offsets, as in Arrow.

    city = Strings.of(["Oslo", "Rome", ""])
    city[1]                  # b"Rome"
    city[np.array([2, 0])]   # Strings of two
    city == "Rome"           # array([False, True, False])
    np.asarray(city)         # object array of bytes

A NumPy object array has a Python object for each value. `Strings` has only the bytes,
can be sliced without a copy, and is what the hashing and vocabulary kernels read.

`encoding_problem` tells whether a text file can be cut into rows before it is decoded.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError

# Made once: a comparison with `np.int64` would make a new dtype every time.
_WIDE = np.dtype(np.int64)
_IS_BLANK = np.isin(np.arange(256), list(b" \t\n\r\v\f"))  # by byte


@dataclass(frozen=True, eq=False, init=False)
class Strings:
    """An array of byte strings of any rank, in row-major order.

    String i is `data[offsets[i]:offsets[i + 1]]`. Offsets need not start at 0, so a
    slice of the first axis shares memory. Offsets of int32, as Arrow has them, are
    converted to int64 when `offsets` is first read: for a batch, not the whole file.

    Args:
      data: The bytes of all strings, uint8 [n].
      offsets: Where each string begins, and where the last one ends: int64 or int32
        [count + 1].
      shape: The shape of the array.
    """

    data: NDArray[np.uint8]
    shape: tuple[int, ...]
    _given: NDArray[np.int64] | NDArray[np.int32]  # the offsets

    def __init__(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64] | NDArray[np.int32],
        shape: tuple[int, ...],
    ) -> None:
        # The constructor that a frozen dataclass generates takes three times as long,
        # and every batch has many columns.
        own = self.__dict__
        own["data"], own["_given"], own["shape"] = data, offsets, shape
        if offsets.dtype == _WIDE:
            own["offsets"] = offsets

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where each string begins in `data`, and where the last ends: [n + 1]."""
        return self._given.astype(np.int64)

    @staticmethod
    def of(values: Any) -> Strings:  # Any: every kind of array that holds text
        """Convert nested lists, NumPy arrays of text or objects, or pyarrow arrays.

        Missing values (None, NaN) become empty strings.

        Raises:
          InputError: A value is neither text nor missing.
        """
        if isinstance(values, Strings):
            return values
        if hasattr(values, "buffers") and hasattr(values, "type"):
            return _from_arrow(values)
        # NumPy's own bytes arrays lose trailing zero bytes; objects keep them.
        as_objects = object if isinstance(values, list | tuple) else None
        array = np.asarray(values, dtype=as_objects)
        if array.dtype.kind not in "OSUT":
            raise InputError(
                f"Strings.of: expected text or bytes, got dtype {array.dtype}."
            )
        flat = array.reshape(-1).tolist()
        joined = Strings.of_text(flat)
        if joined is not None:
            return joined.reshape(array.shape)
        return Strings._from_bytes([_encode(v) for v in flat], array.shape)

    @staticmethod
    def of_text(values: list[Any]) -> Strings | None:
        r"""Convert a list of `str`; None if a value is another, or has a zero byte.

        No Python code runs for each value: all are joined, with zero bytes between
        them, and encoded at once. For 1,024 words this takes a quarter of the time.

        >>> Strings.of_text(["Oslo", "", "Zürich"])
        Strings([b'Oslo', b'', b'Z\xc3\xbcrich'], shape=(3,))
        """
        try:
            encoded = "\0".join(values).encode()
        except TypeError:
            return None
        data = np.frombuffer(encoded, np.uint8)
        is_between = data == 0
        between = np.flatnonzero(is_between)
        count = len(values)
        if len(between) != count - 1:
            return None
        offsets = np.empty(count + 1, np.int64)
        offsets[0], offsets[-1] = 0, len(data) - count + 1
        np.subtract(between, np.arange(count - 1), out=offsets[1:-1])
        return Strings(data[~is_between], offsets, (count,))

    @staticmethod
    def of_bytes(values: list[bytes]) -> Strings:
        """Convert a list of `bytes`, without a look at each.

        >>> Strings.of_bytes([b"Oslo", b""])
        Strings([b'Oslo', b''], shape=(2,))
        """
        return Strings._from_bytes(values, (len(values),))

    @staticmethod
    def _from_bytes(values: list[bytes], shape: tuple[int, ...]) -> Strings:
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        data = np.frombuffer(b"".join(values), np.uint8)
        return Strings(data, _offsets_of(lengths), shape)

    @property
    def size(self) -> int:
        """The number of strings."""
        return len(self._given) - 1

    @property
    def nbytes(self) -> int:
        """The bytes that these strings and their offsets take in memory."""
        return int(self._given[-1]) - int(self._given[0]) + self._given.nbytes

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The length in bytes of every string, flat."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return self.shape[0]

    def __eq__(self, word: object) -> Any:  # bool, as `==` of objects, for others
        """Return which strings are equal to a word, `bytes` or `str`: bool [*shape]."""
        if not isinstance(word, bytes | str):
            return NotImplemented
        wanted = np.frombuffer(word.encode() if isinstance(word, str) else word, "u1")
        same: NDArray[np.bool_] = self.lengths == len(wanted)
        places = np.flatnonzero(same)
        if len(wanted) and len(places):
            at = self.offsets[places][:, None] + np.arange(len(wanted))
            same[places] = (self.data[at] == wanted).all(axis=1)
        return same.reshape(self.shape)

    def __ne__(self, word: object) -> Any:
        same = self == word
        return ~same if isinstance(same, np.ndarray) else not same

    __hash__ = object.__hash__

    def __iter__(self) -> Iterator[Any]:  # bytes, or Strings for ranks above 1
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Any:  # bytes for one value, else Strings
        """Index the first axis by an int, a slice, or an array of ints or bools."""
        inner = math.prod(self.shape[1:])
        if isinstance(index, int | np.integer):
            i = range(len(self))[int(index)]
            if self.ndim == 1:
                return self.data[self.offsets[i] : self.offsets[i + 1]].tobytes()
            return self._rows(i * inner, inner, self.shape[1:])
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                rows = max(stop - start, 0)
                return self._rows(start * inner, rows * inner, (rows, *self.shape[1:]))
            index = np.arange(start, stop, step)
        index = np.asarray(index)
        if index.dtype == bool:
            index = np.flatnonzero(index)
        index = np.where(index < 0, index + len(self), index)
        # Rank 1, the usual case, skips the arithmetic, which would double the time.
        flat = index
        if inner != 1:
            flat = (index[:, None] * inner + np.arange(inner)).reshape(-1)
        return self._take(flat, (len(index), *self.shape[1:]))

    def rows(self, start: int, stop: int) -> Strings:
        """Return `self[start:stop]` for rank 1, without the cost of `[]`."""
        given = self._given[start : stop + 1]
        return Strings(self.data, given, (len(given) - 1,))

    def _rows(self, start: int, count: int, shape: tuple[int, ...]) -> Strings:
        return Strings(self.data, self._given[start : start + count + 1], shape)

    def _take(self, flat: NDArray[np.int64], shape: tuple[int, ...]) -> Strings:
        starts = self.offsets[flat]
        # Not `self.lengths[flat]`, which would compute the lengths of all strings.
        lengths = self.offsets[flat + 1] - starts
        offsets = _offsets_of(lengths)
        # Byte k of the result is byte `starts[i] + k - offsets[i]` of the data, where i
        # is the string that k belongs to.
        shift = np.repeat(starts - offsets[:-1], lengths)
        data = self.data[shift + np.arange(offsets[-1])]
        return Strings(data, offsets, shape)

    def reshape(self, shape: tuple[int, ...]) -> Strings:
        """Return a view with another shape; one size may be -1, as in NumPy."""
        return Strings(self.data, self._given, _resolve_shape(shape, self.size))

    def strip(self) -> Strings:
        r"""Return the strings without the white space of ASCII at both ends.

        >>> Strings.of([" Oslo", "New York\t", "  "]).strip().tolist()
        [b'Oslo', b'New York', b'']
        """
        starts, ends = self.offsets[:-1], self.offsets[1:]
        if not len(starts) or not self._has_outer_blanks(starts, ends):
            return self
        first = int(starts[0])
        is_text = ~_IS_BLANK[self.data[first : int(ends[-1])]]
        inner = np.flatnonzero(is_text) + first
        # The first and the last byte of each string that is not blank, by place.
        low, high = np.searchsorted(inner, starts), np.searchsorted(inner, ends) - 1
        lengths = np.zeros(len(starts), np.int64)
        has_text = low <= high
        begin = inner[low[has_text]]
        lengths[has_text] = inner[high[has_text]] + 1 - begin
        offsets = _offsets_of(lengths)
        shift = np.repeat(begin - offsets[:-1][has_text], lengths[has_text])
        return Strings(self.data[shift + np.arange(offsets[-1])], offsets, self.shape)

    def _has_outer_blanks(
        self, starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> bool:
        filled = starts < ends
        outer = (starts[filled], ends[filled] - 1)
        return any(bool(_IS_BLANK[self.data[places]].any()) for places in outer)

    def tolist(self) -> list[bytes]:
        """Return every string as bytes, flat."""
        buffer = self.data.tobytes()
        ends = self.offsets.tolist()
        return [buffer[a:b] for a, b in itertools.pairwise(ends)]

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        flat = np.empty(self.size, dtype=object)
        flat[:] = self.tolist()
        array = flat.reshape(self.shape)
        return array if dtype is None else array.astype(dtype)

    def __repr__(self) -> str:
        first = [repr(value) for value in self.reshape((-1,))[:4].tolist()]
        shown = [text if len(text) <= 40 else f"{text[:38]}…'" for text in first]
        shown += ["…"] if self.size > 4 else []
        return f"Strings([{', '.join(shown)}], shape={self.shape})"


def concatenate(parts: Iterable[Strings]) -> Strings:
    """Join arrays along the first axis.

    Raises:
      InputError: The shapes differ in another axis.
    """
    parts = list(parts)
    tails = {part.shape[1:] for part in parts}
    if len(tails) != 1:
        raise InputError(f"cannot join strings of shapes {[p.shape for p in parts]}.")
    ends = [part.offsets[1:] for part in parts]
    starts = np.array([part.offsets[0] for part in parts])
    stops = np.array([part.offsets[-1] for part in parts])
    spans = zip(parts, starts.tolist(), stops.tolist(), strict=True)
    data = np.concatenate([part.data[first:last] for part, first, last in spans])
    # The offsets of each part are shifted to where its bytes begin in the result. To
    # sum up the lengths of all strings again would take several times as long.
    offsets = np.concatenate([[0], *ends])
    shifts = np.cumsum(stops - starts) - stops
    offsets[1:] += np.repeat(shifts, [len(each) for each in ends])
    rows = sum([part.shape[0] for part in parts])
    return Strings(data, offsets, (rows, *tails.pop()))


def is_text(value: Any) -> bool:
    """Return whether a value is `Strings`, or a NumPy array of text or objects."""
    return isinstance(value, Strings) or (
        isinstance(value, np.ndarray) and value.dtype.kind in "OSUT"
    )


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NumPy's `masked` or pandas' `NA`."""
    if value is None or value is np.ma.masked:
        return True
    if isinstance(value, float):
        return value != value
    return type(value).__name__ == "NAType"  # by name: pandas may not be installed


def _encode(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if is_missing(value):
        return b""
    raise InputError(f"expected str or bytes, got {type(value).__name__}: {value!r}.")


def _offsets_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _resolve_shape(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    if math.prod(shape) == size and min(shape, default=0) >= 0:
        return shape  # the usual case, in a sixth of NumPy's time
    if shape == (-1, 1):
        return (size, 1)
    resolved = np.empty(size, np.bool_).reshape(shape).shape
    return tuple(int(n) for n in resolved)


def _from_arrow(array: Any) -> Strings:
    """Convert a pyarrow array of text, or a dictionary of text; nulls become empty."""
    if hasattr(array, "combine_chunks"):
        array = array.combine_chunks()
    if hasattr(array, "dictionary_decode"):
        array = array.dictionary_decode()
    kind = str(array.type)
    if kind in ("string_view", "binary_view"):
        kind = kind.removesuffix("_view")
        array = array.cast(kind)
    if kind.removeprefix("large_") not in ("string", "binary"):
        raise InputError(f"Strings.of: expected text or bytes, got Arrow type {kind}.")
    if array.null_count:
        array = array.fill_null("" if "string" in kind else b"")
    wide = "large" in kind
    _, offsets, data = array.buffers()
    dtype = np.dtype(np.int64 if wide else np.int32)
    start = array.offset
    view = np.frombuffer(offsets, dtype)[start : start + len(array) + 1]
    flat = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return Strings(flat, view, (len(array),))
