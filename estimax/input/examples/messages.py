"""tf.train.Example and SequenceExample messages: build, read and serialize them.

    record = Example.of({"age": 31.0, "tags": ["a", "b"]}).serialize()
    Example.parse(record).features["tags"].values        # (b"a", b"b")
    records = serialize_examples({"age": ages, "tags": tags})   # one Example per row

`Example` and `SequenceExample` are for single messages. For many rows at once,
`serialize_examples` is a thousand times as fast, and so is `parse_example` to read.

`BytesList`, `FloatList` and `Int64List` are TensorFlow's lists of values. They exist so
that programs which build and read Examples run as they are; `Feature.of(31)` is
shorter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.migration import Retired
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.formats import messages
from estimax.input.streams.columns import Ragged, as_column
from estimax.native import encoding
from estimax.native.encoding import EncodedColumn


@dataclass(frozen=True)
class BytesList:
    """The values of a feature of text or bytes, as `tf.train.BytesList`.

    Args:
      value: The values; text is encoded as UTF-8.

    Raises:
      InputError: A value is neither text nor bytes, or `value` is not a list.

    Example:
      >>> BytesList(value=["Ada"])
      BytesList(value=(b'Ada',))
    """

    value: Sequence[Any] = ()

    def __post_init__(self) -> None:
        given = _list_values(self, "text or bytes", str | bytes)
        encoded = (v.encode() if isinstance(v, str) else bytes(v) for v in given)
        object.__setattr__(self, "value", tuple(encoded))


@dataclass(frozen=True)
class FloatList:
    """The values of a feature of floats, as `tf.train.FloatList`.

    Args:
      value: The values, numbers. A message holds them as float32.

    Raises:
      InputError: A value is not a number, or `value` is not a list.

    Example:
      >>> FloatList(value=[1, 2.5])
      FloatList(value=(1.0, 2.5))
    """

    value: Sequence[Any] = ()

    def __post_init__(self) -> None:
        given = _list_values(self, "numbers", int | float | np.number | np.bool_)
        object.__setattr__(self, "value", tuple(float(v) for v in given))


@dataclass(frozen=True)
class Int64List:
    """The values of a feature of integers, as `tf.train.Int64List`.

    Args:
      value: The values, integers or booleans.

    Raises:
      InputError: A value is not an integer, or `value` is not a list.

    Example:
      >>> Int64List(value=[31])
      Int64List(value=(31,))
    """

    value: Sequence[Any] = ()

    def __post_init__(self) -> None:
        given = _list_values(self, "integers", int | np.integer | np.bool_)
        object.__setattr__(self, "value", tuple(int(v) for v in given))


def _list_values(made: Any, expected: str, kinds: Any) -> list[Any]:
    """Return the values as a list; raise InputError unless all are of these kinds."""
    name, value = type(made).__name__, made.value
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        raise InputError(
            f"{name}: expected a list of {expected}, got {value!r}. Write "
            f"{name}(value=[{value!r}])."
        )
    listed = list(value)
    for one in listed:
        if not isinstance(one, kinds):
            raise InputError(f"{name}: expected {expected}, got {one!r}.")
    return listed


# How much a repr shows: lines of an example, values of a line, characters of a value.
_MOST_LINES, _MOST_VALUES, _MOST_CHARACTERS = 3, 6, 40


_LISTS: dict[str, type[Any]] = {
    "bytes_list": BytesList,
    "float_list": FloatList,
    "int64_list": Int64List,
}


@dataclass(frozen=True, repr=False, init=False)
class Feature:
    """The values of one feature of an Example, all of one kind.

    Use `Feature.of` to tell the kind from the values. Programs written for
    `tf.train.Feature` name one of the lists.

    Args:
      kind: "bytes_list", "float_list" or "int64_list"; None for a feature that is
        present and has no list.
      values: Bytes, floats or integers.
      bytes_list: The values as a `BytesList`, in place of kind and values.
      float_list: The values as a `FloatList`.
      int64_list: The values as an `Int64List`.

    Raises:
      InputError: `kind` is not one of these, or more than one list is given.

    Example:
      >>> Feature.of([1, 2])
      Feature(int64_list [1, 2])
      >>> Feature(int64_list=Int64List(value=[1, 2])).int64_list.value
      (1, 2)
    """

    kind: str | None
    values: tuple[Any, ...]

    def __init__(
        self,
        kind: str | None = None,
        values: Sequence[Any] = (),
        *,
        bytes_list: BytesList | None = None,
        float_list: FloatList | None = None,
        int64_list: Int64List | None = None,
    ) -> None:
        lists: dict[str, Any] = {
            "bytes_list": bytes_list,
            "float_list": float_list,
            "int64_list": int64_list,
        }
        given: dict[str, Any] = {
            name: made for name, made in lists.items() if made is not None
        }
        if len(given) + (kind is not None) > 1:
            raise InputError(
                "Feature: a feature has one of bytes_list, float_list and int64_list, "
                f"got {', '.join([*given, *([] if kind is None else ['kind'])])}."
            )
        for name, made in given.items():
            if not isinstance(made, _LISTS[name]):
                expected = _LISTS[name].__name__
                raise InputError(
                    f"Feature: {name} must be of type {expected}, got "
                    f"{type(made).__name__}. Write {name}={expected}(value={made!r})."
                )
            kind, values = name, made.value
        if kind is not None and kind not in messages.LIST_KINDS:
            kinds = ", ".join(messages.LIST_KINDS)
            raise InputError(
                f"Feature: kind must be None or one of {kinds}, got {kind!r}."
            )
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "values", tuple(values))

    @property
    def bytes_list(self) -> BytesList:
        """The values, if they are bytes; else an empty list."""
        return BytesList(self.values if self.kind == "bytes_list" else ())

    @property
    def float_list(self) -> FloatList:
        """The values, if they are floats; else an empty list."""
        return FloatList(self.values if self.kind == "float_list" else ())

    @property
    def int64_list(self) -> Int64List:
        """The values, if they are integers; else an empty list."""
        return Int64List(self.values if self.kind == "int64_list" else ())

    def __repr__(self) -> str:
        return f"Feature({_feature_text(self)})"

    @staticmethod
    def of(values: Any) -> Feature:  # Any: a scalar or array of numbers or text
        """Return the feature of some values, whose type sets the kind.

        Args:
          values: A scalar, a list or an array. Text and bytes make a bytes_list,
            floats a float_list, integers and bools an int64_list. A `Feature` is
            returned as it is.

        Raises:
          InputError: Text and numbers are mixed, or a value is neither.
        """
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
            f"Feature: expected text only or numbers only, got {listed!r}."
        )


class Features(dict[str, Feature]):
    """The features of an Example by key: a dict, with the field of `tf.train.Features`.

    Args:
      feature: `Feature` values by key.

    Raises:
      TypeError: A value is not a `Feature`.

    Example:
      >>> Features(feature={"age": Feature.of(31)}).feature["age"].values
      (31,)
    """

    def __init__(self, feature: Mapping[str, Feature] | None = None) -> None:
        super().__init__(feature or {})
        for key, value in self.items():
            _check_feature(value, f"Features: {key!r}")

    @property
    def feature(self) -> Features:
        """The features by key, this dict itself."""
        return self


class FeatureList(tuple[Feature, ...]):
    """The steps of a list of a SequenceExample, with the field of TensorFlow.

    Args:
      feature: One `Feature` for each step.

    Raises:
      TypeError: A step is not a `Feature`.

    Example:
      >>> len(FeatureList(feature=[Feature.of(1), Feature.of(2)]).feature)
      2
    """

    __slots__ = ()

    def __new__(cls, feature: Sequence[Feature] = ()) -> FeatureList:
        """Check and keep the steps."""
        for step in feature:
            _check_feature(step, "FeatureList: a step")
        return super().__new__(cls, feature)

    @property
    def feature(self) -> FeatureList:
        """The steps, this tuple itself."""
        return self


class FeatureLists(dict[str, FeatureList]):
    """The lists of a SequenceExample by key: a dict, with the field of TensorFlow.

    Args:
      feature_list: By key a `FeatureList`, or one `Feature` for each step.

    Example:
      >>> lists = FeatureLists(feature_list={"n": [Feature.of(1), Feature.of(2)]})
      >>> lists.feature_list["n"].feature[1].values
      (2,)
    """

    def __init__(
        self, feature_list: Mapping[str, Sequence[Feature]] | None = None
    ) -> None:
        super().__init__(
            {key: FeatureList(steps) for key, steps in (feature_list or {}).items()}
        )

    @property
    def feature_list(self) -> FeatureLists:
        """The lists by key, this dict itself."""
        return self


def _check_feature(value: Any, where: str) -> None:
    if not isinstance(value, Feature):
        raise TypeError(
            f"{where} must be a Feature, got {type(value).__name__}. Write "
            "ex.input.Feature.of(values), or ex.input.Example.of(…) for all at once."
        )


@dataclass(frozen=True, repr=False)
class Example:
    """A tf.train.Example: named features, each with any number of values.

    Use it to write or inspect single examples. For whole columns, use
    `serialize_examples` and `parse_example`.

    Args:
      features: `Feature` values by key. `Example.of` builds them from plain values.

    Example:
      >>> record = Example.of({"age": 31, "tags": ["a", "b"]}).serialize()
      >>> Example.parse(record)
      Example(
        age: int64_list [31]
        tags: bytes_list [b'a', b'b']
      )
    """

    features: Features = field(default_factory=Features)

    ParseFromString = Retired(
        "write example = ex.input.Example.FromString(record), which returns the Example"
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", Features(self.features))

    @staticmethod
    def of(values: Mapping[str, Any]) -> Example:
        """Build an Example from plain values.

        Args:
          values: By key a scalar, a list or an array; see `Feature.of`.
        """
        made = {key: Feature.of(value) for key, value in values.items()}
        return Example(Features(made))

    @staticmethod
    def parse(data: bytes) -> Example:
        """Read a serialized Example with all its features.

        Args:
          data: The bytes of one message.

        Raises:
          InputError: The bytes are not an Example message.
        """
        return Example(_features(messages.decode_example(data)))

    def serialize(self) -> bytes:
        """Return the bytes of the message. Equal features give equal bytes."""
        return messages.encode_example(_parts(self.features))

    FromString = parse  # TensorFlow's names
    SerializeToString = serialize

    def __repr__(self) -> str:
        return _format_message("Example", _feature_lines(self.features))


@dataclass(frozen=True, repr=False)
class SequenceExample:
    """A tf.train.SequenceExample: a context, and lists with one feature per step.

    Use it to write or inspect single sequences; `parse_sequence_example` reads batches.

    Args:
      context: The features of the whole sequence, by key.
      feature_lists: By key, one `Feature` for each step.

    Example:
      >>> record = SequenceExample.of({"user": "ann"}, {"n": [[1], [2, 3]]})
      >>> record.feature_lists["n"][1].values
      (2, 3)
      >>> record
      SequenceExample(
        context: user: bytes_list [b'ann']
        feature_lists: n: 2 steps
      )
    """

    context: Features = field(default_factory=Features)
    feature_lists: FeatureLists = field(default_factory=FeatureLists)

    ParseFromString = Retired(
        "write ex.input.SequenceExample.FromString(record), which returns the example"
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "context", Features(self.context))
        object.__setattr__(self, "feature_lists", FeatureLists(self.feature_lists))

    @staticmethod
    def of(
        context: Mapping[str, Any], lists: Mapping[str, Sequence[Any]]
    ) -> SequenceExample:
        """Build a SequenceExample from plain values.

        Args:
          context: By key a scalar, a list or an array; see `Feature.of`.
          lists: By key a list with the values of each step.
        """
        return SequenceExample(
            Example.of(context).features,
            FeatureLists(
                {
                    key: [Feature.of(step) for step in steps]
                    for key, steps in lists.items()
                }
            ),
        )

    @staticmethod
    def parse(data: bytes) -> SequenceExample:
        """Read a serialized SequenceExample with its context and all its lists.

        Args:
          data: The bytes of one message.

        Raises:
          InputError: The bytes are not a SequenceExample message.
        """
        context, lists = messages.decode_sequence_example(data)
        steps = {k: [_feature(step) for step in v] for k, v in lists.items()}
        return SequenceExample(_features(context), FeatureLists(steps))

    def serialize(self) -> bytes:
        """Return the bytes of the message. Equal features give equal bytes."""
        lists = {
            key: [(step.kind, step.values) for step in steps]
            for key, steps in self.feature_lists.items()
        }
        return messages.encode_sequence_example(_parts(self.context), lists)

    FromString = parse  # TensorFlow's names
    SerializeToString = serialize

    def __repr__(self) -> str:
        context = [f"context: {line}" for line in _feature_lines(self.context)]
        lists = [
            f"feature_lists: {key}: {len(steps)} steps"
            for key, steps in self.feature_lists.items()
        ]
        return _format_message("SequenceExample", [*context, *lists])


def _flat(values: Any) -> list[Any]:
    if isinstance(values, str | bytes):
        return [values]
    listed = np.asarray(values, object).reshape(-1).tolist()
    return list(listed)


def _feature_lines(features: Mapping[str, Feature]) -> list[str]:
    """Return a line for each feature: key, kind and the first values."""
    return [f"{key}: {_feature_text(feature)}" for key, feature in features.items()]


def _feature_text(feature: Feature) -> str:
    """Return the kind and the first values, each cut to `_MOST_CHARACTERS`."""
    shown = [repr(value) for value in feature.values[:_MOST_VALUES]]
    shown = [
        v if len(v) <= _MOST_CHARACTERS else v[:_MOST_CHARACTERS] + "…" for v in shown
    ]
    more = len(feature.values) - _MOST_VALUES
    if more > 0:
        shown.append(f"… {more} more")
    return f"{feature.kind} [{', '.join(shown)}]"


def _format_message(name: str, lines: list[str]) -> str:
    """Return `name(…)` with at most `_MOST_LINES` of the lines."""
    if not lines:
        return f"{name}()"
    shown = lines[:_MOST_LINES]
    if len(lines) > _MOST_LINES:
        shown.append(f"… {len(lines) - _MOST_LINES} more")
    return "\n".join([f"{name}(", *(f"  {line}" for line in shown), ")"])


def _parts(features: Mapping[str, Feature]) -> dict[str, messages.FeatureParts]:
    return {key: (value.kind, value.values) for key, value in features.items()}


def _features(parts: Mapping[str, messages.FeatureParts]) -> Features:
    return Features({key: _feature(part) for key, part in parts.items()})


def _feature(part: messages.FeatureParts) -> Feature:
    return Feature(part[0], tuple(part[1]))


def serialize_examples(columns: Mapping[str, Any]) -> Strings:
    """Serialize every row of some columns as an Example, with compiled code.

    Use it to write TFRecord files. Keys are sorted and numbers packed, so equal rows
    give equal bytes.

    Args:
      columns: By key an array [B, ...], `Strings`, `Sparse` or `Ragged`, all with the
        same number of rows. Inner axes are flattened. Floats become float32, integers
        and bools int64. If a row of a sparse or ragged column has no values, its
        Example lacks that key.

    Returns:
      `Strings` [B], one serialized Example per row.

    Raises:
      InputError: There are no columns, a column is a scalar, or row splits are out of
        range.

    Example:
      >>> records = serialize_examples({"x": np.array([1.0, 2.0]), "s": ["a", "b"]})
      >>> Example.parse(records[1])
      Example(
        s: bytes_list [b'b']
        x: float_list [2.0]
      )
    """
    if not columns:
        raise InputError("serialize_examples: expected at least one column, got none.")
    named = sorted((key.encode(), key, columns[key]) for key in columns)
    return encoding.encode_examples(
        [_flat_column(key, column) for _, key, column in named]
    )


def _flat_column(key: str, column: Any) -> EncodedColumn:  # Any: what users pass
    """Return the values of all rows in one array, and where each row begins in it."""
    if isinstance(column, Ragged):
        values = column.values
        inner_size = math.prod(values.shape[1:])
        splits = _outer_splits(key, column) * inner_size
        return EncodedColumn(key, values.reshape((-1,)), splits)
    column = as_column(column, key)
    if isinstance(column, Sparse):
        return EncodedColumn(key, column.values, column.starts)
    if not column.ndim:
        raise InputError(f"serialize_examples: {key!r} is a scalar; expected rows.")
    splits = np.arange(len(column) + 1, dtype=np.int64) * math.prod(column.shape[1:])
    flat = column if column.ndim == 1 else column.reshape((-1,))
    return EncodedColumn(key, flat, splits)


def _outer_splits(key: str, column: Ragged) -> NDArray[np.int64]:
    """Return where each row of the outermost level begins in the values."""
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
