"""The REST API of the Open Inference Protocol, version 2, which KServe and Triton have.

    api = OpenInferenceApi(service, timeout=5.0)
    response = await api.infer(target, data, json_length=None)

A request is JSON, or JSON followed by the bytes of its tensors: then the header
`Inference-Header-Content-Length` has the length of the JSON. Tensors are columns, as in
the `inputs` of TensorFlow Serving; the protocol has no signatures, so the parameter
`signature_name` names one, and "serving_default" is the default.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from estimax.core.strings import Strings
from estimax.export import TensorInfo
from estimax.export.signature import STRING
from estimax.serving import json_bodies
from estimax.serving.inference import Answer, InferenceService, Target
from estimax.serving.manager import ModelManager
from estimax.serving.status import invalid

JSON_LENGTH: Final = b"inference-header-content-length"
_BYTES: Final = "BYTES"
_DTYPES: Final[dict[str, Any]] = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BF16": ml_dtypes.bfloat16,
}
_NAMES: Final = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
# The kinds of JSON numbers that a tensor takes, as NumPy names them.
_KINDS: Final = {"b": "b", "u": "iu", "i": "iu", "f": "iuf", "V": "iuf"}
_MOST_AXES: Final = 32


@dataclass(frozen=True)
class InferRequest:
    """A request to infer, before its tensors are read.

    Args:
      id: What the answer repeats. None: nothing.
      inputs: The JSON of the tensors.
      blob: The bytes that follow the JSON.
      outputs: The names of the outputs. Empty: all.
      binary: The outputs that are answered as bytes. None: all.
      signature: The name of the signature. Empty: the default.
    """

    id: str | None
    inputs: Sequence[Mapping[str, Any]]
    blob: memoryview
    outputs: Sequence[str]
    binary: frozenset[str] | None
    signature: str


class OpenInferenceApi:
    """Answers the requests of the protocol.

    Args:
      service: Runs the requests.
      timeout: Seconds until a request is given up. None: never.
    """

    def __init__(self, service: InferenceService, timeout: float | None) -> None:
        self._service = service
        self._timeout = timeout

    async def infer(
        self, target: Target, data: bytes, json_length: bytes | None
    ) -> tuple[bytes, bytes]:
        """Return the JSON of an answer, and the bytes of its tensors after it.

        Raises:
          ServingError: The request is not valid, or the model cannot answer it.
        """
        run, size = self._service.decode_threads.run, len(data)
        request = await run(size, read_request, data, json_length)
        answer = await self._service.predict(
            Target(target.name, target.version, target.label, request.signature),
            # Columns by name, as of a gRPC request: the bundle checks them.
            lambda specs, loaded: read_tensors(request),
            output_filter=request.outputs,
            timeout=self._timeout,
            size=size,
        )
        numbers = sum(array.size for array in answer.outputs.values())
        written = json_bodies.SIZE_OF_NUMBER * numbers
        result: tuple[bytes, bytes] = await run(written, write_answer, answer, request)
        return result


def server_metadata(version: str) -> dict[str, Any]:
    """Return the name, version and extensions of the server."""
    return {
        "name": "estimax",
        "version": version,
        "extensions": ["binary_tensor_data"],
    }


def model_metadata(manager: ModelManager, target: Target) -> dict[str, Any]:
    """Return the inputs and outputs of a model's default signature."""
    with manager.acquire(target.name, target.version, target.label) as served:
        signatures = served.loaded.bundle.signatures
        signature = signatures.get("serving_default") or next(iter(signatures.values()))
        ready = manager.models()[target.name].available()
        return {
            "name": target.name,
            "versions": [str(version.number) for version in ready],
            "platform": "estimax",
            "inputs": [_tensor_metadata(spec) for spec in signature.inputs],
            "outputs": [_tensor_metadata(spec) for spec in signature.outputs],
        }


