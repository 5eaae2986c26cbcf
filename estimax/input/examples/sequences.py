"""Parse SequenceExample messages into columns: a context, and lists of steps.

    context, sequences, lengths = parse_sequence_example(
        records,
        context_features={"user": FixedLenFeature([], "string")},
        sequence_features={"clicks": VarLenFeature("int64")},
    )

The context is parsed as an Example, because both messages hold it in field 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.examples.parsing import (
    Parsed,
    as_records,
    blank_of,
    check_dtype,
    pad_rows,
    parser_of,
    size_of,
    without_batch,
)
from estimax.input.examples.specs import (
    AttachData,
    ExampleError,
    FeatureSpec,
    FixedLenSequenceFeature,
    Names,
    RaggedFeature,
    VarLenFeature,
    name_of,
    raise_problem,
)
from estimax.input.streams.ragged import Ragged
from estimax.native import sequences
from estimax.native.example_types import FeatureRequest, FeatureValues, Problem, Steps

_SEQUENCES = VarLenFeature | FixedLenSequenceFeature | RaggedFeature


def parse_sequence_example(
    serialized: Any,
    context_features: Mapping[str, FeatureSpec] | None = None,
    sequence_features: Mapping[str, FeatureSpec] | None = None,
    example_names: Names = None,
) -> tuple[Parsed, Parsed, dict[str, NDArray[np.int64]]]:
    """Parse a batch of serialized SequenceExamples into columns.

    Use it for sequences whose steps have values of their own. Plain lists of values
    fit into an Example; see `parse_example`.

    Args:
      serialized: A vector of B serialized messages: `Strings`, a list or an array.
      context_features: What to parse from the context, by key, as in `parse_example`.
      sequence_features: What to parse from the feature lists, by key: `VarLenFeature`
        (sparse [B, steps, values]), `FixedLenSequenceFeature` (padded
        [B, steps, *shape]) or `RaggedFeature`.
      example_names: The names of the examples in error messages: a sequence, or a
        function of the index in the batch.

    Returns:
      The context columns, the sequence columns, and the number of steps [B] of each
      `FixedLenSequenceFeature`, all by key.

    Raises:
      InputError: There is nothing to parse, or a feature is not possible there.
      ExampleError: An example is damaged or does not fit the features.

    Example:
      >>> from estimax.input import SequenceExample
      >>> record = SequenceExample.of({}, {"n": [[1], [2, 3]]}).serialize()
      >>> features = {"n": RaggedFeature("int64")}
      >>> parse_sequence_example([record], None, features)[1]["n"].tolist()
      [[[1], [2, 3]]]
    """
    if not context_features and not sequence_features:
        raise InputError(
            "parse_sequence_example: pass context_features, sequence_features or both."
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
    with AttachData(records):
        lists = _Lists(records, sequence_features, example_names)
        columns = {key: lists.column(f) for f, key in enumerate(sequence_features)}
    return context, columns, lists.lengths()


def parse_single_sequence_example(
    serialized: bytes,
    context_features: Mapping[str, FeatureSpec] | None = None,
    sequence_features: Mapping[str, FeatureSpec] | None = None,
    example_name: Any = None,
) -> tuple[Parsed, Parsed]:
    """Parse one serialized SequenceExample into values without a batch dimension.

    Use it in a `map` over single records; `parse_sequence_example` is faster for
    batches.

    Args:
      serialized: The bytes of one message.
      context_features: What to parse from the context, by key.
      sequence_features: What to parse from the feature lists, by key.
      example_name: The name of the example in error messages.

    Returns:
      The context and the sequences, both by key.

    Raises:
      InputError: There is nothing to parse, or a feature is not possible there.
      ExampleError: The example is damaged or does not fit the features.

    Example:
      >>> from estimax.input import SequenceExample
      >>> record = SequenceExample.of({"user": "ann"}, {"n": [[1], [2]]}).serialize()
      >>> context, sequences = parse_single_sequence_example(
      ...     record,
      ...     {"user": VarLenFeature(str)},
      ...     {"n": FixedLenSequenceFeature([], "int64")},
      ... )
      >>> context["user"].values, sequences["n"]
      (Strings([b'ann'], shape=(1,)), array([1, 2]))
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
    """The feature lists of a batch: located at once, then read column by column."""

    def __init__(
        self, records: Strings, features: Mapping[str, FeatureSpec], names: Names
    ) -> None:
        self._records = records
        self._names = names
        self._features = [_checked(key, feature) for key, feature in features.items()]
        self._wanted = [
            FeatureRequest(key, feature.dtype) for key, feature in features.items()
        ]
        found = sequences.find_lists(self._wanted, records)
        if isinstance(found, Problem):
            raise_problem(found, self._wanted, records, names)
        self._lists = found

    def lengths(self) -> dict[str, NDArray[np.int64]]:
        """Return the number of steps of every record, for the padded features."""
        return {
            wanted.key: np.diff(self._lists.splits[f])
            for f, wanted in enumerate(self._wanted)
            if isinstance(self._features[f], FixedLenSequenceFeature)
        }

    def column(self, f: int) -> Any:
        """Return the column of feature number f."""
        feature, splits = self._features[f], self._lists.splits[f]
        if isinstance(feature, FixedLenSequenceFeature):
            return self._padded(f, feature)
        found = self._read(f, None)
        values, counts = found.values, found.splits
        if isinstance(feature, RaggedFeature):
            dtype = np.dtype(feature.row_splits_dtype)
            return Ragged(values, (splits.astype(dtype), counts.astype(dtype)))
        # `splits` cut the steps of the batch into records, `counts` cut the values
        # into steps. The index of a value is (record, step in it, place in the step).
        rows, steps = _rows_of(splits), _rows_of(counts)
        places = np.arange(len(steps)) - counts[steps]
        indices = np.stack([rows[steps], (steps - splits[rows[steps]]), places], axis=1)
        longest = (
            int(np.diff(splits).max(initial=0)),
            int(np.diff(counts).max(initial=0)),
        )
        return Sparse(indices, values, (self._records.size, *longest))

    def _padded(self, f: int, feature: FixedLenSequenceFeature) -> FeatureValues:
        key, splits = self._wanted[f].key, self._lists.splits[f]
        missing = np.flatnonzero(self._lists.is_missing[f])
        if len(missing) and not feature.allow_missing:
            row = int(missing[0])
            raise ExampleError(
                f"{name_of(row, self._names)}: feature list {key!r} ({feature.dtype}) "
                "is missing; pass allow_missing=True if it may be.",
                row,
                key,
            )
        size = size_of(key, feature.shape)
        values = self._read(f, size).values
        longest = int(np.diff(splits).max(initial=0))
        blank = blank_of(feature.dtype)
        flat = pad_rows(values, splits * size, longest * size, blank)
        return flat.reshape((self._records.size, longest, *feature.shape))

    def _read(self, f: int, size: int | None) -> Steps:
        """Return the values of all steps; raise unless each has `size` values."""
        found = self._lists.read(f, size)
        if isinstance(found, Problem):
            raise_problem(found, self._wanted, self._records, self._names)
        return found


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
            f"sequence feature {key!r}: default_value is not supported here; short "
            "lists are padded with 0 or an empty string."
        )
    if isinstance(feature, RaggedFeature) and (feature.partitions or feature.value_key):
        raise InputError(
            f"sequence feature {key!r}: partitions and value_key are supported only in "
            "Examples and contexts; the steps of a list are its rows."
        )
    return feature


def _rows_of(splits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row number of every item."""
    return np.repeat(np.arange(len(splits) - 1), np.diff(splits))
