"""Rows and answers that a bundle carries: its self-test and its warm-up requests.

    record = selftest_to_json(example, expected)     # by the exporter's own function
    example, expected = selftest_from_json(record)
    check_answers("predict", expected["predict"], bundle.predict(example))

    columns = request_columns(signature.inputs, rows)
    write_requests(folder / WARM_UP_FILE, WarmUp(columns, answers))

The expected answers are computed by the original function, not by the export. A passed
self-test therefore shows that transforms, weights and program of the bundle match the
model. Warm-up requests are in the file that TensorFlow Serving reads. A server sends
them to a version before it answers anyone, and compares the answers with the recorded
ones. Unlike the self-test they take the way of a real request, with the names and
dtypes that a client sends.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import BundleError
from estimax.core.explanation import BASELINE, OUTPUT, is_explanation
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings, is_text
from estimax.export.host_plan import origin_from_json
from estimax.export.signature import STRING, TensorInfo, check_dtype, input_name
from estimax.formats.records import write_records
from estimax.formats.saved_models import DTYPES, encode_predict_log
from estimax.staging import host_plan as plans
from estimax.staging.trace import Origin
from estimax.storage import json_text

MOST_ROWS = 8
_MOST_VALUES = 20_000  # numbers of dense features, so that images stay small
# Not exact, because the order of sums depends on the batch size.
RELATIVE, ABSOLUTE = 1e-4, 1e-5
# For other platforms than a CPU, which multiply with fewer bits.
_LOOSE = 2e-2

AnswersBySignature = dict[str, dict[str, NDArray[Any]]]  # signature -> output -> array


def first_rows(batch: plans.RawBatch) -> dict[Origin, Any]:
    """Return the first rows of a batch: at most 8 rows and about 20,000 numbers."""
    arrays = [value for value in batch.values() if not isinstance(value, Sparse)]
    per_row = sum(int(np.prod(a.shape[1:], dtype=np.int64)) for a in arrays)
    rows = min(MOST_ROWS, max(1, _MOST_VALUES // max(per_row, 1)))
    return head(batch, rows)


def head(batch: plans.RawBatch, rows: int) -> dict[Origin, Any]:
    """Return the first rows of a batch."""
    return {origin: _head(value, rows) for origin, value in batch.items()}


def selftest_to_json(
    example: plans.RawBatch, answers: AnswersBySignature
) -> dict[str, Any]:
    """Return the test as JSON values."""
    return {
        "example": [
            {"part": o.part, "key": o.key, **_raw_to_json(value)}
            for o, value in example.items()
        ],
        "answers": {
            signature: {name: _raw_to_json(array) for name, array in outputs.items()}
            for signature, outputs in answers.items()
        },
    }


def selftest_from_json(
    record: Mapping[str, Any],
) -> tuple[dict[Origin, Any], AnswersBySignature]:
    """Return what `selftest_to_json` described; raise BundleError if invalid."""
    try:
        example = {origin_from_json(r): _raw_from_json(r) for r in record["example"]}
        answers = {
            signature: {name: np.asarray(_raw_from_json(r)) for name, r in o.items()}
            for signature, o in record["answers"].items()
        }
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise BundleError(
            "the example rows cannot be read: expected features and answers, found "
            f"other content ({type(error).__name__}: {error})."
        ) from error
    return example, answers


def check_answers(
    signature: str,
    expected: Mapping[str, NDArray[Any]],
    found: Mapping[str, NDArray[Any]],
    *,
    platform: str = "cpu",
) -> None:
    """Raise BundleError if answers differ; floats may differ by rounding.

    On other platforms than a CPU, integers and text are not compared: rounding may
    change which class wins a tie.
    """
    exact = platform == "cpu"
    relative, absolute = (RELATIVE, ABSOLUTE) if exact else (_LOOSE, _LOOSE)
    if is_explanation(expected):
        absolute = max(absolute, _rounding_of_parts(expected))
    for name, wanted in expected.items():
        got = found[name]
        if wanted.shape == got.shape and wanted.dtype.kind in "fcV":
            a, b = (x.astype(np.float64) for x in (wanted, got))
            same = np.allclose(a, b, relative, absolute, equal_nan=True)
        else:
            same = wanted.shape == got.shape and (
                not exact or bool(np.array_equal(wanted, got))
            )
        if not same:
            raise BundleError(
                f"self-test of signature {signature!r}, output {name!r}: expected "
                f"{_format_array(wanted)}, found {_format_array(got)}. The bundle does "
                f"not do what the exported model did (on {platform})."
            )


def _rounding_of_parts(answers: Mapping[str, NDArray[Any]]) -> float:
    """Return by how much rounding may change the parts of features.

    The gradient of a network with relu jumps. Rounding may decide on which side of a
    jump a point of the path is, and a part then differs by more than the last bits.
    """
    output, baseline = (np.nan_to_num(answers[name]) for name in (OUTPUT, BASELINE))
    parts = np.abs(output - baseline).max(initial=0.0)
    return float(_LOOSE * parts + RELATIVE * np.abs(output).max(initial=0.0))


def _head(value: Any, rows: int) -> Any:
    if not isinstance(value, Sparse):
        return value[:rows]
    kept = np.flatnonzero(np.asarray(value.indices)[:, 0] < rows)
    shape = (min(rows, len(value)), *value.dense_shape[1:])
    return Sparse(np.asarray(value.indices)[kept], value.values[kept], shape)


def _raw_to_json(value: Any) -> dict[str, Any]:
    if isinstance(value, Sparse):
        return {
            "form": "sparse",
            "indices": np.asarray(value.indices).tolist(),
            "dense_shape": [int(n) for n in value.dense_shape],
            "values": _raw_to_json(value.values),
        }
    if is_text(value):
        text = Strings.of(value)
        words = [_word_to_json(word) for word in text.tolist()]
        return {"form": "text", "shape": list(text.shape), "values": words}
    wide = value.astype(np.float64) if value.dtype.kind == "V" else value
    record = {"form": "array", "dtype": value.dtype.name, "shape": list(value.shape)}
    return {**record, "values": wide.reshape(-1).tolist()}


def _raw_from_json(record: Mapping[str, Any]) -> Any:
    if record["form"] == "sparse":
        indices = np.array(record["indices"], np.int64)
        indices = indices.reshape((-1, len(record["dense_shape"])))
        values = _raw_from_json(record["values"])
        shape = json_text.dimensions(record, "dense_shape")
        if len(indices) != len(values) or np.any((indices < 0) | (indices >= shape)):
            raise ValueError(f"sparse indices do not fit the shape {list(shape)}")
        return Sparse(indices, values, shape)
    shape = json_text.dimensions(record, "shape")
    if record["form"] == "text":
        words = np.empty(len(record["values"]), object)
        words[:] = [_word_from_json(word) for word in record["values"]]
        return Strings.of(words).reshape(shape)
    if record["form"] != "array":
        raise ValueError(f"unknown form {record['form']!r}")
    dtype = np.dtype(check_dtype(record["dtype"]))
    return np.array(record["values"], dtype).reshape(shape)


def _word_to_json(word: bytes) -> Any:  # str, or {"b64": str} if it is not UTF-8
    try:
        return word.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(word).decode()}


def _word_from_json(word: Any) -> bytes:
    return base64.b64decode(word["b64"]) if isinstance(word, dict) else word.encode()


def _format_array(array: NDArray[Any]) -> str:
    values = ", ".join(str(v) for v in array.reshape(-1)[:4].tolist())
    return f"{list(array.shape)} of {values}{', …' if array.size > 4 else ''}"


# The path in a bundle at which TensorFlow Serving looks for warm-up requests.
WARM_UP_FILE: Final = "assets.extra/tf_serving_warmup_requests"
_FILLS: Final = {"S": b"", "i": -1}  # what a request pads lists with


@dataclass(frozen=True, eq=False)
class WarmUp:
    """A request, and what each signature answers to it."""

    columns: Mapping[str, NDArray[Any]]
    answers: AnswersBySignature


def request_columns(
    inputs: Sequence[TensorInfo], rows: plans.RawBatch
) -> dict[str, NDArray[Any]] | None:
    """Return rows as the arrays of a request; None if arrays cannot hold them.

    Lists are padded with '' or -1, which a model leaves out. Floats of different
    numbers in a row have no such value.
    """
    by_name = {input_name(origin): value for origin, value in rows.items()}
    columns = {}
    for spec in inputs:
        value = by_name[spec.name]
        dense = _rectangle(value) if isinstance(value, Sparse) else value
        if dense is None:
            return None
        if spec.dtype == STRING:
            column = np.asarray(dense).astype(object)
        else:
            column = np.asarray(dense).astype(spec.dtype, copy=False)
            if column.dtype not in DTYPES.values():
                return None
        columns[spec.name] = column
    return columns


def _rectangle(value: Sparse) -> NDArray[Any] | None:
    flat = np.asarray(value.values)
    if isinstance(value.values, Strings):
        flat, kind = flat.astype(object), "S"
    else:
        kind = flat.dtype.kind
    widths = value.indices[:, 1:].max(axis=0, initial=-1) + 1
    shape = (len(value), *widths.tolist())
    if len(flat) < np.prod(shape) and kind not in _FILLS:
        return None
    filled = np.full(shape, _FILLS.get(kind, 0), flat.dtype)
    filled[tuple(value.indices.T)] = flat
    return filled


def write_requests(path: Path, warm_up: WarmUp) -> None:
    """Write one request for each signature, with its answer.

    An output that TensorFlow has no dtype for is left out of the answer.
    """
    path.parent.mkdir(exist_ok=True)
    known = (*DTYPES.values(), np.dtype(object))
    write_records(
        path,
        [
            encode_predict_log(
                signature,
                warm_up.columns,
                {name: array for name, array in found.items() if array.dtype in known},
            )
            for signature, found in warm_up.answers.items()
        ],
    )
