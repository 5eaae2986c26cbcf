"""Single examples: build one by hand, look into one, or write it to a file.

    record = Example.of({"age": 31.0, "tags": ["a", "b"]}).serialize()
    Example.parse(record).features["tags"].values        # (b"a", b"b")

For many rows at once, `serialize_examples` is a thousand times as fast.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.streams.columns import as_column
from estimax.input.streams.ragged import Ragged
from estimax.native import encoding
from estimax.native.encoding import EncodedColumn
from estimax.wire import messages


@dataclass(frozen=True)
class Feature:
    """Values of one kind: bytes_list, float_list, int64_list, or None without any.

    >>> Feature.of([1, 2])
    Feature(kind='int64_list', values=(1, 2))
    """

    kind: str | None = None
    values: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in messages.KINDS:
            raise InputError(
                f"Feature: kind must be None or one of {', '.join(messages.KINDS)}, "
                f"got {self.kind!r}."
            )
        object.__setattr__(self, "values", tuple(self.values))

    @staticmethod
    def of(values: Any) -> Feature:  # Any: a scalar or array of numbers or text
        """Tell the kind from the values: text, floats, or integers and bools."""
        if isinstance(values, Feature):
            return values
        listed = _flat(values)
        if not listed:
            return Feature()
        if all(isinstance(v, str | bytes) for v in listed):
            encoded = (v.encode() if isinstance(v, str) else v for v in listed)
            return Feature("bytes_list", tuple(encoded))
        if all(isinstance(v, bool | int | np.integer | np.bool_) for v in listed):
            return Feature("int64_list", tuple(int(v) for v in listed))
        if all(isinstance(v, int | float | np.number) for v in listed):
            return Feature("float_list", tuple(float(v) for v in listed))
        raise InputError(
            f"Feature: expected only text or only numbers, got {listed!r}."
        )


@dataclass(frozen=True)
class Example:
    """Features by key.

    >>> Example.of({"x": 1.0}).serialize()
    b'\\n\\x0f\\n\\r\\n\\x01x\\x12\\x08\\x12\\x06\\n\\x04\\x00\\x00\\x80?'
    """

    features: Mapping[str, Feature] = field(default_factory=dict)

    @staticmethod
    def of(values: Mapping[str, Any]) -> Example:
        """Build from plain values; see `Feature.of`."""
        return Example({key: Feature.of(value) for key, value in values.items()})

    @staticmethod
    def parse(data: bytes) -> Example:
        """Read a serialised example, whatever it holds."""
        return Example(_features(messages.decode_example(data)))

    def serialize(self) -> bytes:
        """The bytes, always the same for the same features."""
        return messages.encode_example(_parts(self.features))


@dataclass(frozen=True)
class SequenceExample:
    """A context, and lists with a feature for each step.

    >>> SequenceExample.of({}, {"n": [[1], [2, 3]]}).feature_lists["n"][1].values
    (2, 3)
    """

    context: Mapping[str, Feature] = field(default_factory=dict)
    feature_lists: Mapping[str, tuple[Feature, ...]] = field(default_factory=dict)

    @staticmethod
    def of(
        context: Mapping[str, Any], lists: Mapping[str, Sequence[Any]]
    ) -> SequenceExample:
        """Build from plain values; a list's items are its steps."""
        return SequenceExample(
            Example.of(context).features,
            {
                key: tuple(Feature.of(step) for step in steps)
                for key, steps in lists.items()
            },
        )

    @staticmethod
    def parse(data: bytes) -> SequenceExample:
        """Read a serialised sequence example."""
        context, lists = messages.decode_sequence_example(data)
        steps = {k: tuple(_feature(step) for step in v) for k, v in lists.items()}
        return SequenceExample(_features(context), steps)

    def serialize(self) -> bytes:
        """The bytes, always the same for the same features."""
        lists = {
            key: [(step.kind, step.values) for step in steps]
            for key, steps in self.feature_lists.items()
        }
        return messages.encode_sequence_example(_parts(self.context), lists)


def _flat(values: Any) -> list[Any]:
    if isinstance(values, str | bytes):
        return [values]
    listed = np.asarray(values, object).reshape(-1).tolist()
    return list(listed)


def _parts(features: Mapping[str, Feature]) -> dict[str, messages.FeatureParts]:
    return {key: (value.kind, value.values) for key, value in features.items()}


def _features(parts: Mapping[str, messages.FeatureParts]) -> dict[str, Feature]:
    return {key: _feature(part) for key, part in parts.items()}


def _feature(part: messages.FeatureParts) -> Feature:
    return Feature(part[0], tuple(part[1]))


def serialize_examples(columns: Mapping[str, Any]) -> Strings:
    """Write each row as an Example; keys sorted, lists packed.

    Columns are arrays [B, ...], `Strings`, `Sparse` or `Ragged`; inner axes are
    flattened. Floats become float32, integers and bools int64. A row of a sparse or
    ragged column that has no values is left out of its example.

    >>> records = serialize_examples({"x": np.array([1.0, 2.0]), "s": ["a", "b"]})
    >>> [len(record) for record in records]
    [29, 29]
    """
    if not columns:
        raise InputError("serialize_examples: there are no columns.")
    named = sorted((key.encode(), key, columns[key]) for key in columns)
    return encoding.encode_examples(
        [_flat_column(key, column) for _, key, column in named]
    )


def _flat_column(
    key: str, column: Any
) -> EncodedColumn:  # Any: what users call a column
    """Return the values one after the other, and where each row's begin."""
    if isinstance(column, Ragged):
        values = column.values
        inner_size = math.prod(values.shape[1:])
        splits = _outer_splits(key, column) * inner_size
        return EncodedColumn(key, values.reshape((-1,)), splits)
    column = as_column(column, key)
    if isinstance(column, Sparse):
        return EncodedColumn(key, column.values, column.starts)
    if not column.ndim:
        raise InputError(f"serialize_examples: {key!r} is a scalar; it needs rows.")
    splits = np.arange(len(column) + 1, dtype=np.int64) * math.prod(column.shape[1:])
    flat = column if column.ndim == 1 else column.reshape((-1,))
    return EncodedColumn(key, flat, splits)


def _outer_splits(key: str, column: Ragged) -> NDArray[np.int64]:
    """Return where the values of each row of the outermost level begin."""
    *outer, last = [np.asarray(each, np.int64) for each in column.row_splits]
    splits = last
    _check_splits(key, splits, len(column.values))
    for each in reversed(outer):
        _check_splits(key, each, len(splits) - 1)
        splits = splits[each]
    return splits


def _check_splits(key: str, splits: NDArray[np.int64], items: int) -> None:
    if splits.min(initial=0) < 0 or splits.max(initial=0) > items:
        raise InputError(
            f"serialize_examples: {key!r}: row splits must stay within the {items} "
            f"items of their level, got {splits.min()} to {splits.max()}."
        )