def read_request(data: bytes, json_length: bytes | None) -> InferRequest:
    """Check the JSON of a request.

    Raises:
      ServingError: It is not JSON, or not a request to infer.
    """
    text, blob = _split(data, json_length)
    body = {
        key: value.whole() if isinstance(value, json_bodies.JsonPieces) else value
        for key, value in json_bodies.parse_in_pieces(text).items()
    }
    inputs = body.get("inputs")
    if not isinstance(inputs, list) or not inputs:
        raise invalid("inputs: expected a list with at least one tensor.")
    if not all(isinstance(tensor, dict) for tensor in inputs):
        raise invalid("inputs: expected objects, found another value among them.")
    wanted = body.get("outputs", [])
    if not isinstance(wanted, list) or not all(isinstance(o, dict) for o in wanted):
        raise invalid("outputs: expected a list of objects.")
    parameters = _parameters(body, "parameters")
    names = [_name(output, "outputs") for output in wanted]
    binary: frozenset[str] | None = frozenset(
        name
        for name, output in zip(names, wanted, strict=True)
        if _parameters(output, f"output {name!r}").get("binary_data")
    )
    if parameters.get("binary_data_output") and not names:
        binary = None
    signature = parameters.get("signature_name", "")
    found_id = body.get("id")
    if not isinstance(signature, str) or not isinstance(found_id, str | None):
        raise invalid("id and signature_name: expected text.")
    return InferRequest(found_id, inputs, blob, names, binary, signature)


def _split(data: bytes, json_length: bytes | None) -> tuple[bytes, memoryview]:
    if json_length is None:
        return data, memoryview(b"")
    digits = json_length.decode("latin-1")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) < 19
    if not is_number or int(digits) > len(data):
        raise invalid(
            "Inference-Header-Content-Length: expected the length of the JSON, at "
            f"most {len(data)}, found {digits[:30]!r}."
        )
    return data[: int(digits)], memoryview(data)[int(digits) :]


def read_tensors(request: InferRequest) -> dict[str, NDArray[Any] | Strings]:
    """Return the tensors of a request by name.

    Raises:
      ServingError: A tensor has no name, or its data does not fit dtype and shape.
    """
    found: dict[str, NDArray[Any] | Strings] = {}
    place = 0
    for tensor in request.inputs:
        name = _name(tensor, "inputs")
        if name in found:
            raise invalid(f"input {name!r}: found twice.")
        where = f"input {name!r}"
        shape = _shape(tensor.get("shape"), where)
        dtype = tensor.get("datatype")
        if dtype != _BYTES and dtype not in _DTYPES:
            names = ", ".join([*_DTYPES, _BYTES])
            raise invalid(f"{where}: datatype: expected {names}, found {dtype!r}.")
        size = _parameters(tensor, where).get("binary_data_size")
        if size is None:
            found[name] = _from_json(tensor.get("data"), dtype, shape, where)
            continue
        if type(size) is not int or not 0 <= size <= len(request.blob) - place:
            raise invalid(
                f"{where}: binary_data_size {size!r}, but {len(request.blob) - place} "
                "bytes are left after the JSON."
            )
        part = request.blob[place : place + size]
        found[name] = _from_bytes(part, dtype, shape, where)
        place += size
    if place != len(request.blob):
        raise invalid(
            f"{len(request.blob) - place} bytes after the JSON belong to no tensor; "
            "give each its binary_data_size."
        )
    return found


def write_answer(answer: Answer, request: InferRequest) -> tuple[bytes, bytes]:
    """Return the JSON of an answer, and the bytes of its tensors after it."""
    tensors, parts = [], []
    for name, array in answer.outputs.items():
        about: dict[str, Any] = {
            "name": name,
            "datatype": _datatype(array),
            "shape": array.shape,
        }
        if request.binary is None or name in request.binary:
            part = _to_bytes(array)
            parts.append(part)
            about["parameters"] = {"binary_data_size": len(part)}
            tensors.append(json_bodies.dumps(about))
        else:
            # A list of all values, in the order of rows.
            tensors.append(json_bodies.dumps(about)[:-1] + b"," + _to_json(array)[1:])
    head: dict[str, Any] = {
        "model_name": answer.model,
        "model_version": str(answer.version),
    }
    if request.id is not None:
        head["id"] = request.id
    text = json_bodies.dumps(head)[:-1] + b',"outputs":[' + b",".join(tensors) + b"]}"
    return text, b"".join(parts)


def _tensor_metadata(spec: TensorInfo) -> dict[str, Any]:
    dtype = _BYTES if spec.dtype == STRING else _NAMES[np.dtype(spec.dtype)]
    shape = [-1 if n is None else n for n in spec.shape]
    return {"name": spec.name, "datatype": dtype, "shape": shape}


def _name(tensor: Mapping[str, Any], where: str) -> str:
    name = tensor.get("name")
    if not isinstance(name, str) or not name:
        raise invalid(f"{where}: expected a name for each tensor, found {name!r}.")
    return name


