"""SequenceExample messages to columns: a context, and lists of steps.

    context, sequences, lengths = parse_sequence_example(
        records,
        context_features={"user": FixedLenFeature([], "string")},
        sequence_features={"clicks": VarLenFeature("int64")},
    )

A context is parsed as an Example is: on the wire it is the same field.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.ragged import Ragged
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.parsing import (
    Parsed,
    as_records,
    blank_of,
    check_dtype,
    pad_rows,
    parser_of,
    size_of,
    without_batch,
)
from estimax.input.parsing_errors import (
    ExampleError,
    Names,
    name_of,
    raise_problem,
    with_data,
)
from estimax.input.parsing_plan import (
    DTYPES,
    Values,
    Wanted,
    example_kernels,
    key_table,
    work_room,
)
from estimax.input.parsing_specs import (
    FeatureSpec,
    FixedLenSequenceFeature,
    RaggedFeature,
    VarLenFeature,
)
from estimax.native import loading

_SEQUENCES = VarLenFeature | FixedLenSequenceFeature | RaggedFeature


def parse_sequence_example(
    serialized: Any,
    context_features: Mapping[str, FeatureSpec] | None = None,
    sequence_features: Mapping[str, FeatureSpec] | None = None,
    example_names: Names = None,
) -> tuple[Parsed, Parsed, dict[str, NDArray[np.int64]]]:
    """Parse a vector of SequenceExamples: context, sequences, and their lengths.

    Sequences are VarLen (sparse [B, steps, values]), FixedLenSequence (padded
    [B, steps, *shape], with its steps in `lengths`) or Ragged.

    >>> from estimax.input.examples import SequenceExample
    >>> record = SequenceExample.of({}, {"n": [[1], [2, 3]]}).serialize()
    >>> features = {"n": RaggedFeature("int64")}
    >>> parse_sequence_example([record], None, features)[1]["n"].tolist()
    [[[1], [2, 3]]]
    """
    if not context_features and not sequence_features:
        raise InputError(
            "parse_sequence_example: give context_features, sequence_features or both."
        )
    records = as_records(serialized, "parse_sequence_example")
    context: Parsed = {}
    if context_features:
        for key, feature in context_features.items():
            if isinstance(feature, FixedLenSequenceFeature):
                raise InputError(
                    f"context feature {key!r}: a FixedLenSequenceFeature belongs to "
                    "sequence_features."
                )
        context = parser_of(context_features)(records, example_names)
    if not sequence_features:
        return context, {}, {}
    with with_data(records):
        lists = _Lists(records, sequence_features, example_names)
        sequences = {key: lists.column(f) for f, key in enumerate(sequence_features)}
    return context, sequences, lists.lengths()


def parse_single_sequence_example(
    serialized: bytes,
    context_features: Mapping[str, FeatureSpec] | None = None,
    sequence_features: Mapping[str, FeatureSpec] | None = None,
    example_name: Any = None,
) -> tuple[Parsed, Parsed]:
    """Parse one SequenceExample: context and sequences, without a batch dimension.

    >>> from estimax.input.examples import SequenceExample
    >>> record = SequenceExample.of({"user": "ann"}, {}).serialize()
    >>> parse_single_sequence_example(record, {"user": VarLenFeature(str)})[0][
    ...     "user"
    ... ].values
    Strings([b'ann'], shape=(1,))
    """
    names = None if example_name is None else [example_name]
    context, sequences, _ = parse_sequence_example(
        [bytes(serialized)], context_features, sequence_features, names
    )
    return (
        {key: without_batch(column) for key, column in context.items()},
        {key: without_batch(column) for key, column in sequences.items()},
    )


class _Lists:
    """The feature lists of a batch: where they are, then one column at a time."""

    def __init__(
        self, records: Strings, features: Mapping[str, FeatureSpec], names: Names
    ) -> None:
        self._records = records
        self._data = np.ascontiguousarray(records.data)
        self._names = names
        self._features = [_checked(key, feature) for key, feature in features.items()]
        self._wanted = [Wanted(key, feature.dtype) for key, feature in features.items()]
        count, rows = len(features), records.size
        self._steps = np.empty((count, rows + 1), np.int64)  # splits, in steps
        self._where = np.empty((count, rows, 2), np.int64)
        problem = np.zeros(6, np.int64)
        if not _kernels().scan_lists(
            *(self._data, records.offsets, *key_table(list(features))),
            *(self._steps, self._where, *work_room(count), problem),
        ):
            raise_problem(problem, self._wanted, records, names)

    def lengths(self) -> dict[str, NDArray[np.int64]]:
        """The steps of every record, of the padded features."""
        return {
            wanted.key: np.diff(self._steps[f])
            for f, wanted in enumerate(self._wanted)
            if isinstance(self._features[f], FixedLenSequenceFeature)
        }

    def column(self, f: int) -> Any:
        """Feature f, as its description says."""
        feature, splits = self._features[f], self._steps[f]
        if isinstance(feature, FixedLenSequenceFeature):
            return self._padded(f, feature)
        values, counts = self._values(f, None)
        if isinstance(feature, RaggedFeature):
            dtype = np.dtype(feature.row_splits_dtype)
            return Ragged(values, (splits.astype(dtype), counts.astype(dtype)))
        rows, steps = _rows_of(splits), _rows_of(counts)
        places = np.arange(len(steps)) - counts[steps]
        indices = np.stack([rows[steps], (steps - splits[rows[steps]]), places], axis=1)
        longest = (
            int(np.diff(splits).max(initial=0)),
            int(np.diff(counts).max(initial=0)),
        )
        return Sparse(indices, values, (self._records.size, *longest))

    def _padded(self, f: int, feature: FixedLenSequenceFeature) -> Values:
        key, splits = self._wanted[f].key, self._steps[f]
        missing = np.flatnonzero(self._where[f, :, 0] < 0)
        if len(missing) and not feature.allow_missing:
            row = int(missing[0])
            raise ExampleError(
                f"{name_of(row, self._names)}: feature list {key!r} ({feature.dtype}) "
                "is missing; pass allow_missing=True if it may be.",
                row,
                key,
            )
        size = size_of(key, feature.shape)
        values, _ = self._values(f, size)
        longest = int(np.diff(splits).max(initial=0))
        blank = blank_of(feature.dtype)
        flat = pad_rows(values, splits * size, longest * size, blank)
        return flat.reshape((self._records.size, longest, *feature.shape))

    def _values(self, f: int, size: int | None) -> tuple[Values, NDArray[np.int64]]:
        """The values of all steps, flat, and the splits of steps in them."""
        kind, steps = DTYPES[self._wanted[f].dtype], int(self._steps[f, -1])
        counts = np.empty(steps + 1, np.int64)
        where = np.empty((steps, 3), np.int64)
        problem = np.zeros(6, np.int64)
        wanted_size = _kernels().VARIABLE if size is None else size
        if not _kernels().scan_steps(
            *(self._data, self._records.offsets, self._where[f], f, kind, wanted_size),
            *(counts, where, problem),
        ):
            raise_problem(problem, self._wanted, self._records, self._names)
        return self._read(kind, counts, where), counts

    def _read(
        self, kind: int, counts: NDArray[np.int64], where: NDArray[np.int64]
    ) -> Values:
        """What `fill` writes for a table of one feature, whose rows are the steps."""
        kernels = example_kernels()
        table = np.zeros((1, kernels.COLUMNS), np.int64)
        table[0, [kernels.KIND, kernels.SIZE, kernels.ROWS, kernels.INDICES]] = (
            *(kind, kernels.VARIABLE, len(where), kernels.NONE),
        )
        n = int(counts[-1])
        floats, ints = np.empty(n, np.float32), np.empty(n, np.int64)
        text, offsets = (
            np.empty(len(self._data) + 8, np.uint8),
            np.empty(n + 1, np.int64),
        )
        nothing = np.zeros(1, np.int64)
        kernels.fill(
            *(self._data, 0, table, text, nothing, nothing, counts, where),
            *(floats, ints, np.empty(1, np.int64), np.empty(2 * n, np.int64)),
            *(text, offsets, np.empty((0, 2), np.int64)),
        )
        if kind == DTYPES["string"]:
            return Strings(text, offsets, (n,))
        return floats if kind == DTYPES["float32"] else ints


def _checked(key: str, feature: FeatureSpec) -> _SEQUENCES:
    if not isinstance(feature, _SEQUENCES):
        raise InputError(
            f"sequence feature {key!r}: expected VarLenFeature, "
            "FixedLenSequenceFeature or RaggedFeature, got "
            f"{type(feature).__name__}."
        )
    check_dtype(key, feature.dtype)
    if (
        isinstance(feature, FixedLenSequenceFeature)
        and feature.default_value is not None
    ):
        raise InputError(
            f"sequence feature {key!r}: a default_value is not possible here; short "
            "lists are padded with 0 or an empty string."
        )
    if isinstance(feature, RaggedFeature) and (feature.partitions or feature.value_key):
        raise InputError(
            f"sequence feature {key!r}: partitions and value_key are only possible in "
            "Examples and contexts; a list's steps are its rows."
        )
    return feature


def _rows_of(splits: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(splits) - 1), np.diff(splits))


def _kernels() -> ModuleType:
    return loading.load("estimax.native.kernels.sequences")
