"""Read files with a JSON object on each line, in blocks of lines.

    form = JsonFormat({"age": "float32", "tags": "string"}, lists=frozenset({"tags"}))
    FileBlocks(paths, lambda: JsonReader(form), "json_files")
    for rows in read_objects(lines_of_file(ByteFile(path)), path, 4096):
        rows.objects[0], rows.lines[0]        # {"age": 31, "tags": ["a"]}, 1

`JsonReader` returns columns of given types, for training. `read_objects` returns the
objects as they are, for `estimax check --data` and for scoring: they judge the values,
and keep columns whose types they do not know.

pyarrow parses a block whose lines look like objects. It crashes on a block of `null`
alone, takes two objects on a line for two rows, and refuses 2.0 for an integer; so a
block that it should not see, or refuses, is parsed line by line in Python. That also
finds the line at fault.
"""

from __future__ import annotations

import codecs
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.raw_values import arrow_column
from estimax.input.sources.file_blocks import (
    LONGEST_ROW,
    BlockStart,
    ByteFile,
    OpenFile,
    UnreadableError,
    arrow_reader,
)
from estimax.input.streams.chunks import Columns

JSON_DTYPES = ("float32", "float64", "int32", "int64", "bool", "string")
BLOCK_BYTES = 4 << 20
# The least number of bytes parsed at once after a bad line; it doubles with every good
# block, so that a file with many bad lines is not parsed again and again.
_CAREFUL_BYTES = 1 << 14
_LF, _CR, _OPEN, _CLOSE = (ord(mark) for mark in "\n\r{}")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class JsonFormat:
    """The keys to read, and what replaces missing values."""

    dtypes: Mapping[str, str]
    lists: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    compression: str | None = None


