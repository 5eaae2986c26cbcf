"""Input functions for the sources of a run, as expressions.

    evaluate(input_fn(run, "train", statistics))()     # a Dataset of (features, label)

The verbs are always in the same order: the reader of the format, bad rows, the part of
a split, lists and vectors, shard, cache, label, shuffle, repeat, batch.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from estimax.config.columns import (
    DataColumn,
    columns_of,
    columns_read,
    data_columns,
    kind_of,
    label_columns,
    may_be_missing,
    weight_columns,
)
from estimax.config.expressions import (
    CallExpression,
    Function,
    changed_values,
    evaluate,
)
from estimax.config.schema.data import (
    AnySource,
    CsvSource,
    JsonSource,
    ParquetSource,
    RecordSource,
)
from estimax.config.schema.features import COMPUTED, NumericConfig
from estimax.config.schema.run import Run
from estimax.config.tables import check_header, find_files

Cuts = Mapping[str, tuple[Any, Any]]  # the limits of parts by time, by source
_DTYPES = {"float": "float32", "int": "int64", "text": "string"}
_SCANNED_AT_ONCE = 65536


def input_fn(
    run: Run, name: str, cuts: Cuts, only: Mapping[str, Any] | None = None
) -> Function:
    """Return an input function: examples with labels, shuffled, repeated, batched.

    `only` keeps the rows with these values, for a slice of an evaluation.
    """
    source = run.data.sources[name]
    data = _rows(run, source, name, data_columns(run), _defaults(run), cuts)
    if only:
        data = CallExpression("estimax.input.rows_where", {}, (data, dict(only)))
    if run.data.labels:
        data = _verb(data, "with_label", dict(run.data.labels))
    elif run.data.label is not None:
        data = _verb(data, "with_label", run.data.label)
    if source.shuffle is not None:
        seed = source.shuffle.seed
        options: dict[str, Any] = {"seed": run.seed if seed is None else seed}
        if not source.shuffle.reshuffle:
            options["reshuffle_each_iteration"] = False
        data = _verb(data, "shuffle", source.shuffle.buffer_rows, **options)
    if source.epochs is None:
        data = _verb(data, "repeat")
    elif source.epochs != 1:
        data = _verb(data, "repeat", source.epochs)
    more = {"drop_remainder": True} if source.drop_remainder else {}
    title = "_".join([name, *(slice_name(c, v) for c, v in (only or {}).items())])
    return Function(f"{title}_input", _verb(data, "batch", source.batch_size, **more))


def slice_name(column: str, value: object) -> str:
    """Return the name of a slice, which is part of the name of a folder.

    >>> slice_name("city", "New York/NY")
    'city_New_York_NY'
    """
    return re.sub(r"[^\w.-]+", "_", f"{column}_{value}")


def make_predict_input_fn(run: Run, files: str) -> Callable[[], Any]:
    """Return an input function for prediction: every row of `files`, in order.

    Labels are not read. The format is that of the eval source, or of the train source
    if the run has no eval section.
    """
    name = run.eval.source if run.eval is not None else run.train.source
    source = dataclasses.replace(
        run.data.sources[name], files=(files,), part=None, shard=None
    )
    unread = {*label_columns(run), *weight_columns(run)} - _read_by_features(run)
    columns = {c: k for c, k in data_columns(run).items() if c not in unread}

    def make() -> Any:
        rows = _rows(run, source, "--input", columns, _defaults(run), {})
        return evaluate(_verb(rows, "batch", source.batch_size))

    return make


def scan(
    run: Run,
    name: str,
    columns: Mapping[str, DataColumn],
    cuts: Cuts | None,
    *,
    with_missing_ids: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield columns of a source in batches of rows, for statistics.

    Missing numbers are NaN, and missing ids -1 if they are allowed. `cuts` are the
    limits of a part by time; None reads all rows of the source, whatever part of them
    it is.
    """
    source = run.data.sources[name]
    if cuts is None:
        source = dataclasses.replace(source, part=None)
    defaults = {c: float("nan") for c, k in columns.items() if k.kind == "float"}
    if with_missing_ids:
        defaults = {**_defaults(run), **defaults}
    wide = isinstance(source, CsvSource | JsonSource)
    data = _rows(run, source, name, columns, defaults, cuts or {}, wide=wide)
    yield from evaluate(_verb(data, "batch", _SCANNED_AT_ONCE))


def _verb(data: Any, name: str, *positional: Any, **named: Any) -> CallExpression:
    return CallExpression(name, named, positional, of=data)


