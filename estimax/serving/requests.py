"""The one reader of requests: JSON bodies, columns and Examples to features.

    reader = FeatureReader(signature.inputs, origins_of(bundle.plan))
    one, is_row_form = features_from_json(body, signature.inputs, reader)
    reader.raw_batch([one, other])      # converts the values of both requests at once

    batch = check_request(bundle, signature, columns)    # columns of any other form

The rules are TensorFlow Serving's: `instances` holds rows, `inputs` holds columns. A
number is not accepted for a string, nor a boolean or 1.0 for an integer. Beyond those
rules, `null` and a key that is not there are missing values, where the model fills
them.

A request is read in one of two ways, with the same result:

- Most requests name every feature, and most features have one value per row. A
  conversion to NumPy costs a few microseconds for each feature, however few rows there
  are. So these values stay Python objects (`PendingRows`) until the batch is complete,
  and features of one dtype are converted together: 26 columns of text are one
  `Strings`. Types are checked when the request arrives, so that no request can spoil
  the batch that it shares with others.
- Every other form, and every request with a mistake, is read column by column
  (`columns_from_json`), which also explains what is wrong.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from estimax.core.device_dtypes import cast
from estimax.core.errors import BundleError
from estimax.core.strings import Strings
from estimax.export import Bundle, TensorInfo
from estimax.export.requests import column_from, is_filled, with_blank_rows
from estimax.export.signature import STRING, Signature, input_name
from estimax.input.streams import columns as streams
from estimax.serving.examples import (
    EXAMPLE_NAMES,
    columns_from_examples,
    decode_base64,
    is_base64,
)
from estimax.serving.json_bodies import JsonPieces
from estimax.serving.status import invalid
from estimax.staging import host_plan as plans
from estimax.staging.trace import Origin

CLASSES: Final = "classes"
SCORES: Final = "scores"
REGRESSION: Final = "outputs"
JsonColumn = Sequence[Any]  # one JSON value for each row
_AT_ONCE: Final = 1024  # rows that are checked without a pause for other threads
# The kind of a NumPy dtype -> the types that JSON values of it may have. Exact types:
# `True` is an int to Python, but not a number to TensorFlow Serving.
_TYPES: Final[dict[str, frozenset[type]]] = {
    "f": frozenset({int, float}),
    "V": frozenset({int, float}),  # bfloat16 and its like
    "i": frozenset({int}),
    "u": frozenset({int}),
    "b": frozenset({bool}),
    "U": frozenset({str}),  # text
}
_PLAIN_KINDS: Final = "fibU"  # of features that wait as Python values
_JSON_NAMES: Final[dict[type, str]] = {
    bool: "true or false",
    dict: "an object",
    float: "a number with a fraction",
    int: "a number",
    list: "a list",
    str: "a string",
    type(None): "null",
}


def features_from_json(
    body: Mapping[str, Any], specs: Sequence[TensorInfo], reader: FeatureReader
) -> tuple[PendingRows | dict[str, Any], bool]:
    """Return the features of a request, and whether they came as rows.

    Raises:
      ServingError: The body has both or neither of `instances` and `inputs`, or a value
        does not fit its feature.
    """
    # The fast way first. It returns None for what it does not know, and then the
    # request is read again from the start; mistakes may take twice the time.
    if ("instances" in body) != ("inputs" in body):
        is_row_form = "instances" in body
        given = body["instances" if is_row_form else "inputs"]
        read: Any = reader.from_rows if is_row_form else reader.from_columns
        expected: type = list if is_row_form else dict
        if is_row_form and isinstance(given, JsonPieces):
            read, expected = reader.from_pieces, JsonPieces
        found = read(given) if type(given) is expected and given else None
        if found is not None:
            return found, is_row_form
    whole = {
        key: value.whole() if isinstance(value, JsonPieces) else value
        for key, value in body.items()
    }
    return columns_from_json(reader.with_name(whole), specs, reader.text_inputs)


@dataclass(frozen=True, eq=False)
class PendingRows:
    """The features of one request.

    Args:
      reader: The reader that checked them.
      rows: The number of rows.
      plain: The columns of features with one value per row, in the reader's order.
      others: The other features, converted.
    """

    reader: FeatureReader
    rows: int
    plain: Sequence[JsonColumn]
    others: Mapping[Origin, Any] = field(default_factory=dict)

    def slice_rows(self, start: int, stop: int) -> PendingRows:
        """Return some of the rows."""
        others = {o: streams.slice_rows(v, start, stop) for o, v in self.others.items()}
        plain = [column[start:stop] for column in self.plain]
        return PendingRows(self.reader, stop - start, plain, others)

    def column(self, origin: Origin) -> Any:
        """Return one feature as the batch will have it."""
        if origin in self.others:
            return self.others[origin]
        return self.reader.column(origin, self.plain)

    def by_name(self) -> dict[str, Any]:
        """Return the columns by the name of their feature."""
        batch = self.reader.raw_batch([self])
        return {input_name(origin): value for origin, value in batch.items()}


@dataclass(frozen=True)
class _Group:
    """Features of one dtype and shape, which are converted together."""

    kind: str  # one of `_PLAIN_KINDS`
    dtype: str
    tail: tuple[int | None, ...]
    start: int  # their place among the plain features
    stop: int
    origins: tuple[Origin, ...]
    has_defaults: bool  # whether a default replaces NaN


class FeatureReader:
    """Reads the features of JSON requests for one bundle.

    Args:
      specs: The inputs of its signatures.
      origins: The features of the model, which the inputs name.
      csv_name: The name of the CSV records that a request may carry in place of the
        features. None: it may not.
    """

    def __init__(
        self,
        specs: Sequence[TensorInfo],
        origins: Iterable[Origin],
        csv_name: str | None = None,
    ) -> None:
        self._csv_name = csv_name
        self.text_inputs = (*EXAMPLE_NAMES, *([csv_name] if csv_name else ()))
        by_name = {input_name(origin): origin for origin in origins}
        kinds = {spec.name: _plain_kind(spec) for spec in specs}
        # Sorted by dtype, so that the columns of a group are one slice.
        self.plain = sorted(
            (spec for spec in specs if kinds[spec.name] is not None),
            key=lambda spec: (spec.dtype, spec.shape),
        )
        self._others = [spec for spec in specs if kinds[spec.name] is None]
        self._origins = by_name
        self._groups: list[_Group] = []
        start = 0
        for (dtype, shape), found in itertools.groupby(
            self.plain, key=lambda spec: (spec.dtype, spec.shape)
        ):
            members = list(found)
            stop = start + len(members)
            kind = kinds[members[0].name]
            assert kind is not None
            self._groups.append(
                _Group(
                    kind,
                    dtype,
                    shape[1:],
                    start,
                    stop,
                    tuple(by_name[spec.name] for spec in members),
                    any(spec.default is not None for spec in members),
                )
            )
            start = stop
        self._names = [spec.name for spec in (*self.plain, *self._others)]
        # A lone feature may be sent without its name, which `columns_from_json` reads.
        self._values_of: Callable[[Any], tuple[Any, ...]] | None = (
            operator.itemgetter(*self._names) if len(self._names) > 1 else None
        )

    def with_name(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a request with the name of its CSV records.

        In TensorFlow they are the only input of a signature, which needs no name.
        """
        for form in ("instances", "inputs") if self._csv_name else ():
            given = body.get(form)
            if isinstance(given, list) and given and isinstance(given[0], str):
                rows: Any = {self._csv_name: given}
                if form == "instances":
                    rows = [{self._csv_name: record} for record in given]
                return {**body, form: rows}
        return body

    def from_pieces(self, pieces: Iterable[Sequence[Any]]) -> PendingRows | None:
        """Return the features of many rows, which come in pieces; see `from_rows`."""
        return self._concat_parts(
            self.from_rows(rows[i : i + _AT_ONCE])
            for rows in pieces
            for i in range(0, len(rows), _AT_ONCE)
        )

    def _concat_parts(self, found: Iterable[PendingRows | None]) -> PendingRows | None:
        """Return the rows of all parts in order; None if one is, or there are none."""
        parts = []
        for part in found:
            if part is None:
                return None
            parts.append(part)
        if len(parts) < 2:
            return parts[0] if parts else None
        rows = sum(part.rows for part in parts)
        return PendingRows(self, rows, _concat_plain(parts), _concat_others(parts))

    def from_rows(self, rows: Sequence[Any]) -> PendingRows | None:
        """Return the features of a list of objects; None if they are not all plain.

        None does not mean that they are wrong: `columns_from_json` reads every form,
        and explains what is wrong with a request.
        """
        if self._values_of is None:
            return None
        try:
            # As many keys as features, and no KeyError below: then the keys are the
            # names, without comparing the keys of every row.
            if set(map(len, rows)) != {len(self._names)}:
                return self._from_rows_without_keys(rows)
            columns = list(zip(*map(self._values_of, rows), strict=True))
        except (KeyError, TypeError, IndexError):
            return None
        return self._check_columns(columns)

    def _from_rows_without_keys(self, rows: Sequence[Any]) -> PendingRows | None:
        """Return the features of rows of which some lack a key; None as `from_rows`."""
        expected = frozenset(self._names)
        if not all(type(row) is dict and row.keys() <= expected for row in rows):
            return None
        columns = [[row.get(name) for row in rows] for name in self._names]
        return self._check_columns(columns)

    def from_columns(self, given: Mapping[str, Any]) -> PendingRows | None:
        """Return the features of an object of columns; None as in `from_rows`."""
        try:
            columns = [given[name] for name in self._names]
        except KeyError:
            return None
        if len(columns) < 2 or set(map(type, columns)) != {list}:
            return None
        lengths = set(map(len, columns))
        rows = lengths.pop()
        if not rows or lengths:
            return None
        return self._concat_parts(
            self._check_columns([column[i : i + _AT_ONCE] for column in columns])
            for i in range(0, rows, _AT_ONCE)
        )

    def column(self, origin: Origin, plain: Sequence[JsonColumn]) -> Any:
        """Convert the column of one feature with a value per row."""
        group = next(group for group in self._groups if origin in group.origins)
        place = group.start + group.origins.index(origin)
        alone = replace(group, start=place, stop=place + 1, origins=(origin,))
        return self._convert(alone, [plain[place]], len(plain[place]))[origin]

    def raw_batch(self, parts: Sequence[PendingRows]) -> dict[Origin, Any]:
        """Convert the rows of several requests to one raw batch."""
        rows = sum(part.rows for part in parts)
        columns = _concat_plain(parts)
        batch: dict[Origin, Any] = {}
        for group in self._groups:
            batch |= self._convert(group, columns[group.start : group.stop], rows)
        return batch | _concat_others(parts)

    def _check_columns(self, columns: list[Any]) -> PendingRows | None:
        """Return the columns if every value has a type that its feature accepts."""
        rows = len(columns[0])
        plain = columns[: len(self.plain)]
        # A set of the types of all values of a group: the loop over values is in C.
        for group in self._groups:
            mine = plain[group.start : group.stop]
            types = set(map(type, itertools.chain.from_iterable(mine)))
            if type(None) in types:
                mine = self._fill_nulls(group, mine)
                plain[group.start : group.stop] = mine
                types = set(map(type, itertools.chain.from_iterable(mine)))
            if not types <= _TYPES[group.kind]:
                return None
            # NumPy would wrap or raise only when the batch is converted, with the rows
            # of other requests.
            if group.kind == "i" and not _are_in_range(mine, group.dtype):
                return None
            if group.kind == "f" and int in types:
                try:
                    floats = [list(map(float, column)) for column in mine]
                except OverflowError:
                    return None
                plain[group.start : group.stop] = floats
        given = zip(self._others, columns[len(self.plain) :], strict=True)
        others = {
            self._origins[spec.name]: column_from(
                spec, column_from_json(spec, list(column))
            )
            for spec, column in given
        }
        return PendingRows(self, rows, plain, others)

    def _fill_nulls(
        self, group: _Group, columns: Sequence[JsonColumn]
    ) -> list[JsonColumn]:
        """Return the columns with defaults in place of null, where there are any."""
        specs = self.plain[group.start : group.stop]
        return [
            [default if value is None else value for value in column]
            if None in column
            and is_filled(spec)
            and (default := json_default(spec).item()) is not None
            else column
            for spec, column in zip(specs, columns, strict=True)
        ]

    def _convert(
        self, group: _Group, columns: Sequence[JsonColumn], rows: int
    ) -> dict[Origin, Any]:
        block = self._block(group.kind, group.dtype, columns)
        made = (
            [
                block.rows(first, first + rows)
                for first in range(0, len(columns) * rows, rows)
            ]
            if group.kind == "U"
            else list(block)
        )
        if group.tail:
            made = [column.reshape((rows, 1)) for column in made]
        # NaN is a missing value where the column has a default.
        if group.has_defaults and group.kind == "f" and np.isnan(block).any():
            specs = self.plain[group.start : group.stop]
            made = [column_from(*pair) for pair in zip(specs, made, strict=True)]
        return dict(zip(group.origins, made, strict=True))

    def _block(self, kind: str, dtype: str, columns: Sequence[JsonColumn]) -> Any:
        """Return columns of one dtype as one array, or as the `Strings` of all."""
        if kind == "U":
            words = list(itertools.chain.from_iterable(columns))
            block = Strings.of_text(words)
            # None: a word has a zero byte.
            return Strings.of(words) if block is None else block
        # float64 first: a number beyond float32 becomes infinite without warning.
        return cast(np.array(columns, np.float64 if kind == "f" else dtype), dtype)


