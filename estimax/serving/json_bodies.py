"""The JSON bodies of requests and answers: bytes to values, and back.

    body = parse(data)                       # {"instances": [...], ...}
    body = parse_in_pieces(data)             # {"instances": JsonPieces, ...}
    for rows in body["instances"]: ...       # lists of a few hundred rows
    predictions_json(answers, is_row_form)

`NaN` and `Infinity` are numbers, on the way in and on the way out, as in TensorFlow
Serving; orjson has neither, so Python's own parser and writer take over where they
occur.

A parser in C holds the interpreter until it is done, 0.5 s for 64 MB, and no other
thread answers meanwhile, not even a health check. So the commas between the members of
large containers are found with NumPy, which lets other threads run, and the text
between them is parsed 128 kB at a time. The rows of a large request are never all
Python objects at once. Long answers are written in parts for the same reason.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from estimax.serving.status import invalid

SIZE_OF_NUMBER: Final = 16  # about how many bytes a number of an answer has
_ROWS_AT_ONCE: Final = 1024  # written at a time
_SERIALIZE: Final = orjson.OPT_SERIALIZE_NUMPY
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


def parse(body: bytes) -> dict[str, Any]:
    """Return the object of a JSON body.

    Raises:
      ServingError: The body is not one JSON object.
    """
    value = loads(body)
    if not isinstance(value, dict):
        raise invalid(f"expected a JSON object, found {type(value).__name__}.")
    return value


def loads(text: bytes) -> Any:
    """Return the value of a JSON text, which may have NaN and Infinity.

    Raises:
      ServingError: The text is not JSON.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return _parse_with_nan(text, error)


def _parse_with_nan(body: bytes, error: Exception) -> Any:
    """Parse again with Python's parser, which knows NaN and Infinity."""
    if b"NaN" not in body and b"Inf" not in body:
        raise invalid(f"the body is not JSON: {error}.")
    try:
        value = json.loads(body)
        if b"\\u" in body:  # half of a surrogate pair is no text, but Python reads it
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise invalid(f"the body is not JSON: {error}.") from None
    return value


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
    # A small body, or one that is no object, which `parse` explains.
    if len(text) <= piece or not text.startswith(b"{"):
        return parse(data)
    structure = _Structure(text, piece)
    top = structure.container(0, 1, len(text))
    return {
        name: JsonPieces(value)
        if isinstance(value, _Container) and value.is_list
        else _parse_all(value)
        for name, value in top.members()
    }


