"""Write the requests and answers of TensorFlow Serving: PredictionLog messages.

    record = encode_predict_log("predict", {"age": ages}, {"y": answers})

They are encoded by hand, because an export must not need the protobuf library, which
only `estimax serve` has. Numbers are written as bytes (`tensor_content`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from estimax.native.reference.protos import encode_varint, field

# The numbers of dtypes in TensorFlow. Types that are not numbers, such as strings, are
# left out.
DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.float64),
    3: np.dtype(np.int32),
    4: np.dtype(np.uint8),
    5: np.dtype(np.int16),
    6: np.dtype(np.int8),
    8: np.dtype(np.complex64),
    9: np.dtype(np.int64),
    10: np.dtype(np.bool_),
    14: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype(np.uint16),
    19: np.dtype(np.float16),
    22: np.dtype(np.uint32),
    23: np.dtype(np.uint64),
}
_STRING = 7
# Field numbers of TensorProto, PredictRequest, PredictResponse and PredictionLog.
_DTYPE, _SHAPE, _CONTENT, _STRINGS = 1, 2, 4, 8
_MODEL_SPEC, _SIGNATURE_NAME, _INPUTS = 1, 3, 2
_OUTPUTS = 1
_REQUEST, _RESPONSE, _PREDICT_LOG = 1, 2, 6


def encode_tensor(array: NDArray[Any]) -> bytes:
    """Return the bytes of a TensorProto; object arrays hold bytes.

    >>> encode_tensor(np.array([1.0], np.float32)).hex()
    '080112041202080122040000803f'
    """
    sizes = b"".join(field(2, _varint_field(1, size)) for size in array.shape)
    if array.dtype == object:
        dtype = _STRING
        values = b"".join(field(_STRINGS, text) for text in array.reshape(-1).tolist())
    else:
        dtype = next(n for n, known in DTYPES.items() if known == array.dtype)
        values = field(_CONTENT, array.tobytes())
    return _varint_field(_DTYPE, dtype) + field(_SHAPE, sizes) + values


def encode_predict_log(
    signature: str,
    inputs: Mapping[str, NDArray[Any]],
    outputs: Mapping[str, NDArray[Any]],
) -> bytes:
    """Return a PredictionLog of one request to Predict, with its answer.

    The request names no model, because a bundle does not know how it will be called.
    """
    spec = field(_MODEL_SPEC, field(_SIGNATURE_NAME, signature.encode()))
    request = spec + _tensors(_INPUTS, inputs)
    response = _tensors(_OUTPUTS, outputs)
    log = field(_REQUEST, request) + field(_RESPONSE, response)
    return field(_PREDICT_LOG, log)


def _tensors(number: int, arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return a map from names to TensorProtos."""
    return b"".join(
        field(number, field(1, name.encode()) + field(2, encode_tensor(array)))
        for name, array in arrays.items()
    )


def _varint_field(number: int, value: int) -> bytes:
    return encode_varint(number << 3) + encode_varint(value)