def _rows(
    run: Run,
    source: AnySource,
    name: str,
    columns: Mapping[str, DataColumn],
    defaults: Mapping[str, Any],
    cuts: Cuts,
    *,
    wide: bool = False,
) -> CallExpression:
    """Return the rows of a source, as dicts of the given columns.

    `wide` reads numbers as float64, for statistics.
    """
    part = source.part
    extra = {}
    if part is not None and part.key is not None and part.key not in columns:
        extra[part.key] = DataColumn("text" if part.by == "hash" else None)
    wanted = {**columns, **extra}
    data = _READERS[type(source)](source, name, wanted, defaults, wide)
    if source.on_bad_row == "skip":
        limits = {
            "max_errors": source.max_bad_rows,
            "max_fraction": source.max_bad_fraction,
        }
        given = {key: limit for key, limit in limits.items() if limit is not None}
        data = _verb(data, "ignore_errors", log_warning=True, **given)
    if part is not None:
        dropped = {"drop": True} if extra else {}
        if part.by == "time":
            data = CallExpression(
                "estimax.input.rows_between", dropped, (data, part.key, *cuts[name])
            )
        else:
            options = {} if part.key is None else {"key": part.key, **dropped}
            options |= {"seed": part.seed} if part.seed else {}
            data = CallExpression(
                "estimax.input.part_of", options, (data, part.start, part.stop)
            )
    data = _shape_values(data, source, columns, wide)
    if source.shard is not None:
        data = _verb(data, "shard", source.shard.count, source.shard.index)
    return _verb(data, "cache") if source.cache else data


def _shape_values(
    data: Any, source: AnySource, columns: Mapping[str, DataColumn], wide: bool
) -> Any:
    """Split delimited text into lists, and turn lists into vectors."""
    delimiters = {c: k.delimiter for c, k in columns.items() if k.delimiter is not None}
    if delimiters:
        dtypes = {c: _dtype(columns[c], wide) for c in delimiters}
        numbers = {c: dtype for c, dtype in dtypes.items() if dtype != "string"}
        options = {"dtypes": numbers} if numbers else {}
        data = CallExpression("estimax.input.split_values", options, (data, delimiters))
    shapes = {c: k.shape for c, k in columns.items() if k.shape is not None}
    if isinstance(source, RecordSource):
        shapes = {c: shape for c, shape in shapes.items() if c in delimiters}
    if shapes:
        data = CallExpression("estimax.input.as_vectors", {}, (data, shapes))
    return data


def _dtype(column: DataColumn, wide: bool) -> str | None:
    if column.kind is None:
        return None
    return "float64" if wide and column.kind == "float" else _DTYPES[column.kind]


def _dtypes(columns: Mapping[str, DataColumn], wide: bool) -> dict[str, str]:
    """Return the dtypes that a reader of text uses; delimited text is split later."""
    found = {
        c: "string" if k.delimiter is not None else _dtype(k, wide)
        for c, k in columns.items()
    }
    return {c: dtype for c, dtype in found.items() if dtype is not None}


def _files(source: AnySource, name: str) -> Any:
    """Return the files as written, or expanded if patterns name a file twice."""
    found = find_files(source, name)
    if len(source.files) == 1:
        return source.files[0]
    if sum(len(find_files(source, name, pattern)) for pattern in source.files) > len(
        found
    ):
        return list(found)
    return list(source.files)


def _compression(source: CsvSource | JsonSource | RecordSource) -> dict[str, str]:
    given = source.compression
    return {} if given is None else {"compression": given.upper()}


def _read_csv(
    source: CsvSource,
    name: str,
    columns: Mapping[str, DataColumn],
    defaults: Mapping[str, Any],
    wide: bool,
) -> CallExpression:
    check_header(find_files(source, name)[0], source, columns)
    options = source.csv
    whole = {c: v for c, v in defaults.items() if columns[c].delimiter is None}
    arguments: dict[str, Any] = {"dtypes": _dtypes(columns, wide)}
    arguments["select"] = list(columns)
    nulls = list(dict.fromkeys(("", *options.null_values)))
    given = {
        "columns": None if options.columns is None else list(options.columns),
        "null_values": nulls if nulls != [""] else None,
        "defaults": whole or None,
    }
    arguments |= {key: value for key, value in given.items() if value is not None}
    arguments |= changed_values(options, "delimiter", "quote", "header")
    arguments["encoding"] = options.encoding
    arguments |= _compression(source)
    return CallExpression("estimax.input.csv_files", arguments, (_files(source, name),))