def _parameters(owner: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    found = owner.get("parameters", {})
    if not isinstance(found, dict):
        raise invalid(f"{where}: parameters: expected an object.")
    return found


def _shape(value: Any, where: str) -> tuple[int, ...]:
    is_shape = isinstance(value, list) and len(value) <= _MOST_AXES
    if not is_shape or not all(type(n) is int and n >= 0 for n in value):
        raise invalid(f"{where}: shape: expected a list of sizes, found {value!r:.100}")
    return tuple(value)


def _from_json(
    data: Any, dtype: str, shape: tuple[int, ...], where: str
) -> NDArray[Any] | Strings:
    if not isinstance(data, list):
        raise invalid(f"{where}: data: expected a list.")
    if dtype == _BYTES:
        texts = list(_flatten(data))
        if not all(isinstance(text, str) for text in texts):
            raise invalid(f"{where}: BYTES: expected text, found another value.")
        _check_count(len(texts), shape, where)
        return Strings.of_bytes([text.encode() for text in texts]).reshape(shape)
    target = np.dtype(_DTYPES[dtype])
    try:
        array = np.array(data)
    except (ValueError, OverflowError):
        raise invalid(f"{where}: data: expected lists of equal lengths.") from None
    if array.size and array.dtype.kind not in _KINDS[target.kind]:
        raise invalid(f"{where}: {dtype}: found values that do not fit.")
    _check_count(array.size, shape, where)
    converted = array.astype(target).reshape(shape)
    if target.kind in "iu" and not np.array_equal(converted.reshape(-1), array.ravel()):
        raise invalid(f"{where}: {dtype}: found a number out of range.")
    return converted


def _flatten(data: list[Any]) -> Iterator[Any]:
    """Yield the values of nested lists; lists deeper than a shape can be are values."""
    level: list[Any] = data
    for _ in range(_MOST_AXES):
        if not any(isinstance(value, list) for value in level):
            break
        level = [
            inner
            for value in level
            for inner in (value if isinstance(value, list) else [value])
        ]
    yield from level


def _from_bytes(
    part: memoryview, dtype: str, shape: tuple[int, ...], where: str
) -> NDArray[Any] | Strings:
    if dtype == _BYTES:
        texts = _read_texts(bytes(part), where)
        _check_count(len(texts), shape, where)
        return Strings.of_bytes(texts).reshape(shape)
    kind = np.dtype(_DTYPES[dtype])
    if len(part) % kind.itemsize:
        raise invalid(f"{where}: {len(part)} bytes are not a number of {dtype} values.")
    if kind == np.bool_:  # any byte but 0 is true; others are no valid bool for NumPy
        values = np.frombuffer(part, np.uint8) != 0
    else:
        values = np.frombuffer(part, kind.newbyteorder("<")).astype(kind)
    _check_count(values.size, shape, where)
    shaped: NDArray[Any] = values.reshape(shape)
    return shaped


def _read_texts(data: bytes, where: str) -> list[bytes]:
    """Return texts, each of which follows its length in 4 bytes."""
    texts, place = [], 0
    while place < len(data):
        end = place + 4
        if end <= len(data):
            end += struct.unpack_from("<I", data, place)[0]
        if end > len(data) or end < place + 4:
            raise invalid(f"{where}: the bytes end within a text.")
        texts.append(data[place + 4 : end])
        place = end
    return texts


def _check_count(count: int, shape: tuple[int, ...], where: str) -> None:
    if count != math.prod(shape):
        raise invalid(
            f"{where}: {count} values do not fit the shape {list(shape)}, which has "
            f"{math.prod(shape)}."
        )


def _datatype(array: NDArray[Any]) -> str:
    return _BYTES if array.dtype == object else _NAMES[array.dtype]


def _to_json(array: NDArray[Any]) -> bytes:
    """Return an object with all values as the list `data`, in the order of rows."""
    flat = array.reshape(-1)
    if flat.dtype == object:
        texts = json_bodies.texts_json(flat, is_bytes=False)
        return json_bodies.list_json("data", texts, is_finite=True)
    values = flat.astype(np.float32) if flat.dtype.kind == "V" else flat
    return json_bodies.list_json("data", values)


def _to_bytes(array: NDArray[Any]) -> bytes:
    if array.dtype != object:
        return array.astype(array.dtype.newbyteorder("<")).tobytes()
    texts: list[bytes] = array.reshape(-1).tolist()
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)
