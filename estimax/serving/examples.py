"""Serialized tf.Examples as the features of a request, and back from JSON.

    columns = columns_from_examples(bundle, [b"...", b"..."])
    serialized = example_from_json({"age": 31.0, "city": "Oslo"})

`Classify` and `Regress` always carry Examples, and older clients of Estimator models
send them to `Predict` too, as one string tensor called "inputs" or "examples".
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from estimax.core.device_dtypes import as_float32
from estimax.core.errors import BundleError, InputError
from estimax.core.strings import Strings
from estimax.export import Bundle, TensorInfo
from estimax.export.requests import is_filled
from estimax.export.signature import DEFAULT_SIGNATURE, STRING
from estimax.export.text_requests import blank_request, example_dtype, specs_of
from estimax.formats.messages import FeatureParts, decode_example, encode_example
from estimax.native import loading
from estimax.native.examples import example_kernels
from estimax.serving.status import invalid

# The names under which a string tensor of Examples is accepted by Predict.
EXAMPLE_NAMES: Final = ("inputs", "examples")


def columns_from_examples(
    bundle: Bundle, serialized: Sequence[bytes]
) -> dict[str, Any]:
    """Parse Examples into one column for each feature of a bundle.

    The export may say how Examples are parsed; otherwise each feature is parsed as the
    signature describes it. Integers are accepted for a float feature: clients that make
    Examples from JSON cannot tell 30 from 30.0. A feature that is absent or empty is a
    missing value, where the model fills it.

    Raises:
      ServingError: An Example is damaged, or lacks features or has one in another kind.
    """
    specs = bundle.signature(DEFAULT_SIGNATURE).inputs
    try:
        try:
            # The compiled parser first. Only what it refuses is decoded in Python,
            # slowly.
            parsed = bundle.parse_examples(Strings.of(list(serialized)))
        except BundleError as error:
            repaired = [
                _repair_example(data, specs, row, error)
                for row, data in enumerate(serialized)
            ]
            parsed = bundle.parse_examples(Strings.of(repaired))
    except (InputError, BundleError) as error:
        raise invalid(str(error)) from None
    return {spec.name: _as_declared(spec, parsed[spec.name]) for spec in specs}


def examples_from_proto(given: Any) -> list[bytes]:
    """Return the serialized Examples of an Input, from `protos.request_message`."""
    kind = given.WhichOneof("kind")
    if kind == "example_list":
        return list(given.example_list.examples)
    if kind == "example_list_with_context":
        lists = given.example_list_with_context
        # The later of two features with one name wins, so the example overrides
        # the context.
        return [lists.context + example for example in lists.examples]
    return []


def is_parser_loaded() -> bool:
    """Return whether Examples can be parsed without compiling the parser first."""
    return loading.is_loaded("examples") or not loading.is_on()


def compile_parser(bundle: Bundle) -> None:
    """Compile the parser of Examples, which takes seconds, before the first request."""
    example_kernels(waits=True)
    inputs = bundle.signature(DEFAULT_SIGNATURE).inputs
    # The parser is compiled even if it refuses these features.
    with contextlib.suppress(BundleError):
        bundle.parse_examples(blank_request(specs_of(inputs)))


def example_from_json(features: Mapping[str, Any]) -> bytes:
    """Return the serialized Example of a JSON object, as TensorFlow Serving makes it.

    An integer or a boolean becomes an int64, a number with a fraction a float, and a
    string or `{"b64": ...}` bytes. A list holds several of one kind, and null none.

    Raises:
      ServingError: A value is of no such kind, or a list mixes kinds.
    """
    return encode_example({name: _parts_of(name, v) for name, v in features.items()})


def decode_base64(text: Any, where: str) -> bytes:
    """Return the bytes of base64 text."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise invalid(f"{where}: expected base64 text, found {error}.") from None


def is_base64(value: Any) -> bool:
    """Return whether a JSON value is `{"b64": text}`."""
    return isinstance(value, dict) and value.keys() == {"b64"}


def _as_declared(spec: TensorInfo, column: Any) -> Any:
    if spec.dtype == "bool" and isinstance(column, np.ndarray):
        return column.astype(bool)
    return column


def _repair_example(
    data: bytes, specs: Sequence[TensorInfo], row: int, error: BundleError
) -> bytes:
    """Return an Example with floats where the model wants floats, and with defaults.

    Raises:
      BundleError: `error` if the Example is damaged, or one that names all features
        that it lacks and the model does not fill.
    """
    try:
        features = decode_example(bytes(data))
    except (InputError, ValueError):
        raise error from None
    missing = []
    for spec in specs:
        kind, values = features.get(spec.name, (None, ()))
        # TensorFlow refuses it; here the declared dtype is known.
        if kind == "int64_list" and example_dtype(spec) == "float32":
            features[spec.name] = "float_list", [float(value) for value in values]
        if len(values) or spec.kind == "sparse" or None in spec.tail:
            continue
        if is_filled(spec):
            features[spec.name] = _default(spec)
        else:
            missing.append(spec.name)
    if missing:
        word, are = ("feature", "is") if len(missing) == 1 else ("features", "are")
        raise BundleError(
            f"example {row}: {word} {', '.join(map(repr, missing))} {are} missing or "
            f"empty, and the model does not fill {'it' if are == 'is' else 'them'}; "
            f"found {', '.join(features) or 'no feature'}."
        )
    return encode_example(features)


def _default(spec: TensorInfo) -> FeatureParts:
    """Return the values of a feature that an Example lacks."""
    tail = [n or 0 for n in spec.tail]
    if spec.dtype == STRING:
        return "bytes_list", [b""] * math.prod(tail)
    every = np.broadcast_to(spec.default, tail).reshape(-1).tolist()
    kind = "float_list" if example_dtype(spec) == "float32" else "int64_list"
    return kind, every


def _parts_of(name: str, value: Any) -> FeatureParts:
    if value is None:
        return None, []
    values = value if isinstance(value, list) else [value]
    kinds = {_kind_of(name, v) for v in values}
    if len(kinds) > 1:
        raise invalid(
            f"feature {name!r}: expected values of one kind, found "
            f"{' and '.join(sorted(kinds))}."
        )
    kind = kinds.pop() if kinds else None
    if kind == "bytes_list":
        return kind, [_as_bytes(name, v) for v in values]
    if kind == "float_list":  # beyond float32 is infinite, as in TensorFlow
        return kind, as_float32(values).tolist()
    return kind, values


def _kind_of(name: str, value: Any) -> str:
    if isinstance(value, str) or is_base64(value):
        return "bytes_list"
    if isinstance(value, float):
        return "float_list"
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return "int64_list"
    shown = "null" if value is None else type(value).__name__
    raise invalid(
        f"feature {name!r}: expected a number, a string, or a list of one of them, "
        f"found {shown}."
    )


def _as_bytes(name: str, value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return decode_base64(value["b64"], f"feature {name!r}")