def _read_parquet(
    source: ParquetSource,
    name: str,
    columns: Mapping[str, DataColumn],
    defaults: Mapping[str, Any],
    wide: bool,
) -> CallExpression:
    arguments: dict[str, Any] = {"columns": list(columns)}
    whole = {c: v for c, v in defaults.items() if columns[c].delimiter is None}
    if whole:
        arguments["defaults"] = whole
    return CallExpression(
        "estimax.input.parquet_files", arguments, (_files(source, name),)
    )


def _read_json(
    source: JsonSource,
    name: str,
    columns: Mapping[str, DataColumn],
    defaults: Mapping[str, Any],
    wide: bool,
) -> CallExpression:
    plain = [c for c, k in columns.items() if k.delimiter is None]
    lists = [c for c in plain if columns[c].many or columns[c].shape is not None]
    # A kind that is not known is that of most labels: a number.
    dtypes = {c: _dtypes(columns, wide).get(c, "float32") for c in columns}
    arguments: dict[str, Any] = {}
    if lists:
        arguments["lists"] = lists
    whole = {c: v for c, v in defaults.items() if c in plain and c not in lists}
    if whole:
        arguments["defaults"] = whole
    arguments |= _compression(source)
    return CallExpression(
        "estimax.input.json_files", arguments, (_files(source, name), dtypes)
    )


def _read_records(
    source: RecordSource,
    name: str,
    columns: Mapping[str, DataColumn],
    defaults: Mapping[str, Any],
    wide: bool,
) -> CallExpression:
    from estimax.input.readers import read_example_dtypes

    # Patterns are expanded: this reader takes paths alone, as in tf.data.
    options: dict[str, Any] = {}
    if source.compression is not None:
        options["compression_type"] = source.compression.upper()
    if source.num_parallel_reads is not None:
        options["num_parallel_reads"] = source.num_parallel_reads
    files = list(find_files(source, name))
    # A label or a number may be stored as integers, which a run reads as floats.
    stored = read_example_dtypes(files[0], options.get("compression_type"))
    data = CallExpression("estimax.input.TFRecordDataset", options, (files,))
    spec = {
        c: _feature_spec(k, defaults.get(c), stored.get(c)) for c, k in columns.items()
    }
    parser = CallExpression("estimax.input.ExampleParser", {}, (spec,))
    return _verb(data, "map_blocks", parser)


def _feature_spec(
    column: DataColumn, default: Any, stored: str | None
) -> CallExpression:
    dtype = "string" if column.delimiter is not None else _dtype(column, wide=False)
    if dtype is None or (dtype == "float32" and stored == "int64"):
        dtype = stored or "float32"
    if column.many and column.delimiter is None:
        return CallExpression("estimax.input.VarLenFeature", {}, (dtype,))
    shape = [] if column.shape is None or column.delimiter else list(column.shape)
    if dtype == "string":
        default = ""
    elif dtype == "int64" and default is not None and default != default:
        default = None  # an integer cannot be NaN
    arguments: tuple[Any, ...] = (shape, dtype)
    if default is not None and not shape:
        arguments = (*arguments, default)
    return CallExpression("estimax.input.FixedLenFeature", {}, arguments)


_READERS: dict[type, Callable[..., CallExpression]] = {
    CsvSource: _read_csv,
    ParquetSource: _read_parquet,
    JsonSource: _read_json,
    RecordSource: _read_records,
}


def _read_by_features(run: Run) -> set[str]:
    return {c for name, f in run.features.items() for c in columns_read(name, f)}


def _defaults(run: Run) -> dict[str, float]:
    """Return what the reader uses for a missing value, by column.

    A missing number is read as NaN and filled by the feature column, so that an
    exported model fills it as well. A missing id is -1, which categorical columns
    ignore. A column that is not listed must not have missing values.
    """
    readers: dict[str, list[object]] = {}
    for name, feature in run.features.items():
        if kind_of(feature) in ("float", "int") or isinstance(feature, COMPUTED):
            for column in columns_read(name, feature):
                readers.setdefault(column, []).append(feature)
    kinds = columns_of(run)
    defaults: dict[str, float] = {}
    for column, features in readers.items():
        numeric = [f for f in features if isinstance(f, (NumericConfig, *COMPUTED))]
        if len(numeric) == len(features) and all(
            may_be_missing(run, f) for f in numeric
        ):
            if kinds[column] == "float":
                defaults[column] = float("nan")
        elif not numeric:
            defaults[column] = -1
    return defaults