def _concat_plain(parts: Sequence[PendingRows]) -> Sequence[JsonColumn]:
    if len(parts) == 1:
        return parts[0].plain
    every = zip(*(part.plain for part in parts), strict=True)
    return [list(itertools.chain.from_iterable(each)) for each in every]


def _concat_others(parts: Sequence[PendingRows]) -> dict[Origin, Any]:
    return {
        origin: streams.join([part.others[origin] for part in parts])
        for origin in parts[0].others
    }


def _plain_kind(spec: TensorInfo) -> str | None:
    """Return the kind of a feature with one plain value per row; None for others."""
    if spec.kind != "dense" or spec.tail not in ((), (1,)):
        return None
    kind = "U" if spec.dtype == STRING else np.dtype(spec.dtype).kind
    return kind if kind in _PLAIN_KINDS else None


def _are_in_range(columns: Sequence[JsonColumn], dtype: str) -> bool:
    limits = np.iinfo(np.dtype(dtype))
    lowest, highest = min(map(min, columns)), max(map(max, columns))
    return bool(limits.min <= lowest and highest <= limits.max)


def columns_from_json(
    body: Mapping[str, Any],
    specs: Sequence[TensorInfo],
    text_inputs: Sequence[str] = EXAMPLE_NAMES,
) -> tuple[dict[str, Any], bool]:
    """Return the features of a request, and whether they came as rows.

    Args:
      body: The body of the request.
      specs: The inputs of the signature.
      text_inputs: Names under which a request may carry text in place of all features:
        serialized Examples, or CSV records.

    Raises:
      ServingError: The body has both or neither of `instances` and `inputs`, or a value
        does not fit its feature.
    """
    if ("instances" in body) == ("inputs" in body):
        raise invalid(
            "expected either 'instances' (a list of rows) or 'inputs' (columns by "
            "name), found " + ("both." if "inputs" in body else "neither.")
        )
    if "instances" in body:
        return _from_rows(body["instances"], specs, text_inputs), True
    return _from_columns(body["inputs"], specs, text_inputs), False


