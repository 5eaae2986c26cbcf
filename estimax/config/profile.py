"""The contents of a table, column by column: types, missing values, words, ranges.

    table = profile("flights.csv")
    table.rows                              # 336776
    table.column("carrier").distinct        # 16

`infer` chooses features and a model from it. The whole file is read once, with every
value as text, so that one bad value does not stop it. All rows are counted; at most
`MOST_ROWS` rows, evenly chosen from the whole file, are looked at.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import itertools
import math
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from estimax.config.profile_text import (
    DateProfile,
    describe_dates,
    parse_dates,
    parse_text_numbers,
)
from estimax.core.errors import InputError, MissingFileError

if TYPE_CHECKING:  # loads pyarrow
    from estimax.input.sources.csv_blocks import CsvFormat
    from estimax.input.sources.file_blocks import ByteFile

ProfileKind = Literal["int", "float", "text"]
MOST_ROWS = 500_000
_QUANTILES = 10
_SAMPLE_ROWS = 10_000  # kept of a table, for questions about several columns
_MOST_WORDS = 50  # kept of a column, most frequent first
# Texts that other programs write for a missing value.
NULL_WORDS = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "?")
_DATE_NAME = re.compile(r"date|day|time|month", re.I)
_PARQUET = (".parquet", ".pq")
# What pyarrow decompresses by the suffix, and training does not.
_OTHER_COMPRESSION = (".bz2", ".lz4", ".zst", ".br")


@dataclass(frozen=True)
class ColumnProfile:
    """What a column holds. Numbers are of the values that are not missing."""

    name: str
    kind: ProfileKind
    rows: int
    missing: int
    distinct: int
    words: tuple[tuple[str, int], ...]  # the most frequent, with their counts
    null_words: tuple[str, ...] = ()  # texts that mean a missing value
    low: float = 0.0
    high: float = 0.0
    skew: float = 0.0  # the third standardized moment
    quantiles: tuple[float, ...] = ()  # increasing, at most nine
    is_rising: bool = False  # every value is above the one before
    unevenness: float = 0.0  # std / mean of how often the values occur
    text_style: Literal["point", "comma"] | None = None  # of numbers that are text
    dates: DateProfile | None = None  # the values are dates
    infinite: int = 0  # infinite numbers, which count as missing
    is_stored_as_text: bool = True  # False for Parquet columns of other types

    @property
    def is_date(self) -> bool:
        """Whether the values are dates."""
        return self.dates is not None

    @property
    def present(self) -> int:
        """The number of rows with a value."""
        return self.rows - self.missing


@dataclass(frozen=True)
class TableProfile:
    """The columns of a table, and how its file is read."""

    path: str
    format: Literal["csv", "parquet"]
    rows: int  # of the whole file
    is_complete: bool  # whether all rows were looked at, and not a sample of them
    columns: tuple[ColumnProfile, ...]
    delimiter: str = ","
    # Up to 10,000 rows as a pyarrow table of text, evenly chosen; pyarrow has no types.
    sample: Any = field(default=None, compare=False, repr=False)

    def column(self, name: str) -> ColumnProfile:
        """Return a column by its name."""
        return next(column for column in self.columns if column.name == name)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @property
    def null_words(self) -> tuple[str, ...]:
        """The texts that mean a missing value in some column, sorted."""
        return tuple(sorted({w for c in self.columns for w in c.null_words}))


def format_of(path: str) -> Literal["csv", "parquet"]:
    """Return the format of a file by its suffix; anything but Parquet is CSV."""
    return "parquet" if path.lower().endswith(_PARQUET) else "csv"


def profile(
    path: str,
    *,
    delimiter: str | None = None,
    names: Sequence[str] | None = None,
    has_header: bool = True,
    most_rows: int = MOST_ROWS,
) -> TableProfile:
    """Read a CSV or Parquet file and describe its columns.

    Args:
      path: The file; `.parquet` and `.pq` are Parquet, all else CSV.
      delimiter: The character between values; found by itself if None.
      names: The names of the columns; by default those of the header.
      has_header: Whether the first line has names.
      most_rows: The most rows to look at; they are evenly chosen from the file.

    Raises:
      MissingFileError: There is no such file.
      InputError: The file is not a table, or has no rows.
    """
    rows = _RowSample(most_rows)
    table, delimiter = _read(path, rows, delimiter, names, has_header)
    if not rows.count:
        raise InputError(f"{path}: the file has no rows.")
    found = _describe(path, table, rows)
    if found.format == "csv" and has_header and names is None:
        _check_header(path, found.columns)
    return dataclasses.replace(found, delimiter=delimiter)


def profile_table(table: Any, name: str, *, most_rows: int = MOST_ROWS) -> TableProfile:
    """Describe the columns of a pyarrow table, as if it was read from a Parquet file.

    Args:
      table: The table; it has rows.
      name: What messages call it, in place of the path of a file.
      most_rows: The most rows to look at; they are evenly chosen.
    """
    rows = _RowSample(most_rows)
    rows.add(table)
    texts = _texts_of(rows.table(table.schema.empty_table()), rows)
    return dataclasses.replace(_describe(name, texts, rows), format="parquet")


def _describe(path: str, table: Any, rows: _RowSample) -> TableProfile:
    """Return the profile of a table whose values are text."""
    columns = tuple(
        dataclasses.replace(
            _column(name, table.column(i).combine_chunks()),
            is_stored_as_text=name not in rows.other_types,
        )
        for i, name in enumerate(table.column_names)
    )
    return TableProfile(
        path,
        format_of(path),
        rows.count,
        table.num_rows == rows.count,
        columns,
        sample=_evenly_chosen(table, _SAMPLE_ROWS),
    )


def _check_header(path: str, columns: Sequence[ColumnProfile]) -> None:
    """Raise if the first line has the values of a row, and not names."""
    numeric = [column for column in columns if column.kind != "text"]
    alike = [column for column in numeric if _looks_like_a_value(column)]
    # A text that is the name of its column and a value of it is no name either.
    texts = [c.name for c in columns if c.name in dict(c.words) and c not in numeric]
    is_data = len(alike) > 1 or bool(alike and texts)
    if is_data and len(alike) == len(numeric) and not _are_counted(alike):
        shown = ", ".join(column.name for column in columns[:5])
        raise InputError(
            f"{path}, line 1: the first line looks like data; expected the names of "
            f"the columns, found {shown}{', …' if len(columns) > 5 else ''}. Write a "
            "line with the names at the beginning of the file. (In a run file, "
            "`csv: {header: false, columns: [...]}` gives the names.)"
        )


def _are_counted(columns: Sequence[ColumnProfile]) -> bool:
    """Return whether the names are numbers at equal distances, such as years."""
    numbers = [float(column.name.strip() or "nan") for column in columns]
    gaps = {round(b - a, 9) for a, b in itertools.pairwise(numbers)}
    return len(numbers) > 2 and len(gaps) == 1


def _looks_like_a_value(column: ColumnProfile) -> bool:
    """Return whether a name is a number within the range of its column."""
    try:
        number = float(column.name.strip() or "nan")
    except ValueError:
        return False
    is_missing = math.isnan(number)
    return is_missing or column.low <= number <= column.high


def _evenly_chosen(table: Any, most: int) -> Any:
    import numpy as np

    rows = table.num_rows
    if rows <= most:
        return table
    return table.take(np.linspace(0, rows - 1, most).astype(np.int64))


class _RowSample:
    """At most `most` rows of a table that is read in parts, evenly chosen; None: all.

    Whenever there are too many rows, every second one is removed, and half as many of
    the later rows are kept. Parts stay small: a text column is limited to 2 GB.
    """

    def __init__(self, most: int | None) -> None:
        self.count = 0  # of all rows that were read
        self.other_types: set[str] = set()  # columns that are stored as no text
        self._most = most
        self._stride = 1
        self._parts: list[Any] = []

    def add(self, part: Any) -> None:
        """Add the next rows, a pyarrow table."""
        first = -self.count % self._stride
        self.count += part.num_rows
        self._parts.append(_every(part, first, self._stride))
        while self._most is not None and self._kept > self._most:
            first, halves = 0, []
            for some in self._parts:
                halves.append(_every(some, first, 2))
                first = (first + some.num_rows) % 2
            self._parts, self._stride = halves, 2 * self._stride

    def table(self, empty: Any) -> Any:
        """Return the kept rows as one table, with the columns of `empty`."""
        import pyarrow as pa

        return pa.concat_tables([empty, *self._parts])

    @property
    def _kept(self) -> int:
        return sum(part.num_rows for part in self._parts)


def _every(part: Any, first: int, stride: int) -> Any:
    """Return the rows first, first + stride, … of a pyarrow table."""
    import numpy as np

    if stride == 1:
        return part
    return part.take(np.arange(first, part.num_rows, stride))


def read_texts(path: str) -> tuple[Any, str]:  # pyarrow has no types
    """Return a table with all values as text, and its delimiter.

    Raises:
      MissingFileError: There is no such file.
      InputError: The file is not a table.
    """
    return _read(path, _RowSample(None), None, None, has_header=True)


def _read(
    path: str,
    rows: _RowSample,
    delimiter: str | None,
    names: Sequence[str] | None,
    has_header: bool,
) -> tuple[Any, str]:
    """Add all rows of a file to a sample; return its table and the delimiter."""
    if not Path(path).is_file():
        raise MissingFileError(f"{path}: there is no such file (CSV or Parquet).")
    if format_of(path) == "parquet":
        return _read_parquet(path, rows), ","
    delimiter = delimiter or _delimiter(path)
    return _read_csv(path, delimiter, names, has_header, rows), delimiter


def _delimiter(path: str) -> str:
    """Return the character that separates the values of the first line."""
    import pyarrow as pa

    try:
        with io.TextIOWrapper(
            io.BufferedReader(pa.input_stream(path)), "utf-8-sig"
        ) as file:
            line = file.readline(1_000_000)
    except (UnicodeDecodeError, OSError) as error:
        if path.lower().endswith((".zip", ".7z", ".rar", ".tar", ".xlsx", ".xls")):
            kind = Path(path).suffix
            raise InputError(
                f"{path}: a {kind} file is no table; expected CSV or Parquet. Unpack "
                "it, or save the sheet as CSV."
            ) from None
        raise InputError(
            f"{path}: expected a CSV file in UTF-8 or a Parquet file ({error})."
        ) from None
    counts = {
        mark: len(next(csv.reader([line], delimiter=mark), ())) for mark in _MARKS
    }
    return max(_MARKS, key=lambda mark: counts[mark])


_MARKS = (",", ";", "\t", "|")


def _read_csv(
    path: str,
    delimiter: str,
    names: Sequence[str] | None,
    has_header: bool,
    rows: _RowSample,
) -> Any:
    import pyarrow as pa

    from estimax.input.sources.csv_blocks import CsvFormat
    from estimax.input.sources.csv_schema import read_header
    from estimax.input.sources.csv_text import BadTextError, read_text_rows

    packed = "GZIP" if path.endswith(".gz") else None
    form = CsvFormat(delimiter, header=has_header, compression=packed)
    with _byte_file(path, form) as file:
        found = list(names or read_header(file, form) or ())
        twice = next((name for name in found if found.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"{path}, line 1: two columns are named {twice!r}.")
        try:
            for some in read_text_rows(file, form, found, keep_nulls=True):
                rows.add(some.table)
        except BadTextError as error:
            count = len(error.values or ())
            what = f"expected {len(found)} values, found {count}"
            raise InputError(
                f"{path}, line {error.line}: the file cannot be read as CSV: "
                f"{'the text is not UTF-8' if error.values is None else what}."
            ) from None
    return rows.table(pa.table({name: pa.array([], pa.string()) for name in found}))


@contextlib.contextmanager
def _byte_file(path: str, form: CsvFormat) -> Iterator[ByteFile]:
    """Open a file; decompress one that training could not read to a copy of it."""
    import pyarrow as pa

    from estimax.input.sources.file_blocks import ByteFile

    with contextlib.ExitStack() as stack:
        if Path(path).suffix in _OTHER_COMPRESSION:
            copy = stack.enter_context(tempfile.NamedTemporaryFile(prefix="estimax-"))
            with pa.input_stream(path) as packed:
                shutil.copyfileobj(packed, copy)
            copy.flush()
            file = ByteFile(copy.name)
            file.path = path  # for messages
        else:
            file = ByteFile(path, form.compression)
        stack.callback(file.close)
        yield file


def _read_parquet(path: str, rows: _RowSample) -> Any:
    import pyarrow as pa

    from estimax.input.sources.parquet import open_parquet, read_record_batches

    with open_parquet(path) as file:
        for batch in read_record_batches(file, path, None):
            rows.add(pa.Table.from_batches([batch]))
        return _texts_of(rows.table(file.schema_arrow.empty_table()), rows)


def _texts_of(table: Any, rows: _RowSample) -> Any:
    """Return a pyarrow table as text; `rows` is told which columns are no text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = {}
    for name in table.column_names:
        kind = table.schema.field(name).type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            rows.other_types.add(name)
        try:
            texts[name] = pc.cast(table[name], pa.string()).fill_null("")
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            continue  # lists and structures, which no feature of a run file reads
    return pa.table(texts)