def _parse_all(value: Any) -> Any:
    """Return a value without parts that are not parsed yet."""
    if not isinstance(value, _Container):
        return value
    if value.is_list:
        return list(itertools.chain.from_iterable(value.elements()))
    return {name: _parse_all(inner) for name, inner in value.members()}


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
                yield [_parse_all(value)]
            else:
                yield loads(b"[" + structure.text_between(before, after) + b"]")

    def members(self) -> Iterator[tuple[str, Any]]:
        """Yield the names and values of an object; large values as containers."""
        structure = self.structure
        for before, after in self._spans:
            text = structure.text_between(before, after)
            if len(text) <= structure.piece:
                yield from loads(b"{" + text + b"}").items()
                continue
            key = _KEY.match(text)
            if key is None:
                raise invalid(f"the body is not JSON: no key at byte {before + 1}.")
            name = loads(key[1])
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
            # A view of the body, without a copy. NumPy releases the interpreter in the
            # operations on it.
            block = np.frombuffer(text, np.uint8, stop - place, place)
            places, kinds, is_text = _find_structure(block, is_text)
            steps = (kinds == _OPEN).astype(np.int8) - (kinds == _CLOSE)
            depths = np.cumsum(steps, dtype=np.int64) + depth
            depth = int(depths[-1]) if len(depths) else depth
            depths += kinds == _CLOSE  # a bracket belongs to what it closes
            for index in range(2 * _DEPTH):
                kind = _CLOSE if index % 2 else _COMMA
                own = (kinds == kind) & (depths == index // 2 + 1)
                found[index].append(_keep_outer_places(places[own] + place, piece))
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
        # Only depths are counted above, so "[}" is found here.
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
            return loads(self.text[start:stop])
        return self.container(start, depth, stop)

    def text_between(self, before: int, after: int) -> bytes:
        """Return the text between two places, or raise if there is none."""
        text = self.text[before + 1 : after]
        if not text.strip(_BLANK):
            raise invalid(f"the body is not JSON: no value at byte {before + 1}.")
        return text


def _find_structure(
    block: NDArray[np.uint8], is_text: bool
) -> tuple[NDArray[Any], NDArray[Any], bool]:
    """Return the places and kinds of brackets and commas, and whether text is open."""
    kinds = _KINDS[block]
    places = np.flatnonzero(kinds)
    kinds = kinds[places]
    if (kinds == _ESCAPE).any():
        kept = ~_find_escapes(places, kinds)
        places, kinds = places[kept], kinds[kept]
    # After an odd number of quotes comes text.
    within = np.logical_xor.accumulate(kinds == _QUOTE) ^ is_text
    outside = np.flatnonzero(~within)
    is_text = bool(within[-1]) if len(within) else is_text
    return places[outside], kinds[outside], is_text


def _keep_outer_places(places: NDArray[np.int64], piece: int) -> NDArray[np.int64]:
    """Return the first and the last place of every piece of the text."""
    # Every comma of 64 MB would be 8 bytes of index for each.
    pieces = places // piece
    is_first = np.diff(pieces, prepend=-1) != 0
    is_last = np.diff(pieces, append=-1) != 0
    kept: NDArray[np.int64] = places[is_first | is_last]
    return kept


def _find_escapes(places: NDArray[Any], kinds: NDArray[Any]) -> NDArray[np.bool_]:
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


def predictions_json(answers: Mapping[str, NDArray[Any]], is_row_form: bool) -> bytes:
    """Return the body of an answer: `predictions` for rows, `outputs` for columns."""
    # Once for all outputs: the rows of an answer are written in one way.
    finite = are_finite(answers.values())
    key = b'{"predictions":' if is_row_form else b'{"outputs":'
    if len(answers) == 1:
        ((name, array),) = answers.items()
        return key + _array_text(name, array, finite) + b"}"
    if not is_row_form:
        texts = [
            dumps(name) + b":" + _array_text(name, array, finite)
            for name, array in answers.items()
        ]
        return key + b"{" + b",".join(texts) + b"}}"
    count = len(next(iter(answers.values())))
    parts = (
        _rows_text(answers, slice(start, start + _ROWS_AT_ONCE), finite)
        for start in range(0, count, _ROWS_AT_ONCE)
    )
    return key + b"[" + b",".join(parts) + b"]}"


def _rows_text(
    answers: Mapping[str, NDArray[Any]], rows: slice, is_finite: bool
) -> bytes:
    """Return some rows of an answer, each an object with all outputs, as JSON."""
    columns = [
        _texts_of_rows(n, array[rows], is_finite) for n, array in answers.items()
    ]
    names = [dumps(name) + b":" for name in answers]
    # One format for all rows: each value follows its name.
    form = b"{" + b",".join(name.replace(b"%", b"%%") + b"%b" for name in names) + b"}"
    return b",".join([form % row for row in zip(*columns, strict=True)])


def _texts_of_rows(name: str, array: NDArray[Any], is_finite: bool) -> list[bytes]:
    """Return every row of an output as JSON.

    Numbers are written together and cut, which takes a third of the time.
    """
    if array.dtype == object or array.ndim > 2 or not array.size or not is_finite:
        return [dumps(row, is_finite) for row in _json_ready(name, array)]
    text = dumps(_json_ready(name, array))
    if array.ndim == 1:
        return text[1:-1].split(b",")
    return [b"[" + row + b"]" for row in text[2:-2].split(b"],[")]


def _array_text(name: str, array: NDArray[Any], is_finite: bool) -> bytes:
    if not array.ndim:
        return dumps(_json_ready(name, array), is_finite)
    return _text_in_parts(
        len(array), lambda rows: _json_ready(name, array[rows]), is_finite
    )


def list_json(key: str, values: Any, is_finite: bool | None = None) -> bytes:
    """Return an object with one list or array.

    >>> list_json("results", np.array([1.5, 2.0], np.float32))
    b'{"results":[1.5,2.0]}'
    """
    finite = are_finite([values]) if is_finite is None else is_finite
    text = _text_in_parts(len(values), lambda rows: values[rows], finite)
    return b"{" + dumps(key) + b":" + text + b"}"


def _text_in_parts(count: int, part: Callable[[slice], Any], is_finite: bool) -> bytes:
    """Return a list as JSON. Other threads run between two parts of a long one."""
    if count <= _ROWS_AT_ONCE:
        return dumps(part(slice(None)), is_finite)
    texts = (
        dumps(part(slice(start, start + _ROWS_AT_ONCE)), is_finite)[1:-1]
        for start in range(0, count, _ROWS_AT_ONCE)
    )
    return b"[" + b",".join(texts) + b"]"


def are_finite(arrays: Iterable[NDArray[Any]]) -> bool:
    """Return whether no array has NaN or an infinity, which `dumps` must know."""
    return all(
        array.dtype.kind not in "fV" or bool(np.isfinite(array).all())
        for array in arrays
    )


def _json_ready(name: str, array: NDArray[Any]) -> Any:
    if array.dtype == object:
        return texts_json(array, is_bytes=name.endswith("_bytes"))
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def texts_json(array: NDArray[Any], *, is_bytes: bool) -> Any:
    """Return an array of bytes as nested lists of JSON strings or base64 objects."""
    flat = array.reshape(-1).tolist()
    shown = np.empty(len(flat), object)
    try:
        if is_bytes:
            raise ValueError
        shown[:] = [data.decode() for data in flat]
    except ValueError:  # JSON strings are UTF-8, so other bytes are sent as base64
        shown[:] = [_text_json(data, is_bytes) for data in flat]
    return shown.reshape(array.shape).tolist()


def _text_json(data: bytes, is_bytes: bool) -> Any:
    if not is_bytes:
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return {"b64": base64.b64encode(data).decode()}


def dumps(value: Any, is_finite: bool = True) -> bytes:
    """Return a value as JSON; float32 with the digits that float32 needs.

    orjson writes null for NaN, so arrays with such numbers take a slower way.
    """
    if is_finite:
        return orjson.dumps(value, option=_SERIALIZE)
    return json.dumps(_plain_values(value), ensure_ascii=False).encode()


def _plain_values(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return _plain_array(np.asarray(value))
    if isinstance(value, dict):
        return {key: _plain_values(inner) for key, inner in value.items()}
    return (
        [_plain_values(inner) for inner in value] if isinstance(value, list) else value
    )


def _plain_array(array: NDArray[Any]) -> Any:
    """Return nested lists; float32 as the shortest float64 that rounds to it."""
    if array.dtype != np.float32 and array.dtype != np.float16:
        return array.tolist()
    if not array.ndim:
        return float(str(array)) if math.isfinite(array) else float(array)
    return [_plain_array(inner) for inner in array]