class JsonReader:
    """Reads whole lines; a block starts at (byte, number of its first line)."""

    def __init__(self, form: JsonFormat) -> None:
        self._form = form
        self._open = OpenFile(form.compression)
        self._most = BLOCK_BYTES

    def start(self, path: str) -> BlockStart:
        """Return the position of the first line, after a byte order mark."""
        return (self._open.get(path).text_start(), 1)

    def read(
        self, path: str, start: BlockStart, rows: int
    ) -> tuple[Columns, BlockStart] | None:
        """Return a block of rows that ends before the first bad line.

        Raises:
          UnreadableError: The first line of the block is bad.
        """
        offset, line = start
        data = read_whole_lines(self._open.get(path), offset, line, self._most)
        if not data:
            return None
        ends = line_ends(data)
        tree = _parse_block(data, ends, self._form)
        if tree is not None:
            self._most = min(2 * self._most, BLOCK_BYTES)
            count = len(ends)
        else:
            tree, count, problem = _parse_lines(data, ends, self._form)
            if problem:
                self._most = max(_CAREFUL_BYTES, self._most // 8)
            if not count:
                raise UnreadableError(
                    f"{path}, line {line} (byte {offset}): {problem}",
                    (offset + int(ends[0]), line + 1),
                )
        return Columns(tree, count), (offset + int(ends[count - 1]), line + count)

    def close(self) -> None:
        """Close the file."""
        self._open.close()


@dataclass(frozen=True)
class JsonRows:
    """Some rows of a file: the object of each, and the number of its line."""

    objects: list[dict[str, Any]]
    lines: list[int]


def read_objects(
    lines: Iterable[tuple[int, bytes]],
    name: str,
    rows: int,
    *,
    skip_empty: bool = False,
) -> Iterator[JsonRows]:
    """Yield the objects of lines, `rows` at a time.

    Args:
      lines: The number and the bytes of each line; see `lines_of_file`.
      name: The name of the file in messages.
      rows: How many objects to yield at a time; the last may be fewer.
      skip_empty: Whether to skip lines of white space, which are an error otherwise.

    Raises:
      InputError: A line is not a JSON object.
    """
    if skip_empty:
        lines = ((number, text) for number, text in lines if text.strip())
    lines = iter(lines)
    while some := list(itertools.islice(lines, rows)):
        objects = []
        for number, text in some:
            try:
                objects.append(parse_object(text))
            except InputError as error:
                raise InputError(f"{name}, line {number}: {error}") from None
        yield JsonRows(objects, [number for number, _ in some])


def lines_of_file(
    file: ByteFile, start: BlockStart | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of each line.

    `start` is the byte and the number of the first line to read.

    Raises:
      UnreadableError: A line is longer than 64 MB.
    """
    offset, line = start or (file.text_start(), 1)
    while data := read_whole_lines(file, offset, line, BLOCK_BYTES):
        lines = data.split(b"\n")
        if not lines[-1]:  # after the last line feed
            lines.pop()
        yield from enumerate(lines, line)
        offset, line = offset + len(data), line + len(lines)


def lines_of_stream(stream: IO[bytes], name: str) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of each line of a stream that cannot seek.

    Raises:
      UnreadableError: A line is longer than 64 MB.
    """
    offset = 0
    for number in itertools.count(1):
        text = stream.readline(LONGEST_ROW)
        if not text:
            return
        if len(text) == LONGEST_ROW:
            raise _too_long(name, number, offset)
        yield number, text
        offset += len(text)


def read_whole_lines(file: ByteFile, offset: int, line: int, size: int) -> bytes:
    """Return about `size` bytes of whole lines; nothing at the end of the file.

    Raises:
      UnreadableError: The line at `offset`, with the number `line`, is longer than
        64 MB.
    """
    while True:
        data = file.read_at(offset, size)
        end = len(data) if len(data) < size else data.rfind(b"\n") + 1
        if end or not data:
            return data[:end]
        if size >= LONGEST_ROW:
            raise _too_long(file.path, line, offset)
        size *= 2


def _too_long(name: str, line: int, offset: int) -> UnreadableError:
    return UnreadableError(
        f"{name}, line {line} (byte {offset}): the line is longer than "
        f"{LONGEST_ROW >> 20} MB. Is this a file of JSON lines?"
    )


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line.

    Raises:
      InputError: The line is anything else; the message has neither file nor line.
    """
    text = line.removeprefix(codecs.BOM_UTF8).strip()
    if not text:
        raise InputError("expected a JSON object, found an empty line. Remove it.")
    try:
        # Half of a surrogate pair passes here; whoever needs text refuses it.
        value = _DECODER.decode(text.decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise InputError("the JSON object is nested too deeply.") from None
    except InputError:
        raise
    except json.JSONDecodeError as error:
        why = f"{error.msg} at character {error.pos}"
        raise InputError(
            f"expected a JSON object, found {text[:60]!r}: {why}."
        ) from None
    except ValueError as error:  # not UTF-8, or a number with thousands of digits
        raise InputError(
            f"expected a JSON object, found {text[:60]!r}: {error}."
        ) from None
    if not isinstance(value, dict):
        raise InputError(f"expected a JSON object, found {text[:60]!r}.")
    return value


def _check_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InputError(f"the key {twice!r} stands twice in one object.")
    return found


# Made once: `json.loads` makes a decoder for every line if it is given a hook, which
# doubles the time.
_DECODER = json.JSONDecoder(object_pairs_hook=_check_pairs)


def line_ends(data: bytes) -> NDArray[np.int64]:
    """Return the byte after each line, with its line feed."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _LF) + 1
    if not len(ends) or ends[-1] < len(data):
        ends = np.append(ends, len(data))
    return ends


def _parse_block(
    data: bytes, ends: NDArray[np.int64], form: JsonFormat
) -> dict[str, Any] | None:
    """Return the columns of all lines, by pyarrow; None if it cannot parse them."""
    import pyarrow as pa
    from pyarrow import json as arrow_json

    if not _look_like_objects(np.frombuffer(data, np.uint8), ends):
        return None
    options = arrow_json.ParseOptions(
        explicit_schema=pa.schema(list(_arrow_types(form).items())),
        unexpected_field_behavior="ignore",
    )
    # One block: pyarrow refuses an object that is longer than a block.
    reading = arrow_json.ReadOptions(block_size=len(data) + 1)
    try:
        table = arrow_json.read_json(arrow_reader(data), reading, options)
        if table.num_rows != len(ends):
            return None
        return _columns({name: table.column(name) for name in form.dtypes}, form)
    except (pa.ArrowInvalid, InputError):
        return None


def _look_like_objects(data: NDArray[np.uint8], ends: NDArray[np.int64]) -> bool:
    """Return whether every line begins with { and ends with }.

    Then no line is `null` or empty, and no object has several lines: after a } at the
    end of a line, an object cannot go on with the { of the next one.
    """
    starts = np.concatenate([[0], ends[:-1]])
    last = ends - 1
    last = np.maximum(last - (data[last] == _LF), starts)
    last = np.maximum(last - (data[last] == _CR), starts)
    return bool((data[starts] == _OPEN).all() and (data[last] == _CLOSE).all())


def _parse_lines(
    data: bytes, ends: NDArray[np.int64], form: JsonFormat
) -> tuple[dict[str, Any], int, str]:
    """Return the columns and the number of lines before the first bad one, and why."""
    import pyarrow as pa

    values: dict[str, list[Any]] = {name: [] for name in form.dtypes}
    start, count, problem = 0, 0, ""
    for end in ends.tolist():
        try:
            row = parse_object(data[start:end])
            found = {name: _value(row.get(name), name, form) for name in values}
        except InputError as error:
            problem = str(error)
            break
        for name, value in found.items():
            values[name].append(value)
        start, count = end, count + 1
    arrays = {
        name: pa.array(values[name], kind) for name, kind in _arrow_types(form).items()
    }
    return _columns(arrays, form), count, problem


def _value(value: Any, name: str, form: JsonFormat) -> Any:
    """Return the value of a key as its dtype demands; raise `InputError` otherwise."""
    dtype = form.dtypes[name]
    if value is None:
        is_number = dtype != "string" and name not in form.lists
        if is_number and form.defaults.get(name) is None:
            raise InputError(
                f"key {name!r}: expected {dtype}, found no value. Pass "
                f"defaults={{{name!r}: …}} to replace missing values."
            )
        return None
    if name not in form.lists:
        return _scalar(value, name, dtype)
    if not isinstance(value, list):
        raise InputError(
            f"key {name!r}: expected a list of {dtype}, found {_shorten(value)}."
        )
    return [_scalar(item, name, dtype) for item in value]


def _scalar(value: Any, name: str, dtype: str) -> Any:
    if dtype == "string":
        # JSON can write half of a surrogate pair, which is no text.
        fits = isinstance(value, str) and not _SURROGATE.search(value)
    elif dtype == "bool" or isinstance(value, bool):
        fits = dtype == "bool" and isinstance(value, bool)
    elif dtype.startswith("float"):
        fits = isinstance(value, float) or (
            isinstance(value, int) and abs(value) <= sys.float_info.max
        )
        value = float(value) if fits else value
    else:
        # JSON has one kind of number: 2.0 is the integer 2, as pandas writes it.
        is_whole = isinstance(value, float) and value.is_integer()
        value = int(value) if is_whole else value
        bits = 8 * np.dtype(dtype).itemsize - 1
        fits = isinstance(value, int) and -(2**bits) <= value < 2**bits
    if not fits:
        raise InputError(f"key {name!r}: expected {dtype}, found {_shorten(value)}.")
    return value


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _columns(arrays: Mapping[str, Any], form: JsonFormat) -> dict[str, Any]:
    return {
        name: arrow_column(values, form.defaults.get(name), f"key {name!r}")
        for name, values in arrays.items()
    }


def _arrow_types(form: JsonFormat) -> dict[str, Any]:
    import pyarrow as pa

    types = {}
    for name, dtype in form.dtypes.items():
        text = dtype == "string"
        kind = pa.string() if text else pa.from_numpy_dtype(np.dtype(dtype))
        types[name] = pa.list_(kind) if name in form.lists else kind
    return types
