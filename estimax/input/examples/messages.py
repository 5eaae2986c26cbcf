"""Single examples: build one by hand, look into one, or write it to a file.

    record = Example.of({"age": 31.0, "tags": ["a", "b"]}).serialize()
    Example.parse(record).features["tags"].values        # (b"a", b"b")

For many rows at once, `serialize_examples` is a thousand times as fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from estimax.core.errors import InputError
from estimax.wire import protos


@dataclass(frozen=True)
class Feature:
    """Values of one kind: bytes_list, float_list, int64_list, or None without any.

    >>> Feature.of([1, 2])
    Feature(kind='int64_list', values=(1, 2))
    """

    kind: str | None = None
    values: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in protos.KINDS:
            raise InputError(
                f"Feature: kind must be None or one of {', '.join(protos.KINDS)}, "
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
        return Example(_features(protos.decode_example(data)))

    def serialize(self) -> bytes:
        """The bytes, always the same for the same features."""
        return protos.encode_example(_parts(self.features))


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
        context, lists = protos.decode_sequence_example(data)
        steps = {k: tuple(_feature(step) for step in v) for k, v in lists.items()}
        return SequenceExample(_features(context), steps)

    def serialize(self) -> bytes:
        """The bytes, always the same for the same features."""
        lists = {
            key: [(step.kind, step.values) for step in steps]
            for key, steps in self.feature_lists.items()
        }
        return protos.encode_sequence_example(_parts(self.context), lists)


def _flat(values: Any) -> list[Any]:
    if isinstance(values, str | bytes):
        return [values]
    listed = np.asarray(values, object).reshape(-1).tolist()
    return list(listed)


def _parts(features: Mapping[str, Feature]) -> dict[str, protos.FeatureParts]:
    return {key: (value.kind, value.values) for key, value in features.items()}


def _features(parts: Mapping[str, protos.FeatureParts]) -> dict[str, Feature]:
    return {key: _feature(part) for key, part in parts.items()}


def _feature(part: protos.FeatureParts) -> Feature:
    return Feature(part[0], tuple(part[1]))