def _from_rows(
    rows: Any, specs: Sequence[TensorInfo], text_inputs: Sequence[str]
) -> dict[str, Any]:
    if not isinstance(rows, list) or not rows:
        raise invalid("instances: expected a list with at least one row.")
    # The first row decides, and `{"b64": text}` is a value.
    is_named = isinstance(rows[0], dict) and not is_base64(rows[0])
    if not is_named:
        spec = _only_input(specs, "instances")
        if any(isinstance(row, dict) and not is_base64(row) for row in rows):
            raise invalid("instances: expected values, found an object among them.")
        return {spec.name: column_from_json(spec, rows)}
    if not all(type(row) is dict for row in rows):
        raise invalid("instances: expected objects, found another value among them.")
    # Extra names are errors in rows and ignored in columns; both as in TensorFlow
    # Serving.
    specs = _or_text(specs, rows[0], text_inputs)
    expected = {spec.name for spec in specs}
    for index, row in enumerate(rows):
        if not row.keys() <= expected:
            extra = ", ".join(sorted(map(repr, row.keys() - expected)))
            raise invalid(
                f"instances, row {index}: it has {extra}; expected only "
                f"{_names(specs)}."
            )
    columns = {spec.name: [row.get(spec.name) for row in rows] for spec in specs}
    _check_missing(specs, columns, rows)
    return {spec.name: column_from_json(spec, columns[spec.name]) for spec in specs}


