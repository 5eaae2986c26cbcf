"""Parts of a dataset, and columns with several values.

train = part_of(data, 0.0, 0.8, key="user")       # 80% of the users
test = part_of(data, 0.8, 1.0, key="user")        # the other 20%
early = rows_between(data, "day", None, "2024-06-01")
data = split_values(data, {"tags": "|"})          # "a|b" to two values
data = as_vectors(data, {"position": (3,)})       # lists to [B, 3]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError, did_you_mean
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.dataset import Dataset
from estimax.native import hashing

_SCALE = 2.0**-53
_SEED_STEP = 0x9E3779B97F4A7C15  # the increment of SplitMix64


def part_of(
    data: Dataset,
    start: float,
    stop: float,
    *,
    key: str | None = None,
    seed: int = 0,
    drop: bool = False,
) -> Dataset:
    """Keep the rows whose hash, a number in [0, 1), is in [start, stop).

    Use it to split rows into training and test data, the same way in every run. Parts
    that do not overlap have no row in common. Apply it to rows: before `shuffle` and
    `batch`, and directly after the source if `key` is None.

    Args:
      data: A dataset of dicts, one for each row.
      start: Where the part begins, from 0 to 1.
      stop: Where the part ends, from 0 to 1. Below `start`, the part is all that is not
        in [stop, start), as the training rows of a fold are.
      key: The column whose value is hashed, text or integers, so that rows with the
        same value stay together. None hashes the number of the row.
      seed: Another seed makes another split.
      drop: Whether to remove the column `key` afterwards.

    Returns:
      A dataset of about `stop - start` of the rows; 1 more if that is below 0.

    Raises:
      InputError: `start` or `stop` is not between 0 and 1. While reading:
        there is no column `key`, or it holds neither text nor integers.

    Example:
      >>> data = Dataset.from_tensor_slices({"x": np.arange(1000)})
      >>> train, test = part_of(data, 0.0, 0.8), part_of(data, 0.8, 1.0)
      >>> len(list(train)), len(list(test))
      (815, 185)
    """
    if not (0 <= start <= 1 and 0 <= stop <= 1):
        raise InputError(
            f"part_of: expected start and stop from 0 to 1, got {start} and {stop}."
        )

    def is_inside(numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
        # The last part includes 1, which rounding may produce.
        is_after, is_before = numbers >= start, (numbers < stop) | (stop == 1)
        return is_after & is_before if start <= stop else is_after | is_before

    if key is not None:

        def by_key(rows: Mapping[str, Any]) -> NDArray[np.bool_]:
            column = _column(rows, key, "part_of")
            return is_inside(_uniform(_hashes(column, key), seed))

        return _without(data.filter_blocks(by_key), key if drop else None)

    def by_number(number: NDArray[np.int64], rows: Any) -> NDArray[np.bool_]:
        return is_inside(_uniform(np.asarray(number).astype(np.uint64), seed))

    return data.enumerate().filter_blocks(by_number).map_blocks(_second)


def _without(data: Dataset, column: str | None) -> Dataset:
    if column is None:
        return data
    return data.map_blocks(lambda rows: {k: rows[k] for k in rows if k != column})


def _second(first: Any, second: Any) -> Any:
    return second


def _hashes(column: Any, key: str) -> NDArray[np.uint64]:
    if isinstance(column, Strings):
        return hashing.fingerprints(column)
    if isinstance(column, np.ndarray) and column.dtype.kind in "iu":
        return hashing.integer_fingerprints(column)
    found = getattr(column, "dtype", type(column).__name__)
    raise InputError(
        f"part_of: column {key!r} must hold text or integers, got {found}."
    )


def _uniform(numbers: NDArray[np.uint64], seed: int) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each integer (SplitMix64)."""
    offset = np.uint64((seed + 1) * _SEED_STEP & (2**64 - 1))
    mixed = numbers * np.uint64(_SEED_STEP) + offset
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    result: NDArray[np.float64] = (mixed >> np.uint64(11)).astype(np.float64) * _SCALE
    return result


def rows_between(
    data: Dataset,
    column: str,
    low: float | str | None,
    high: float | str | None,
    *,
    drop: bool = False,
) -> Dataset:
    """Keep the rows whose value in a column is at least `low` and below `high`.

    Use it to split data by time. Text is compared byte by byte, which is the order of
    time for dates such as 2024-05-31.

    Args:
      data: A dataset of dicts, one for each row.
      column: The column to compare, numbers or text.
      low: The smallest value to keep; None for no limit.
      high: Rows below this value are kept; None for no limit.
      drop: Whether to remove the column afterwards.

    Returns:
      A dataset of those rows.

    Raises:
      InputError: While reading: there is no such column.

    Example:
      >>> data = Dataset.from_tensor_slices({"day": np.arange(5)})
      >>> [int(row["day"]) for row in rows_between(data, "day", 1, 3)]
      [1, 2]
    """

    def is_between(rows: Mapping[str, Any]) -> NDArray[np.bool_]:
        values = _column(rows, column, "rows_between")
        keep = np.ones(len(values), np.bool_)
        if isinstance(values, Strings):
            values = np.array(values.tolist(), dtype=object)
        if low is not None:
            keep &= np.asarray(values >= _limit(low), np.bool_)
        if high is not None:
            keep &= np.asarray(values < _limit(high), np.bool_)
        return keep

    return _without(data.filter_blocks(is_between), column if drop else None)