def _column(name: str, texts: Any) -> ColumnProfile:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    # Everything is computed of the distinct values, which are few in most columns.
    coded = texts.dictionary_encode()
    words = pc.utf8_trim_whitespace(coded.dictionary)
    codes = np.asarray(coded.indices)
    counts = np.bincount(codes, minlength=len(words))
    is_null = np.asarray(pc.is_in(words, pa.array(NULL_WORDS)), bool)
    shown = coded.dictionary.to_pylist()
    kept = [i for i in np.argsort(-counts, kind="stable") if not is_null[i]]
    pairs = sorted(((shown[i], int(counts[i])) for i in kept), key=_most_frequent)
    missing = int(counts[is_null].sum())
    common: dict[str, Any] = {
        "name": name,
        "rows": len(texts),
        "missing": missing,
        "distinct": len(pairs),
        "words": tuple(pairs[:_MOST_WORDS]),
        "null_words": tuple(
            sorted(shown[i] for i in np.flatnonzero(is_null) if shown[i])
        ),
    }
    of_value = counts[~is_null]
    common["unevenness"] = float(of_value.std() / of_value.mean()) if pairs else 0.0
    known = words.filter(pa.array(~is_null))
    numbers = _numbers(known) if pairs else None
    style = None
    if pairs and numbers is None:
        read = parse_dates(known.to_pylist())
        if read is not None:
            of_row = codes[~is_null[codes]]
            place = np.cumsum(~is_null) - 1
            dates = describe_dates(*read, place[of_row])
            return ColumnProfile(kind="text", dates=dates, **common)
        style, parsed = parse_text_numbers(known.to_pylist())
        if style is None:
            return ColumnProfile(kind="text", **common)
        numbers = ("float", parsed)
    if numbers is None:
        return ColumnProfile(kind="text", **common)
    kind, distinct = numbers
    if _DATE_NAME.search(name) and kind == "int":
        read = parse_dates(known.to_pylist(), compact=True)
        if read is not None:
            place = np.cumsum(~is_null) - 1
            dates = describe_dates(*read, place[codes[~is_null[codes]]])
            return ColumnProfile(kind="text", dates=dates, **common)
    of_code = np.full(len(words), np.nan)
    of_code[~is_null] = distinct
    values = of_code[codes][~is_null[codes]]
    finite = values[np.isfinite(values)]
    if not finite.size:
        return ColumnProfile(kind="text", **common)
    infinite = len(values) - len(finite)
    if infinite:
        common["missing"] += infinite
        own = {shown[i] for i in np.flatnonzero(np.isinf(of_code))}
        common["null_words"] = tuple(sorted({*common["null_words"], *own}))
        kept_words = tuple(pair for pair in pairs if pair[0] not in own)
        common["distinct"] = len(kept_words)
        common["words"] = kept_words[:_MOST_WORDS]
    std = float(finite.std())
    skew = float(((finite - finite.mean()) ** 3).mean()) / std**3 if std else 0.0
    return ColumnProfile(
        kind=kind,
        text_style=style,
        infinite=infinite,
        low=float(finite.min()),
        high=float(finite.max()),
        skew=skew,
        quantiles=_edges(finite),
        is_rising=bool(len(values) > 1 and (np.diff(values) > 0).all()),
        **common,
    )


