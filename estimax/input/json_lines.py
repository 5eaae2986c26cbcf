"""Datasets of files with a JSON object on each line.

json_files("train-*.jsonl", {"age": "float32", "tags": "string"}, lists=["tags"])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from estimax.core.errors import InputError, did_you_mean
from estimax.core.parse_spec import dtype_name
from estimax.input.dataset import Dataset
from estimax.input.sources.file_blocks import FileBlocks
from estimax.input.sources.json_reader import JSON_DTYPES, JsonFormat, JsonReader
from estimax.input.sources.paths import PathLike, expand
from estimax.storage.compression import check_compression


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
        dtype, or a number without default is missing; the message names file and
        line. `Dataset.ignore_errors` skips such a line.

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
        if dtype not in JSON_DTYPES:
            near = did_you_mean(dtype, JSON_DTYPES)
            raise InputError(f"json_files: {key!r} has the dtype {dtype!r}{near}")
    form = JsonFormat(
        kinds,
        frozenset(many),
        dict(defaults or {}),
        check_compression(compression, "json_files"),
    )
    return Dataset(FileBlocks(expand(files), lambda: JsonReader(form), "json_files"))
