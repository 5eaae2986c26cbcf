"""Requests that are text: CSV records and serialized tf.train.Examples, as data.

    request = csv_request_of(tensors, features, decodings)   # from a receiver function
    request(["39,Oslo"])                             # {"age": …, "city": …}

    record = specs_to_json(feature_spec)             # examples.json of a bundle
    parser = parser_from_json(record, inputs)
    parser([b"…", b"…"])                             # {"age": …, "city": …}

A serving_input_receiver_fn of tf.estimator may compute its features, and often decodes
a CSV record. The calls of `ex.input.decode_csv` in it are recorded, and a feature is
recognized by its memory: it is a column that `decode_csv` returned, or a view of one.

The modules that parse are imported when the first spec is used, so that a bundle
without one loads less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from estimax.core.errors import BundleError, InputError, SpecError
from estimax.core.parse_spec import STRING, FixedLenFeature, VarLenFeature
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.export.signature import TensorInfo
from estimax.storage import json_text

CSV_FILE: Final = "csv.json"


@dataclass(frozen=True)
class CsvRequest:
    """Decodes records into features.

    Args:
      name: The name of the records in a request.
      features: Feature name to the number of its column, and to the shape of a row: []
        or [1].
      fields: The dtype and the default of every column; None: it must not be missing.
      options: The other arguments of `ex.input.decode_csv`.
    """

    name: str
    features: Mapping[str, tuple[int, tuple[int, ...]]]
    fields: tuple[tuple[str, Any], ...]
    options: Mapping[str, Any]

    def __call__(self, records: Any) -> dict[str, Any]:
        """Return the features of a vector of records.

        Raises:
          BundleError: A record has the wrong number of fields, or a bad value.
        """
        from estimax.input.sources.csv_reader import decode_csv

        try:
            text = Strings.of(records)
            defaults = [_record_default(*given) for given in self.fields]
            columns = decode_csv(text.reshape((-1,)), defaults, **self.options)
        except InputError as error:
            raise BundleError(f"{self.name!r}: {error}") from error
        return {
            feature: columns[place].reshape((-1, *tail))
            for feature, (place, tail) in self.features.items()
        }

    def reading(self, features: Sequence[str]) -> CsvRequest:
        """Return the request with these features only."""
        kept = {name: self.features[name] for name in features}
        return CsvRequest(self.name, kept, self.fields, self.options)

    def to_json(self) -> dict[str, Any]:
        """Return the request as JSON values."""
        fields = [
            [dtype, default.decode() if isinstance(default, bytes) else default]
            for dtype, default in self.fields
        ]
        features = {
            n: [place, list(tail)] for n, (place, tail) in self.features.items()
        }
        return {
            "name": self.name,
            "features": features,
            "fields": fields,
            "options": dict(self.options),
        }

    @staticmethod
    def from_json(record: Any, features: Sequence[str]) -> CsvRequest:
        """Return the request that `to_json` described; check every field.

        It must have exactly these features.
        """
        about = json_text.mapping(record, CSV_FILE)
        fields = []
        for dtype, default in about["fields"]:
            if dtype not in ("int32", "int64", "float32", "float64", "string"):
                raise ValueError(f"{CSV_FILE}: unknown dtype {dtype!r}")
            expected = (str,) if dtype == "string" else (int, float)
            if default is not None and type(default) not in expected:
                raise ValueError(f"{CSV_FILE}: {default!r} is no {dtype}")
            fields.append((dtype, default))
        options = json_text.mapping(about["options"], "options")
        if options.keys() != {
            "field_delim",
            "use_quote_delim",
            "na_value",
            "select_cols",
        }:
            raise ValueError(f"{CSV_FILE}: unknown options {sorted(options)}")
        described = json_text.mapping(about["features"], "features")
        if described.keys() != set(features):
            raise ValueError(f"{CSV_FILE}: expected the features {sorted(features)}")
        found = {}
        for name, (place, tail) in described.items():
            if place not in range(len(fields)) or tail not in ([], [1]):
                raise ValueError(f"{CSV_FILE}: {name!r} has no column {place!r}")
            found[name] = (int(place), tuple(tail))
        return CsvRequest(
            json_text.text(about, "name"), found, tuple(fields), dict(options)
        )


def _record_default(dtype: str, default: Any) -> Any:
    """Return an entry of `record_defaults`."""
    if dtype == "string":
        return np.dtype(object) if default is None else default
    return np.dtype(dtype) if default is None else np.array([default], dtype)


def csv_request_of(
    tensors: Mapping[str, Any], features: Mapping[str, Any], decodings: Sequence[Any]
) -> CsvRequest:
    """Return how the features of a receiver follow from its tensors.

    Args:
      tensors: The `receiver_tensors`: one vector of text.
      features: The features.
      decodings: The calls of `decode_csv` in the receiver function.

    Raises:
      SpecError: They follow in another way.
    """
    check_records(tensors)
    ((name, records),) = tensors.items()
    made = [d for d in decodings if d.records.tolist() == records.tolist()]
    if not made:
        raise SpecError(_explain_receiver(f"the tensors {sorted(tensors)} are decoded"))
    decoding = made[0]
    found: dict[str, tuple[int, tuple[int, ...]]] = {}
    for feature, value in features.items():
        tail = tuple(value.shape[1:])
        places = [
            place
            for place, column in enumerate(decoding.columns)
            if tail in ((), (1,)) and _shares_memory(column, value)
        ]
        if not places:
            raise SpecError(_explain_receiver(f"the feature {feature!r} is computed"))
        found[feature] = places[0], tail
    return CsvRequest(name, found, decoding.fields, decoding.options)


def check_records(tensors: Mapping[str, Any]) -> None:
    """Raise SpecError unless the tensors of a receiver are one vector of text."""
    if len(tensors) != 1 or not isinstance(next(iter(tensors.values())), Strings):
        raise SpecError(_explain_receiver(f"the tensors {sorted(tensors)} are used"))


def _explain_receiver(what: str) -> str:
    return (
        f"ServingInputReceiver: {what} in a way that a bundle cannot repeat. The "
        "receiver_tensors must name the features themselves; or be one vector of CSV "
        "records, of which ex.input.decode_csv makes the features, or of serialized "
        "Examples, of which ex.input.parse_example makes them. For other computations "
        "use feature columns."
    )


def _shares_memory(one: Any, other: Any) -> bool:
    """Return whether two columns have the same memory, whatever their shapes."""
    if isinstance(one, Strings) and isinstance(other, Strings):
        return one.data is other.data and bool(
            np.array_equal(one.offsets, other.offsets)
        )
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return False
    same_place = one.ctypes.data == other.ctypes.data
    return same_place and one.dtype == other.dtype and one.size == other.size


EXAMPLES: Final = "examples"  # the name of the serialized Examples in a request
EXAMPLES_FILE: Final = "examples.json"

# Names that requests may use for the Examples, as clients of TensorFlow do.
EXAMPLES_NAMES: Final = (EXAMPLES, "inputs")

# Serialized Examples to features by name: arrays, Strings and Sparse values.
ParseExamples = Callable[[Any], dict[str, Any]]


def parser_of(features: Mapping[str, Any]) -> ParseExamples:
    """Return the function that parses requests of these features."""
    from estimax.input.examples.parsing import ExampleParser
    from estimax.input.streams.ragged import Ragged

    parser = ExampleParser(features)

    def parse(serialized: Any) -> dict[str, Any]:
        try:
            parsed = parser(serialized)
        except InputError as error:
            raise BundleError(f"{EXAMPLES!r}: {error}") from error
        return {
            name: column.to_sparse() if isinstance(column, Ragged) else column
            for name, column in parsed.items()
        }

    return parse


@dataclass(frozen=True)
class ExamplesRequest:
    """Requests of serialized Examples: their name, and how they are parsed."""

    name: str
    spec: Mapping[str, Any]


def examples_request_of(
    tensors: Mapping[str, Any], features: Mapping[str, Any], parsings: Sequence[Any]
) -> ExamplesRequest | None:
    """Return how the features of a receiver follow from Examples in its tensors.

    Args:
      tensors: The `receiver_tensors`: one vector of text.
      features: The features.
      parsings: The calls of `parse_example` in the receiver function.

    Returns:
      The request, or None if the tensors were not parsed as Examples.

    Raises:
      SpecError: A feature is not what `parse_example` returned under its name.
    """
    ((name, records),) = tensors.items()
    made = [p for p in parsings if p.records.tolist() == records.tolist()]
    if not made:
        return None
    parsing = made[0]
    for feature, value in features.items():
        if not _is_same_feature(parsing.parsed.get(feature), value):
            raise SpecError(
                f"ServingInputReceiver: the feature {feature!r} is computed or renamed "
                "after ex.input.parse_example, which a bundle cannot repeat. Use the "
                "keys of the feature spec as names, and feature columns for "
                "computations."
            )
    return ExamplesRequest(name, {n: parsing.features[n] for n in features})


def _is_same_feature(parsed: Any, value: Any) -> bool:
    """Return whether a feature is a parsed column as it is."""
    if isinstance(parsed, Sparse) and isinstance(value, Sparse):
        return _is_same_feature(parsed.values, value.values)
    if isinstance(parsed, Strings) and isinstance(value, Strings):
        return parsed.data is value.data
    if isinstance(parsed, np.ndarray) and isinstance(value, np.ndarray):
        return np.shares_memory(parsed, value) and parsed.shape == value.shape
    return parsed is value


def specs_of(inputs: Collection[TensorInfo]) -> dict[str, Any]:
    """Return how to parse features as a signature describes them."""
    return {spec.name: _spec_of(spec) for spec in inputs}


def _spec_of(spec: TensorInfo) -> FixedLenFeature | VarLenFeature:
    dtype = example_dtype(spec)
    if spec.kind == "sparse" or None in spec.tail:
        return VarLenFeature(dtype)
    shape = tuple(n or 0 for n in spec.tail)
    default: Any = None
    if dtype == STRING:
        default = [b""] * math.prod(shape)  # missing text is empty
    elif spec.default is not None:
        default = np.full(shape, spec.default).tolist()
    return FixedLenFeature(shape, dtype, default)


def example_dtype(spec: TensorInfo) -> str:
    """Return which of the three dtypes of an Example holds a feature."""
    if spec.dtype == STRING:
        return STRING
    return "int64" if np.dtype(spec.dtype).kind in "iub" else "float32"


def blank_request(features: Mapping[str, Any]) -> Strings:
    """Return one serialized Example that has every feature, with zeros and "?"."""
    from estimax.input.examples.messages import Example

    values: dict[str, Any] = {}
    for name, feature in features.items():
        values |= _blank(name, feature)
    return Strings.of([Example.of(values).serialize()])


def _blank(name: str, feature: Any) -> dict[str, Any]:
    """Return the keys of an Example that a feature reads, with one value or none."""
    from estimax.input.examples.specs import RaggedFeature, SparseFeature

    if isinstance(feature, FixedLenFeature):
        if feature.default_value is not None:
            return {}  # the default is a value that the model is meant to see
        size = int(np.prod(feature.shape, dtype=np.int64))
        return {name: _zeros(feature.dtype, size)}
    if isinstance(feature, VarLenFeature):
        return {name: _zeros(feature.dtype, 1)}
    if isinstance(feature, SparseFeature):
        keys = {key: _zeros("int64", 1) for key in feature.index_keys}
        return {**keys, feature.value_key: _zeros(feature.dtype, 1)}
    if isinstance(feature, RaggedFeature):
        return {  # splits begin with 0 even if there is no row
            part.key: np.zeros(1, np.int64)
            for part in feature.partitions
            if isinstance(part, RaggedFeature.RowSplits)
        }
    raise SpecError(
        f"feature {name!r}: a request cannot be parsed with {type(feature).__name__}, "
        "because its number of steps varies. Use VarLenFeature or RaggedFeature."
    )


def _zeros(dtype: str, size: int) -> Any:
    # Columns leave '' out, and then the example would not show that rows have words.
    return [b"?"] * size if dtype == STRING else np.zeros(size, dtype)


def specs_to_json(features: Mapping[str, Any]) -> dict[str, Any]:
    """Return a parse spec as JSON values."""
    return {name: _to_json(feature) for name, feature in features.items()}


def _to_json(feature: Any) -> dict[str, Any]:
    from estimax.input.examples.specs import RaggedFeature, SparseFeature

    record: dict[str, Any] = {"type": type(feature).__name__, "dtype": feature.dtype}
    if isinstance(feature, FixedLenFeature):
        record["shape"] = list(feature.shape)
        record["default_value"] = _default_to_json(feature)
    elif isinstance(feature, SparseFeature):
        record["index_keys"] = list(feature.index_keys)
        record["value_key"] = feature.value_key
        record["sizes"] = list(feature.sizes)
    elif isinstance(feature, RaggedFeature):
        record["value_key"] = feature.value_key
        record["partitions"] = [
            {"type": type(part).__name__, **vars(part)} for part in feature.partitions
        ]
    return record


def _default_to_json(feature: FixedLenFeature) -> list[Any] | None:
    default = feature.default_value
    if default is None:
        return None
    if feature.dtype != STRING:
        numbers: list[Any] = np.asarray(default, feature.dtype).reshape(-1).tolist()
        return numbers
    words = Strings.of([default] if isinstance(default, str | bytes) else default)
    # Bytes that are not UTF-8 survive as lone surrogates, which JSON escapes.
    return [w.decode("utf-8", "surrogateescape") for w in words.reshape((-1,)).tolist()]


def parser_from_json(record: Any, inputs: Collection[TensorInfo]) -> ParseExamples:
    """Return the parser that `specs_to_json` described; check every field.

    The spec must have exactly the features of the bundle, `inputs`. Their shapes bound
    what a parser may allocate.
    """
    records = json_text.mapping(record, EXAMPLES_FILE)
    by_name = {spec.name: spec for spec in inputs}
    if records.keys() != by_name.keys():
        raise ValueError(f"{EXAMPLES_FILE}: expected the features {sorted(by_name)}")
    features = {
        name: _from_json(json_text.mapping(value, name), by_name[name])
        for name, value in records.items()
    }
    return parser_of(features)


def _from_json(record: Mapping[str, Any], spec: TensorInfo) -> Any:
    kind, dtype = json_text.text(record, "type"), json_text.text(record, "dtype")
    if dtype not in ("float32", "int64", STRING):
        raise ValueError(f"{spec.name!r}: unknown dtype {dtype!r}")
    if kind == "FixedLenFeature":
        shape = json_text.dimensions(record, "shape")
        if shape != spec.tail:
            raise ValueError(
                f"{spec.name!r}: expected shape {spec.tail}, found {shape}"
            )
        return FixedLenFeature(shape, dtype, _default_from_json(record, dtype))
    if kind == "VarLenFeature":
        return VarLenFeature(dtype)
    if kind == "SparseFeature":
        return _sparse_from_json(record, dtype)
    if kind == "RaggedFeature":
        return _ragged_from_json(record, dtype)
    raise ValueError(f"{spec.name!r}: unknown type {kind!r}")


def _default_from_json(record: Mapping[str, Any], dtype: str) -> Any:
    values = record["default_value"]
    if values is None:
        return None
    kinds = (str,) if dtype == STRING else (int, float)
    if not isinstance(values, list) or not all(type(v) in kinds for v in values):
        raise ValueError(f"default_value: expected a list of {dtype} values")
    if dtype == STRING:
        return [value.encode("utf-8", "surrogateescape") for value in values]
    return np.array(values, dtype)


def _sparse_from_json(record: Mapping[str, Any], dtype: str) -> Any:
    from estimax.input.examples.specs import SparseFeature

    keys = record["index_keys"]
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ValueError("index_keys: expected a list of text")
    sizes = json_text.dimensions(record, "sizes")
    return SparseFeature(tuple(keys), json_text.text(record, "value_key"), dtype, sizes)


def _ragged_from_json(record: Mapping[str, Any], dtype: str) -> Any:
    from estimax.input.examples.specs import RaggedFeature, UniformRowLength

    keyed = ("RowSplits", "RowLengths", "RowStarts", "RowLimits", "ValueRowIds")
    partitions: list[Any] = []
    for given in record["partitions"]:
        part = json_text.mapping(given, "partition")
        kind = json_text.text(part, "type")
        if kind in keyed:
            made = getattr(RaggedFeature, kind)(json_text.text(part, "key"))
        elif kind == "UniformRowLength":
            made = UniformRowLength(json_text.whole(part, "length", below=2**31))
        else:
            raise ValueError(f"unknown partition {kind!r}")
        partitions.append(made)
    key = None if record["value_key"] is None else json_text.text(record, "value_key")
    return RaggedFeature(dtype, key, tuple(partitions))