def _most_frequent(pair: tuple[str, int]) -> tuple[int, str]:
    return -pair[1], pair[0]


def _edges(values: Any) -> tuple[float, ...]:
    """Return boundaries between equal parts of the values, each above the lowest.

    If one value fills most parts, the parts are those of the other values.
    """
    import numpy as np

    parts = np.arange(1, _QUANTILES) / _QUANTILES
    low = values.min()
    edges = {float(f"{edge:.6g}") for edge in np.quantile(values, parts)}
    edges = {edge for edge in edges if edge > low}
    if len(edges) < _FEW_EDGES and (others := values[values > low]).size:
        more = {float(f"{edge:.6g}") for edge in np.quantile(others, parts)}
        edges |= {edge for edge in more if edge > low}
    return tuple(sorted(edges))


_FEW_EDGES = 3


def _numbers(texts: Any) -> tuple[Literal["int", "float"], Any] | None:
    """Return the kind and the values of a column of numbers; None for other text."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds: tuple[tuple[Literal["int", "float"], Any], ...] = (
        ("int", pa.int64()),
        ("float", pa.float64()),
    )
    for kind, wanted in kinds:
        try:
            found = pc.cast(texts, wanted)
        except pa.ArrowInvalid:
            continue
        return kind, np.asarray(pc.cast(found, pa.float64(), safe=False))
    return None
