"""Parse a large JSON body in pieces, so that other threads run between them.

    body = parse_in_pieces(data)             # {"instances": JsonPieces, ...}
    for rows in body["instances"]: ...       # lists of a few hundred rows

A parser in C holds the interpreter until it is done, 0.5 s for 64 MB, and no other
thread answers meanwhile, not even a health check. So the commas between the members of
large containers are found with NumPy, which lets other threads run, and the text
between them is parsed 128 kB at a time. The rows of a large request are never all
Python objects at once.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from estimax.serving import json_values
from estimax.serving.status import invalid

PIECE: Final = 128 * 1024  # bytes
_BLOCK: Final = 1024 * 1024  # bytes to look for commas at a time
# Possessive: what could be given back later would be remembered for every byte.
_KEY: Final = re.compile(rb'\s*("[^"\\]*+(?:\\.[^"\\]*+)*+")\s*:\s*', re.DOTALL)
_BLANK: Final = b" \t\r\n"
_DEPTH: Final = 4  # of containers that are cut; {"instances": [[...]]} has 3
# What a byte is for the structure of JSON: 0 is nothing.
_QUOTE, _OPEN, _CLOSE, _COMMA, _ESCAPE = 1, 2, 3, 4, 5
_KINDS: Final[NDArray[np.uint8]] = np.zeros(256, np.uint8)
_KINDS[list(b'"')] = _QUOTE
_KINDS[list(b"[{")] = _OPEN
_KINDS[list(b"]}")] = _CLOSE
_KINDS[list(b",")] = _COMMA
_KINDS[list(b"\\")] = _ESCAPE
_PAIRS: Final = (b"[]", b"{}")


@dataclass(frozen=True, eq=False)
class JsonPieces:
    """A large JSON list, which is parsed while it is read.

    Args:
      container: Where the list is.
    """

    container: _Container

    def __iter__(self) -> Iterator[list[Any]]:
        """Yield lists of some of the elements, in order."""
        return self.container.elements()

    def whole(self) -> list[Any]:
        """Return all elements."""
        return list(itertools.chain.from_iterable(self))


def parse_in_pieces(data: bytes, piece: int = PIECE) -> dict[str, Any]:
    """Return the object of a JSON body, with large lists at its top as `JsonPieces`.

    Args:
      data: The body.
      piece: The bytes to parse at a time.

    Raises:
      ServingError: The body is not one JSON object.

    >>> found = parse_in_pieces(b'{"a": 1, "rows": [1, 2, 3, 4, 5, 6, 7]}', piece=12)
    >>> found["a"], list(found["rows"])
    (1, [[1], [2], [3], [4, 5, 6], [7]])
    """
    text = data.strip(_BLANK)
    if len(text) <= piece or not text.startswith(b"{"):
        return json_values.parse(data)
    structure = _Structure(text, piece)
    top = structure.container(0, 1, len(text))
    return {
        name: JsonPieces(value)
        if isinstance(value, _Container) and value.is_list
        else _whole(value)
        for name, value in top.members()
    }


def _whole(value: Any) -> Any:
    """Return a value without parts that are not parsed yet."""
    if not isinstance(value, _Container):
        return value
    if value.is_list:
        return list(itertools.chain.from_iterable(value.elements()))
    return {name: _whole(inner) for name, inner in value.members()}


@dataclass(frozen=True, eq=False)
class _Container:
    """A large list or object: its place, and the places of some of its commas.

    Between two of the cuts are either several members of at most one piece together,
    or one member of any size.
    """

    structure: _Structure
    depth: int
    cuts: Sequence[int]  # the opening bracket, commas, and the closing bracket

    @property
    def is_list(self) -> bool:
        return self.structure.text[self.cuts[0]] == ord("[")

    @property
    def _spans(self) -> Iterator[tuple[int, int]]:
        text, first, last = self.structure.text, self.cuts[0], self.cuts[-1]
        is_empty = len(self.cuts) == 2 and not text[first + 1 : last].strip(_BLANK)
        return iter(()) if is_empty else itertools.pairwise(self.cuts)

    def elements(self) -> Iterator[list[Any]]:
        """Yield the elements of a list, a piece at a time."""
        structure = self.structure
        for before, after in self._spans:
            if after - before > structure.piece:
                value = structure.value(before + 1, after, self.depth + 1)
                yield [_whole(value)]
            else:
                yield json_values.loads(b"[" + structure.filled(before, after) + b"]")

    def members(self) -> Iterator[tuple[str, Any]]:
        """Yield the names and values of an object; large values as containers."""
        structure = self.structure
        for before, after in self._spans:
            text = structure.filled(before, after)
            if len(text) <= structure.piece:
                yield from json_values.loads(b"{" + text + b"}").items()
                continue
            key = _KEY.match(text)
            if key is None:
                raise invalid(f"the body is not JSON: no key at byte {before + 1}.")
            name = json_values.loads(key[1])
            start = before + 1 + key.end()
            yield name, structure.value(start, after, self.depth + 1)


class _Structure:
    """Where the large containers of a text begin, have commas, and end.

    Args:
      text: The JSON.
      piece: Of the commas within so many bytes, only the first and the last are kept,
        which bounds the memory and finds every larger member.
    """

    def __init__(self, text: bytes, piece: int) -> None:
        self.text = text
        self.piece = piece
        found: list[list[NDArray[np.int64]]] = [[] for _ in range(2 * _DEPTH)]
        depth, is_text, place = 0, False, 0
        while place < len(text):
            stop = min(place + _BLOCK, len(text))
            while stop < len(text) and text[stop - 1] == ord("\\"):
                stop += 1  # an escape and what it escapes are in one block
            block = np.frombuffer(text, np.uint8, stop - place, place)
            places, kinds, is_text = _structural(block, is_text)
            steps = (kinds == _OPEN).astype(np.int8) - (kinds == _CLOSE)
            depths = np.cumsum(steps, dtype=np.int64) + depth
            depth = int(depths[-1]) if len(depths) else depth
            depths += kinds == _CLOSE  # a bracket belongs to what it closes
            for index in range(2 * _DEPTH):
                kind = _CLOSE if index % 2 else _COMMA
                own = (kinds == kind) & (depths == index // 2 + 1)
                found[index].append(_thinned(places[own] + place, piece))
            place = stop
        self._commas = [np.concatenate(found[2 * d]) for d in range(_DEPTH)]
        self._ends = [np.concatenate(found[2 * d + 1]) for d in range(_DEPTH)]

    def container(self, start: int, depth: int, stop: int) -> _Container:
        """Return the container that begins at a place and ends before another."""
        ends, commas = self._ends[depth - 1], self._commas[depth - 1]
        index = int(np.searchsorted(ends, start))
        if index == len(ends) or ends[index] >= stop:
            raise invalid("the body is not JSON: it ends before the value does.")
        end = int(ends[index])
        if self.text[start : start + 1] + self.text[end : end + 1] not in _PAIRS:
            raise invalid(f"the body is not JSON: a wrong bracket at byte {end}.")
        if self.text[end + 1 : stop].strip(_BLANK):
            raise invalid(f"the body is not JSON: text follows byte {end}.")
        low, high = np.searchsorted(commas, (start, end))
        return _Container(self, depth, [start, *commas[low:high].tolist(), end])

    def value(self, start: int, stop: int, depth: int) -> Any:
        """Return the value between two places; a large container as it is."""
        while start < stop and self.text[start] in _BLANK:
            start += 1
        is_container = self.text[start : start + 1] in (b"[", b"{")
        if stop - start <= self.piece or not is_container or depth > _DEPTH:
            return json_values.loads(self.text[start:stop])
        return self.container(start, depth, stop)

    def filled(self, before: int, after: int) -> bytes:
        """Return the text between two places, or raise if there is none."""
        text = self.text[before + 1 : after]
        if not text.strip(_BLANK):
            raise invalid(f"the body is not JSON: no value at byte {before + 1}.")
        return text


def _structural(
    block: NDArray[np.uint8], is_text: bool
) -> tuple[NDArray[Any], NDArray[Any], bool]:
    """Return the places and kinds of brackets and commas, and whether text is open."""
    kinds = _KINDS[block]
    places = np.flatnonzero(kinds)
    kinds = kinds[places]
    if (kinds == _ESCAPE).any():
        kept = ~_escaped(places, kinds)
        places, kinds = places[kept], kinds[kept]
    # After an odd number of quotes comes text.
    within = np.logical_xor.accumulate(kinds == _QUOTE) ^ is_text
    outside = np.flatnonzero(~within)
    is_text = bool(within[-1]) if len(within) else is_text
    return places[outside], kinds[outside], is_text


def _thinned(places: NDArray[np.int64], piece: int) -> NDArray[np.int64]:
    """Return the first and the last place of every piece of the text."""
    pieces = places // piece
    is_first = np.diff(pieces, prepend=-1) != 0
    is_last = np.diff(pieces, append=-1) != 0
    kept: NDArray[np.int64] = places[is_first | is_last]
    return kept


def _escaped(places: NDArray[Any], kinds: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which structural bytes are escapes, or are escaped by one before them."""
    is_escape = kinds == _ESCAPE
    escapes = places[is_escape]
    # In a run of escapes, every second one is escaped by the one before it.
    starts = np.flatnonzero(np.diff(escapes, prepend=-2) != 1)
    lengths = np.diff(starts, append=len(escapes))
    runs = escapes[starts]
    odd = lengths % 2 == 1
    is_after = np.isin(places, (runs + lengths)[odd])
    found: NDArray[np.bool_] = is_escape | is_after
    return found