def rows_where(data: Dataset, values: Mapping[str, float | str]) -> Dataset:
    """Keep the rows that have the given values.

    Use it to evaluate a model on a slice of the data, such as one country.

    Args:
      data: A dataset of dicts, one for each row.
      values: The value to keep by column, a number or text.

    Returns:
      A dataset of the rows that have all of the values.

    Raises:
      InputError: While reading: there is no such column.

    Example:
      >>> data = Dataset.from_tensor_slices({"c": ["NO", "IT", "NO"], "x": [1, 2, 3]})
      >>> [int(row["x"]) for row in rows_where(data, {"c": "NO"})]
      [1, 3]
    """

    def has_values(rows: Mapping[str, Any]) -> NDArray[np.bool_]:
        keep = np.True_
        for name, value in values.items():
            keep = keep & (_column(rows, name, "rows_where") == _limit(value))
        return np.asarray(keep)

    return data.filter_blocks(has_values)


def _limit(value: float | str) -> float | bytes:
    return value.encode() if isinstance(value, str) else value


def split_values(
    data: Dataset,
    delimiters: Mapping[str, str],
    *,
    dtypes: Mapping[str, Any] | None = None,
) -> Dataset:
    """Split text such as "a|b|c" into several values of a feature.

    Use it for CSV files, whose fields hold one text each. Empty parts are dropped, so
    an empty text has no values.

    Args:
      data: A dataset of dicts, one for each row.
      delimiters: What separates the values, by column.
      dtypes: The dtype of the values by column, int64 or float32; text by default.

    Returns:
      A dataset in which these columns are `Sparse`.

    Raises:
      InputError: While reading: there is no such column, it is not text, or a value is
        not a number of its dtype.

    Example:
      >>> data = Dataset.from_tensor_slices({"ids": ["3|4", "", "5"]})
      >>> data = split_values(data, {"ids": "|"}, dtypes={"ids": "int64"})
      >>> batch = next(iter(data.batch(3)))
      >>> batch["ids"].values, batch["ids"].starts
      (array([3, 4, 5]), array([0, 2, 2, 3]))
    """
    wanted = dict(dtypes or {})

    def split(rows: Mapping[str, Any]) -> dict[str, Any]:
        done = dict(rows)
        for name, delimiter in delimiters.items():
            column = _column(rows, name, "split_values")
            done[name] = _split(column, delimiter, wanted.get(name), name)
        return done

    return data.map_blocks(split)


def _split(column: Any, delimiter: str, dtype: Any, name: str) -> Sparse:
    if not isinstance(column, Strings):
        found = getattr(column, "dtype", type(column).__name__)
        raise InputError(f"split_values: column {name!r} must be text, got {found}.")
    between = delimiter.encode()
    lists = [[part for part in text.split(between) if part] for text in column.tolist()]
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(parts) for parts in lists], out=offsets[1:])
    flat = [part for parts in lists for part in parts]
    if dtype is None:
        return Sparse.of_lists(Strings.of(flat) if flat else _NO_TEXT, offsets)
    try:
        return Sparse.of_lists(np.array(flat, dtype="S").astype(dtype), offsets)
    except ValueError as error:
        raise InputError(f"split_values: column {name!r}: {error}.") from None


_NO_TEXT = Strings(np.empty(0, np.uint8), np.zeros(1, np.int64), (0,))


def as_vectors(data: Dataset, shapes: Mapping[str, Sequence[int]]) -> Dataset:
    """Turn lists of a fixed length into vectors, for `numeric_column(shape=...)`.

    Args:
      data: A dataset of dicts, one for each row, whose columns are lists.
      shapes: The shape of a row by column.

    Returns:
      A dataset in which these columns are dense arrays.

    Raises:
      InputError: While reading: there is no such column, or a row has another number of
        values.

    Example:
      >>> data = Dataset.from_tensor_slices({"v": ["1 2", "3 4"]})
      >>> data = split_values(data, {"v": " "}, dtypes={"v": "float32"})
      >>> next(iter(as_vectors(data, {"v": (2,)}).batch(2)))["v"].tolist()
      [[1.0, 2.0], [3.0, 4.0]]
    """
    wanted = {name: tuple(shape) for name, shape in shapes.items()}

    def densify(rows: Mapping[str, Any]) -> dict[str, Any]:
        done = dict(rows)
        for name, shape in wanted.items():
            done[name] = _vector(_column(rows, name, "as_vectors"), shape, name)
        return done

    return data.map_blocks(densify)


def _vector(column: Any, shape: tuple[int, ...], name: str) -> Any:
    width = int(np.prod(shape))
    if isinstance(column, Sparse):
        lengths = np.diff(column.starts)
        if (lengths != width).any():
            other = int(lengths[lengths != width][0])
            raise InputError(
                f"as_vectors: column {name!r}: expected {width} values in each row, "
                f"found {other}."
            )
        column = column.values
    return column.reshape((-1, *shape))


def _column(rows: Any, name: str, where: str) -> Any:
    if not isinstance(rows, Mapping) or name not in rows:
        near = did_you_mean(name, rows) if isinstance(rows, Mapping) else ""
        raise InputError(f"{where}: there is no column {name!r}{near}")
    return rows[name]
