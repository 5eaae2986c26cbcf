"""Requests of CSV records: how they are decoded, as data in a bundle.

    request = csv_request_of(receiver, decodings)      # from a receiver function
    request({"csv_row": ["39,Oslo"]})                  # {"age": …, "city": …}

A serving_input_receiver_fn of tf.estimator may compute its features, and often decodes
a CSV record. The calls of `ex.input.decode_csv` in it are recorded, and a feature is
recognized by its memory: it is a column that `decode_csv` returned, or a view of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from estimax.core.errors import BundleError, InputError, SpecError
from estimax.core.strings import Strings
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
            defaults = [_default(*given) for given in self.fields]
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


def _default(dtype: str, default: Any) -> Any:
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
        raise SpecError(_advice(f"the tensors {sorted(tensors)} are decoded"))
    decoding = made[0]
    found: dict[str, tuple[int, tuple[int, ...]]] = {}
    for feature, value in features.items():
        tail = tuple(value.shape[1:])
        places = [
            place
            for place, column in enumerate(decoding.columns)
            if tail in ((), (1,)) and _is_same(column, value)
        ]
        if not places:
            raise SpecError(_advice(f"the feature {feature!r} is computed"))
        found[feature] = places[0], tail
    return CsvRequest(name, found, decoding.fields, decoding.options)


def check_records(tensors: Mapping[str, Any]) -> None:
    """Raise SpecError unless the tensors of a receiver are one vector of text."""
    if len(tensors) != 1 or not isinstance(next(iter(tensors.values())), Strings):
        raise SpecError(_advice(f"the tensors {sorted(tensors)} are used"))


def _advice(what: str) -> str:
    return (
        f"ServingInputReceiver: {what} in a way that a bundle cannot repeat. The "
        "receiver_tensors must name the features themselves; or be one vector of CSV "
        "records, of which ex.input.decode_csv makes the features, or of serialized "
        "Examples, of which ex.input.parse_example makes them. For other computations "
        "use feature columns."
    )


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two columns have the same memory, whatever their shapes."""
    if isinstance(one, Strings) and isinstance(other, Strings):
        return one.data is other.data and bool(
            np.array_equal(one.offsets, other.offsets)
        )
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return False
    same_place = one.ctypes.data == other.ctypes.data
    return same_place and one.dtype == other.dtype and one.size == other.size
