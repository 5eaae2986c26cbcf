"""Calls over gRPC: PredictionService and ModelService of TensorFlow Serving."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray

from estimax.client.calls import Call, CallError
from estimax.serving.protos import message
from estimax.serving.tensors import array_from_proto, fill_proto, numpy_dtype

_LARGEST = [("grpc.max_receive_message_length", -1)]


class GrpcTransport:
    """Sends calls to the gRPC API of a server.

    Args:
      address: Host and port.
      is_secure: Whether the connection uses TLS.
      token: The bearer token. None: none.
      certificates: The certificates of authorities to trust, in PEM. None: those of
        gRPC.
    """

    def __init__(
        self, address: str, is_secure: bool, token: str | None, certificates: str | None
    ) -> None:
        self._address = address
        self._dtypes: dict[Call, Mapping[str, np.dtype[Any]]] = {}
        self._metadata = (
            () if token is None else (("authorization", f"Bearer {token}"),)
        )
        if is_secure:
            given = None if certificates is None else Path(certificates).read_bytes()
            credentials = grpc.ssl_channel_credentials(given)
            self._channel = grpc.secure_channel(address, credentials, _LARGEST)
        else:
            self._channel = grpc.insecure_channel(address, _LARGEST)

    def predict(
        self, call: Call, columns: Mapping[str, Any], timeout: float
    ) -> dict[str, NDArray[Any]]:
        """Return the outputs of a signature.

        Numbers are converted to the dtypes of the signature, which are asked for once.
        """
        is_known = call in self._dtypes
        request = message("PredictRequest")()
        _fill_spec(request.model_spec, call)
        request.output_filter.extend(call.outputs)
        dtypes = self._dtypes_of(call, timeout)
        for name, values in columns.items():
            array = _as_dtype(_array(name, values), dtypes.get(name))
            fill_proto(request.inputs[name], array, as_content=True)
        try:
            answer = self._ask("PredictionService/Predict", request, timeout)
        except CallError as error:
            # A new version may have other dtypes: ask again, once.
            known = self._dtypes.pop(call, None)
            if not is_known or error.code != "INVALID_ARGUMENT" or known is None:
                raise
            if self._dtypes_of(call, timeout) == known:
                raise
            return self.predict(call, columns, timeout)
        return {
            name: np.asarray(array_from_proto(tensor, f"output {name!r}"))
            for name, tensor in answer.outputs.items()
        }

    def versions(self, model: str, timeout: float) -> dict[int, str]:
        """Return the state of each version of a model."""
        request = message("GetModelStatusRequest")()
        request.model_spec.name = model
        answer = self._ask("ModelService/GetModelStatus", request, timeout)
        states = type(answer.model_version_status.add()).DESCRIPTOR
        names = states.fields_by_name["state"].enum_type.values_by_number
        return {
            found.version: names[found.state].name
            for found in list(answer.model_version_status)[:-1]
        }

    def close(self) -> None:
        """Close the connections."""
        self._channel.close()

    def _dtypes_of(self, call: Call, timeout: float) -> Mapping[str, np.dtype[Any]]:
        """Return the dtypes of the numeric inputs of a signature."""
        if call not in self._dtypes:
            request = message("GetModelMetadataRequest")()
            _fill_spec(request.model_spec, call)
            request.metadata_field.append("signature_def")
            answer = self._ask("PredictionService/GetModelMetadata", request, timeout)
            packed = answer.metadata["signature_def"].value
            signatures = message("SignatureDefMap").FromString(packed).signature_def
            found = signatures[call.signature or "serving_default"].inputs
            numeric = {name: numpy_dtype(info.dtype) for name, info in found.items()}
            self._dtypes[call] = {n: d for n, d in numeric.items() if d is not None}
        return self._dtypes[call]

    def _ask(self, method: str, request: Any, timeout: float) -> Any:
        name = method.rpartition("/")[2]
        run = self._channel.unary_unary(
            f"/tensorflow.serving.{method}",
            request_serializer=lambda sent: sent.SerializeToString(),
            response_deserializer=message(f"{name}Response").FromString,
        )
        try:
            return run(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            found: Any = error  # it is a call too, but has no type that says so
            raise CallError(
                f"grpc://{self._address}: {found.details()}", found.code().name
            ) from None


def _fill_spec(spec: Any, call: Call) -> None:
    spec.name, spec.signature_name = call.model, call.signature
    if call.version is not None:
        spec.version.value = call.version
    if call.label is not None:
        spec.version_label = call.label


def _as_dtype(array: NDArray[Any], dtype: np.dtype[Any] | None) -> NDArray[Any]:
    """Return numbers as the signature takes them, if none of them changes by it.

    Floats are rounded to the floats of the signature.
    """
    if dtype is None or array.dtype in (dtype, object):
        return array
    with np.errstate(all="ignore"):
        converted = array.astype(dtype)
    is_float = array.dtype.kind == "f" and dtype.kind in "fV"
    # Left as it is, so that the server names the feature and both dtypes.
    return converted if is_float or np.array_equal(converted, array) else array


def _array(name: str, values: Any) -> NDArray[Any]:
    """Return values as an array; text as an object array of bytes."""
    array = values if isinstance(values, np.ndarray) else np.array(values)
    if array.dtype.kind in "OSU":
        flat = [_encode(name, value) for value in array.reshape(-1).tolist()]
        texts = np.empty(len(flat), object)
        texts[:] = flat
        return texts.reshape(array.shape)
    return array


def _encode(name: str, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise TypeError(
        f"{name!r}: a tensor of gRPC has text or numbers only, found {value!r}. Send "
        "missing values over REST, or leave the feature out."
    )
