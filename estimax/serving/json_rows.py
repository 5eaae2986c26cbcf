"""Features of a JSON request, checked when it arrives and converted with its batch.

    reader = FeatureReader(signature.inputs, origins_of(bundle.plan))
    one, other = reader.from_rows(rows), reader.from_columns(columns)
    reader.raw_batch([one, other])      # converts the values of both requests at once

A conversion to NumPy costs a few microseconds for each feature, however few rows there
are. So most features, those with one value per row, stay Python values until the batch
is complete, and features of one dtype are converted together: 26 columns of text are
one `Strings`. Values are checked before, so that no request can spoil the batch.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from estimax.core.device_dtypes import cast
from estimax.core.strings import Strings
from estimax.export import TensorInfo
from estimax.export.requests import column_from, is_filled
from estimax.export.signature import STRING, input_name
from estimax.input.streams import columns as streams
from estimax.serving.examples import EXAMPLE_NAMES
from estimax.serving.json_pieces import JsonPieces
from estimax.serving.json_values import (
    column_from_json,
    columns_from_json,
    json_default,
)
from estimax.staging.trace import Origin

Column = Sequence[Any]  # one JSON value for each row
_AT_ONCE: Final = 1024  # rows that are checked without a pause for other threads
# The kind of a NumPy dtype -> the types that a plain JSON value of it may have.
_PLAIN: Final[dict[str, frozenset[type]]] = {
    "f": frozenset({int, float}),
    "i": frozenset({int}),
    "b": frozenset({bool}),
    "U": frozenset({str}),  # text
}


@dataclass(frozen=True, eq=False)
class JsonRows:
    """The features of one request.

    Args:
      reader: The reader that checked them.
      rows: The number of rows.
      plain: The columns of features with one value per row, in the reader's order.
      others: The other features, converted.
    """

    reader: FeatureReader
    rows: int
    plain: Sequence[Column]
    others: Mapping[Origin, Any] = field(default_factory=dict)

    def slice_rows(self, start: int, stop: int) -> JsonRows:
        """Return some of the rows."""
        others = {o: streams.slice_rows(v, start, stop) for o, v in self.others.items()}
        plain = [column[start:stop] for column in self.plain]
        return JsonRows(self.reader, stop - start, plain, others)

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

    kind: str  # of `_PLAIN`
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
        kinds = {spec.name: _kind(spec) for spec in specs}
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
        # A lone feature may be sent without its name, which `json_values` reads.
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

    def from_pieces(self, pieces: Iterable[Sequence[Any]]) -> JsonRows | None:
        """Return the features of many rows, which come in pieces; see `from_rows`."""
        return self._joined(
            self.from_rows(rows[i : i + _AT_ONCE])
            for rows in pieces
            for i in range(0, len(rows), _AT_ONCE)
        )

    def _joined(self, found: Iterable[JsonRows | None]) -> JsonRows | None:
        """Return the rows of all parts in order; None if one is, or there are none."""
        parts = []
        for part in found:
            if part is None:
                return None
            parts.append(part)
        if len(parts) < 2:
            return parts[0] if parts else None
        every = zip(*(part.plain for part in parts), strict=True)
        plain = [list(itertools.chain.from_iterable(each)) for each in every]
        others = {
            origin: streams.join([part.others[origin] for part in parts])
            for origin in parts[0].others
        }
        return JsonRows(self, sum(part.rows for part in parts), plain, others)

    def from_rows(self, rows: Sequence[Any]) -> JsonRows | None:
        """Return the features of a list of objects; None if they are not all plain.

        None does not mean that they are wrong: `json_values` reads every form, and
        explains what is wrong with a request.
        """
        if self._values_of is None:
            return None
        try:
            if set(map(len, rows)) != {len(self._names)}:
                return self._from_rows_without_keys(rows)
            columns = list(zip(*map(self._values_of, rows), strict=True))
        except (KeyError, TypeError, IndexError):
            return None
        return self._checked(columns)

    def _from_rows_without_keys(self, rows: Sequence[Any]) -> JsonRows | None:
        """Return the features of rows of which some lack a key; None as `from_rows`."""
        expected = frozenset(self._names)
        if not all(type(row) is dict and row.keys() <= expected for row in rows):
            return None
        columns = [[row.get(name) for row in rows] for name in self._names]
        return self._checked(columns)

    def from_columns(self, given: Mapping[str, Any]) -> JsonRows | None:
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
        return self._joined(
            self._checked([column[i : i + _AT_ONCE] for column in columns])
            for i in range(0, rows, _AT_ONCE)
        )

    def column(self, origin: Origin, plain: Sequence[Column]) -> Any:
        """Convert the column of one feature with a value per row."""
        group = next(group for group in self._groups if origin in group.origins)
        place = group.start + group.origins.index(origin)
        alone = replace(group, start=place, stop=place + 1, origins=(origin,))
        return self._converted(alone, [plain[place]], len(plain[place]))[origin]

    def raw_batch(self, parts: Sequence[JsonRows]) -> dict[Origin, Any]:
        """Convert the rows of several requests to one raw batch."""
        rows = sum(part.rows for part in parts)
        columns = parts[0].plain
        if len(parts) > 1:
            every = zip(*(part.plain for part in parts), strict=True)
            columns = [list(itertools.chain.from_iterable(each)) for each in every]
        batch: dict[Origin, Any] = {}
        for group in self._groups:
            batch |= self._converted(group, columns[group.start : group.stop], rows)
        for origin in parts[0].others:
            batch[origin] = streams.join([part.others[origin] for part in parts])
        return batch

    def _checked(self, columns: list[Any]) -> JsonRows | None:
        rows = len(columns[0])
        plain = columns[: len(self.plain)]
        for group in self._groups:
            mine = plain[group.start : group.stop]
            types = set(map(type, itertools.chain.from_iterable(mine)))
            if type(None) in types:
                mine = self._filled(group, mine)
                plain[group.start : group.stop] = mine
                types = set(map(type, itertools.chain.from_iterable(mine)))
            if not types <= _PLAIN[group.kind]:
                return None
            if group.kind == "i" and not _in_range(mine, group.dtype):
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
        return JsonRows(self, rows, plain, others)

    def _filled(self, group: _Group, columns: Sequence[Column]) -> list[Column]:
        """Return the columns with defaults in place of null, where there are any."""
        specs = self.plain[group.start : group.stop]
        return [
            [default if value is None else value for value in column]
            if None in column and (default := _default(spec)) is not None
            else column
            for spec, column in zip(specs, columns, strict=True)
        ]

    def _converted(
        self, group: _Group, columns: Sequence[Column], rows: int
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
        if group.has_defaults and group.kind == "f" and np.isnan(block).any():
            specs = self.plain[group.start : group.stop]
            made = [column_from(*pair) for pair in zip(specs, made, strict=True)]
        return dict(zip(group.origins, made, strict=True))

    def _block(self, kind: str, dtype: str, columns: Sequence[Column]) -> Any:
        """Return columns of one dtype as one array, or as the `Strings` of all."""
        if kind == "U":
            words = list(itertools.chain.from_iterable(columns))
            block = Strings.of_text(words)
            # None: a word has a zero byte.
            return Strings.of(words) if block is None else block
        # float64 first: a number beyond float32 becomes infinite without warning.
        return cast(np.array(columns, np.float64 if kind == "f" else dtype), dtype)


def features_from_json(
    body: Mapping[str, Any], specs: Sequence[TensorInfo], reader: FeatureReader
) -> tuple[JsonRows | dict[str, Any], bool]:
    """Return the features of a request, and whether they came as rows.

    Raises:
      ServingError: The body has both or neither of `instances` and `inputs`, or a value
        does not fit its feature.
    """
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


def _kind(spec: TensorInfo) -> str | None:
    """Return the kind of a feature with one plain value per row; None for others."""
    if spec.kind != "dense" or spec.tail not in ((), (1,)):
        return None
    kind = "U" if spec.dtype == STRING else np.dtype(spec.dtype).kind
    return kind if kind in _PLAIN else None


def _default(spec: TensorInfo) -> Any:
    """Return what stands for null in a feature with one value per row, or None."""
    if not is_filled(spec):
        return None
    return json_default(spec).item()


def _in_range(columns: Sequence[Column], dtype: str) -> bool:
    limits = np.iinfo(np.dtype(dtype))
    lowest, highest = min(map(min, columns)), max(map(max, columns))
    return bool(limits.min <= lowest and highest <= limits.max)