def _from_columns(
    given: Any, specs: Sequence[TensorInfo], text_inputs: Sequence[str]
) -> dict[str, Any]:
    if not isinstance(given, dict) or is_base64(given):
        spec = _only_input(specs, "inputs")
        return {spec.name: column_from_json(spec, given)}
    specs = _or_text(specs, given, text_inputs)
    present = {spec.name: given[spec.name] for spec in specs if spec.name in given}
    rows = next((len(v) for v in present.values() if isinstance(v, list)), None)
    absent = [
        spec.name
        for spec in specs
        if spec.name not in given and (rows is None or not is_filled(spec))
    ]
    if absent:
        are = "is" if len(absent) == 1 else "are"
        raise invalid(
            f"inputs: {', '.join(map(repr, absent))} {are} missing; expected "
            f"{_names(specs)}, found {', '.join(given) or 'none'}."
        )
    columns = {s.name: present.get(s.name, [None] * (rows or 0)) for s in specs}
    _check_missing(specs, columns)
    return {spec.name: column_from_json(spec, columns[spec.name]) for spec in specs}


def _check_missing(
    specs: Sequence[TensorInfo],
    columns: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Raise one error that names all features that lack a value and are not filled."""
    found = []
    for spec in specs:
        column = columns[spec.name]
        if is_filled(spec) or not isinstance(column, list):
            continue
        for index, value in enumerate(column):
            if value is None or (isinstance(value, list) and None in value):
                is_absent = bool(rows) and spec.name not in rows[index]
                what = "absent" if is_absent else "null"
                found.append(f"{spec.name!r} is {what} in row {index}")
                break
    if found:
        raise invalid(
            f"expected a value in every row, found that {', '.join(found)}. The model "
            "fills missing values of other features, but not of these; `estimax show` "
            "lists both."
        )


def _or_text(
    specs: Sequence[TensorInfo], names: Mapping[str, Any], text_inputs: Sequence[str]
) -> Sequence[TensorInfo]:
    """Return the input for text in place of features if that is what a request has."""
    own = {spec.name for spec in specs}
    if len(names) == 1 and not own & names.keys():
        (name,) = names
        if name in text_inputs:
            return [TensorInfo(name, STRING, (None,))]
    return specs


def _only_input(specs: Sequence[TensorInfo], key: str) -> TensorInfo:
    if len(specs) != 1:
        raise invalid(
            f"{key}: the signature has {len(specs)} inputs, so each must be named; "
            f"expected {_names(specs)}."
        )
    return specs[0]


def _names(specs: Sequence[TensorInfo]) -> str:
    return ", ".join(spec.name for spec in specs)


def column_from_json(spec: TensorInfo, value: Any) -> Any:
    """Return a JSON value as the column of a feature."""
    if spec.kind == "sparse":
        return _read_lists(spec, value)
    if spec.tail and isinstance(value, list):
        value = with_blank_rows(spec, value)
    values, shape = _flatten(spec, value)
    if None in values and is_filled(spec):
        values = _fill_nulls(spec, values, shape)
    if spec.dtype == STRING:
        return Strings.of(_texts(spec, values)).reshape(shape)
    return _numbers(spec, values).reshape(shape)


def json_default(spec: TensorInfo) -> NDArray[Any]:
    """Return what stands for null in a feature that is filled, in the types of JSON."""
    if spec.dtype == STRING:
        return np.asarray("")
    default = np.asarray(spec.default)
    if np.dtype(spec.dtype).kind in "iu":  # a column may declare 2.0 for integers
        return default.astype(np.int64)
    return default


def _fill_nulls(
    spec: TensorInfo, values: list[Any], shape: tuple[int, ...]
) -> list[Any]:
    """Return the values with the default of the feature in place of null."""
    default = json_default(spec)
    if default.ndim and default.shape != shape[1:]:
        return values
    every = np.broadcast_to(default, shape).reshape(-1).tolist()
    return [d if v is None else v for v, d in zip(values, every, strict=True)]


def _read_lists(spec: TensorInfo, rows: Any) -> Any:
    """Return rows of any length; each may be a list or a single value."""
    if not isinstance(rows, list):
        raise _unfit(spec, "a single value")
    if any(isinstance(row, list) and _is_nested(row) for row in rows):
        # Lists within lists.
        return [[] if row is None else _check_nested(spec, row) for row in rows]
    lists = [
        row if isinstance(row, list) else [] if row is None else [row] for row in rows
    ]
    flat = [value for row in lists for value in row]
    if spec.dtype != STRING:
        _check_types(spec, flat)
        return lists
    texts = iter(_texts(spec, flat))
    return [[next(texts) for _ in row] for row in lists]


def _is_nested(row: list[Any]) -> bool:
    return any(isinstance(value, list) for value in row)


def _check_nested(spec: TensorInfo, value: Any) -> Any:
    if isinstance(value, list):
        return [_check_nested(spec, inner) for inner in value]
    if spec.dtype == STRING:
        return _texts(spec, [value])[0]
    _check_types(spec, [value])
    return value


def _flatten(spec: TensorInfo, value: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Return the values of nested lists in order, and their shape."""
    values, shape = [value], []
    # The shape is read down the first element, level by level, without recursion: a
    # body may nest a thousand lists.
    while isinstance(values[0] if values else None, list):
        lengths = {len(v) if isinstance(v, list) else -1 for v in values}
        if len(lengths) > 1:
            raise _unfit(spec, "lists of different lengths, or values beside lists")
        shape.append(lengths.pop())
        values = [inner for v in values for inner in v]
    if any(isinstance(v, list) for v in values):
        raise _unfit(spec, "lists beside values")
    return values, tuple(shape)


def _numbers(spec: TensorInfo, values: list[Any]) -> NDArray[Any]:
    _check_types(spec, values)
    dtype = np.dtype(spec.dtype)
    try:
        if dtype.kind in "iu":
            return _integers(spec, values, dtype)
        with np.errstate(over="ignore"):  # beyond float32 is infinite, as in TensorFlow
            return np.array(values, np.float64 if dtype.kind in "fV" else dtype)
    except OverflowError:
        raise _unfit(spec, "a number that is out of range") from None


def _integers(
    spec: TensorInfo, values: list[Any], dtype: np.dtype[Any]
) -> NDArray[Any]:
    limits = np.iinfo(dtype)
    # 64 bits first: NumPy would wrap 300 to 44 in a uint8.
    wide = np.array(values, np.uint64 if dtype == np.uint64 else np.int64)
    if wide.size and (wide.min() < limits.min or wide.max() > limits.max):
        raise _unfit(spec, "a number that is out of range")
    return wide.astype(dtype)


def _check_types(spec: TensorInfo, values: list[Any]) -> None:
    kind = np.dtype(spec.dtype).kind
    found = set(map(type, values)) - _TYPES[kind]
    # Clients send 1.0 for 1 by accident, from a column of floats: say what to send.
    if found == {float} and kind in "iu":
        number = next(v for v in values if type(v) is float)
        advice = (
            f"a number with a decimal point; send {int(number)}"
            if number.is_integer()
            else "a number with a fraction"
        )
        raise _unfit(spec, f"{number!r}, {advice}")
    if found:
        raise _unfit(spec, " and ".join(sorted(_JSON_NAMES[t] for t in found)))


def _texts(spec: TensorInfo, values: list[Any]) -> list[Any]:
    found = set(map(type, values))
    if found <= {str}:
        return values
    if not found <= {str, dict}:
        raise _unfit(spec, " and ".join(sorted(_JSON_NAMES[t] for t in found - {str})))
    return [
        value if isinstance(value, str) else _decode_text(spec, value)
        for value in values
    ]


def _decode_text(spec: TensorInfo, value: Any) -> bytes:
    if not is_base64(value):
        raise _unfit(spec, "an object that is not {'b64': text}")
    return decode_base64(value["b64"], f"feature {spec.name!r}")


def _unfit(spec: TensorInfo, found: str) -> Exception:
    form = "lists of " if spec.kind == "sparse" else ""
    sizes = ", ".join("B" if n is None else str(n) for n in spec.shape)
    return invalid(
        f"feature {spec.name!r}: expected {form}{spec.dtype} of shape [{sizes}], found "
        f"{found}."
    )


def check_request(
    bundle: Bundle, signature: Signature, columns: Mapping[str, Any]
) -> plans.RawBatch:
    """Return the features in raw form, from columns or from serialized Examples.

    Raises:
      ServingError: INVALID_ARGUMENT if a feature is missing, unknown or does not fit.
    """
    own = {spec.name for spec in signature.inputs}
    if len(columns) == 1 and not own & columns.keys():
        (name,) = columns
        # CSV first: a bundle may call its records "examples".
        is_csv = bundle.csv is not None and name == bundle.csv.name
        if not is_csv and name in EXAMPLE_NAMES:
            serialized = _list_examples(columns[name], name)
            columns = columns_from_examples(bundle, serialized)
    try:
        return bundle.check(columns)
    except BundleError as error:
        raise invalid(str(error)) from None


def _list_examples(column: Any, name: str) -> list[bytes]:
    if not hasattr(column, "tolist") or getattr(column, "ndim", 1) != 1:
        raise invalid(f"{name!r}: expected a list of serialized Examples.")
    values: list[Any] = column.tolist()
    if not all(isinstance(value, bytes) for value in values):
        raise invalid(f"{name!r}: expected serialized Examples, found numbers.")
    return values


def check_classify(signature: Signature) -> None:
    """Raise unless the outputs of a signature are classes, scores, or both."""
    names = {spec.name for spec in signature.outputs}
    if not names or not names <= {CLASSES, SCORES}:
        raise invalid(
            f"signature {signature.name!r} does not classify: expected the outputs "
            f"'classes' and 'scores', found {', '.join(sorted(names))}."
        )


def check_regress(signature: Signature) -> None:
    """Raise unless a signature has the one output of a regression."""
    names = {spec.name for spec in signature.outputs}
    if names != {REGRESSION}:
        raise invalid(
            f"signature {signature.name!r} does not regress: expected the output "
            f"'outputs', found {', '.join(sorted(names))}."
        )


class IdCheck:
    """Finds ids out of range in a request, before others share its batch.

    A transform would find them as well, but in the whole batch, whose other requests
    would then have to run again, each alone.

    Args:
      plan: The host transforms of the model.
    """

    def __init__(self, plan: plans.HostPlan) -> None:
        self._calls = [
            call
            for call in plan.calls
            if getattr(call.transform, "out_of_range", "drop") != "drop"
        ]

    def __call__(self, features: plans.RawBatch | PendingRows) -> None:
        """Raise `FeatureError` if an id has no row in its table."""
        # Only transforms that refuse ids are here, so most models pay nothing.
        for call in self._calls:
            columns = (
                [features.column(origin) for origin in call.inputs]
                if isinstance(features, PendingRows)
                else [features[origin] for origin in call.inputs]
            )
            call.transform(dict(zip(call.transform.keys, columns, strict=True)))
