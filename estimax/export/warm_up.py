"""Warm-up requests of a bundle, in the file that TensorFlow Serving reads.

    columns = request_columns(signature.inputs, rows)
    write_requests(folder / WARM_UP_FILE, WarmUp(columns, answers))

A server sends them to a version before it answers anyone, and compares the answers with
the recorded ones. Unlike the self-test they take the way of a real request, with names
and dtypes that a client sends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.export.selftest import Answers
from estimax.export.signature import STRING, TensorInfo, input_name
from estimax.formats.records import write_records
from estimax.formats.saved_models import DTYPES, encode_predict_log
from estimax.staging import host_plan as plans

# The path in a bundle at which TensorFlow Serving looks for warm-up requests.
WARM_UP_FILE: Final = "assets.extra/tf_serving_warmup_requests"
_FILLS: Final = {"S": b"", "i": -1}  # what a request pads lists with


@dataclass(frozen=True, eq=False)
class WarmUp:
    """A request, and what each signature answers to it."""

    columns: Mapping[str, NDArray[Any]]
    answers: Answers


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
