"""Datasets of files with a JSON object on each line.

json_files("train-*.jsonl", {"age": "float32", "tags": "string"}, lists=["tags"])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from estimax.core.arrow import arrow_column
from estimax.core.errors import InputError, did_you_mean
from estimax.core.parse_spec import dtype_name
from estimax.core.strings import Strings
from estimax.input.dataset import Dataset
from estimax.input.readers import TextLineDataset
from estimax.input.sources.paths import PathLike, expand

_DTYPES = ("float32", "float64", "int32", "int64", "bool", "string")


def json_files(
    files: PathLike | Iterable[PathLike],
    dtypes: Mapping[str, Any],
    *,
    lists: Iterable[str] = (),
    defaults: Mapping[str, Any] | None = None,
    compression: str | None = None,
) -> Dataset:
    r"""Read JSON lines into a dataset of dicts, one dict of named values per line.

    Every line is a JSON object; keys that are not in `dtypes` are ignored. Blocks of
    lines are parsed by pyarrow. Once batched, a column is a NumPy array, `Strings` for
    text, or `Sparse` for lists.

    Args:
      files: A path, a URL, a glob pattern of either, or a list of these. The matches
        of a pattern are sorted by path; a list is read in its order.
      dtypes: The keys to read, each with its dtype: float32, float64, int32, int64,
        bool or string.
      lists: The keys whose values are lists.
      defaults: The replacement for a null or a missing key, by key. Without one,
        missing text becomes an empty string, a missing list an empty one, and a missing
        number is an error.
      compression: None, "GZIP" or "ZLIB".

    Returns:
      A `Dataset` of rows, not yet shuffled or batched. It resumes by byte offset.

    Raises:
      InputError: No file matches, or `lists` or `defaults` has a key that `dtypes`
        lacks. While reading: a line is not a JSON object, a value does not fit its
        dtype, or a number without default is missing.

    Example:
      >>> import tempfile
      >>> with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
      ...     _ = file.write('{"age": 31, "tags": ["a", "b"]}\n{"tags": []}\n')
      ...     file.flush()
      ...     dtypes = {"age": "int64", "tags": "string"}
      ...     data = json_files(file.name, dtypes, lists=["tags"], defaults={"age": -1})
      ...     batch = next(iter(data.batch(2)))
      >>> batch["age"], batch["tags"].values.tolist()
      (array([31, -1]), [b'a', b'b'])
    """
    kinds = {key: dtype_name(dtype) for key, dtype in dtypes.items()}
    many = set(lists)
    for key in (*many, *(defaults or {})):
        if key not in kinds:
            raise InputError(
                f"json_files: no dtype for {key!r}{did_you_mean(key, kinds)}"
            )
    for key, dtype in kinds.items():
        if dtype not in _DTYPES:
            near = did_you_mean(dtype, _DTYPES)
            raise InputError(f"json_files: {key!r} has the dtype {dtype!r}{near}")
    lines = TextLineDataset(list(expand(files)), compression_type=compression)
    return lines.map_blocks(_parser(kinds, many, dict(defaults or {})))


def _parser(
    kinds: Mapping[str, str], lists: set[str], defaults: Mapping[str, Any]
) -> Callable[[Strings], dict[str, Any]]:
    def parse(lines: Strings) -> dict[str, Any]:
        import pyarrow as pa
        from pyarrow import json

        types = {name: _arrow_type(dtype) for name, dtype in kinds.items()}
        schema = pa.schema(
            (name, pa.list_(kind) if name in lists else kind)
            for name, kind in types.items()
        )
        text = b"\n".join(lines.tolist())
        options = json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="ignore"
        )
        # One block: pyarrow refuses an object that is longer than a block.
        reading = json.ReadOptions(block_size=len(text) + 1)
        try:
            table = json.read_json(pa.BufferReader(text), reading, options)
        except pa.ArrowInvalid as error:
            raise InputError(f"JSON lines: {_reason(lines, error)}") from None
        if table.num_rows != len(lines):
            raise InputError(
                f"JSON lines: expected an object on each of {len(lines)} lines, found "
                f"{table.num_rows}; remove empty lines."
            )
        return {
            name: arrow_column(
                table.column(name), defaults.get(name), f"JSON lines, key {name!r}"
            )
            for name in kinds
        }

    return parse


def _arrow_type(dtype: str) -> Any:
    import pyarrow as pa

    return pa.string() if dtype == "string" else pa.from_numpy_dtype(np.dtype(dtype))


def _reason(lines: Strings, error: Exception) -> str:
    """Return what is wrong, with the first line that is not a JSON object."""
    import json

    for line in lines.tolist():
        try:
            is_object = isinstance(json.loads(line), dict)
        except ValueError:
            is_object = False
        if not is_object:
            return f"expected a JSON object on a line, found {line[:60]!r}."
    return f"{error}."
