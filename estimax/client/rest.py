"""Calls over REST, with the standard library's HTTP client.

Connections are kept open and may be used from several threads: a call takes an idle
one, or opens one, and puts it back.
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.parse
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.client.calls import Call, CallError

_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class RestTransport:
    """Sends calls to the REST API of a server.

    Args:
      url: The address of the server, with its path if it is behind a proxy.
      token: The bearer token. None: none.
      certificates: The certificates of authorities to trust, in PEM. None: those of the
        system.
    """

    def __init__(
        self, url: urllib.parse.SplitResult, token: str | None, certificates: str | None
    ) -> None:
        self._url = url
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._tls = (
            ssl.create_default_context(cafile=certificates)
            if url.scheme == "https"
            else None
        )
        self._idle: deque[http.client.HTTPConnection] = deque()

    def predict(
        self, call: Call, columns: Mapping[str, Any], timeout: float
    ) -> dict[str, NDArray[Any]]:
        """Return the outputs of a signature."""
        body: dict[str, Any] = {
            "inputs": {name: _json_ready(values) for name, values in columns.items()}
        }
        if call.signature:
            body["signature_name"] = call.signature
        if call.outputs:
            body["output_filter"] = list(call.outputs)
        found = self._ask("POST", _path(call) + ":predict", body, timeout)
        outputs = found.get("outputs")
        if not isinstance(outputs, dict):
            # An only output has no name in the answer.
            names = [*call.outputs] or self._output_names(call, timeout)
            outputs = {names[0]: outputs}
        return {name: np.array(values) for name, values in outputs.items()}

    def versions(self, model: str, timeout: float) -> dict[int, str]:
        """Return the state of each version of a model."""
        found = self._ask("GET", _path(Call(model)), None, timeout)
        return {
            int(version["version"]): version["state"]
            for version in found["model_version_status"]
        }

    def close(self) -> None:
        """Close the connections."""
        while self._idle:
            self._idle.pop().close()

    def _output_names(self, call: Call, timeout: float) -> list[str]:
        found = self._ask("GET", _path(call) + "/metadata", None, timeout)
        signatures = found["metadata"]["signature_def"]["signature_def"]
        return list(signatures[call.signature or "serving_default"]["outputs"])

    def _ask(self, method: str, path: str, body: Any, timeout: float) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        try:
            status, reason, answer = self._send(method, path, data, timeout)
        except TimeoutError:
            raise CallError(
                f"{self._url.geturl()}: no answer within {timeout:g} s.",
                "DEADLINE_EXCEEDED",
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise CallError(f"{self._url.geturl()}: {error}", "UNAVAILABLE") from error
        try:
            found = json.loads(answer)
        except ValueError:
            found = None
        if status == 200 and isinstance(found, dict):
            return found
        told = found.get("error") if isinstance(found, dict) else None
        raise CallError(
            f"{self._url.geturl()}{path}: {told or f'HTTP status {status} {reason}'}",
            _CODES.get(status, "UNKNOWN"),
        )

    def _send(
        self, method: str, path: str, data: bytes | None, timeout: float
    ) -> tuple[int, str, bytes]:
        """Return the status, its reason and the body of an answer."""
        try:
            connection, is_new = self._idle.pop(), False
        except IndexError:
            connection, is_new = self._connect(), True
        while True:
            try:
                connection.timeout = timeout
                if connection.sock is not None:
                    connection.sock.settimeout(timeout)
                target = self._url.path.rstrip("/") + path
                connection.request(method, target, data, self._headers)
                response = connection.getresponse()
                answer = response.read()
            except (ConnectionError, http.client.BadStatusLine):
                connection.close()
                if is_new:
                    raise
                # The server closes a connection that was idle for long.
                connection, is_new = self._connect(), True
                continue
            except BaseException:
                connection.close()
                raise
            self._idle.append(connection)
            return response.status, response.reason, answer

    def _connect(self) -> http.client.HTTPConnection:
        host, port = str(self._url.hostname), self._url.port
        if self._tls is not None:
            return http.client.HTTPSConnection(host, port, context=self._tls)
        return http.client.HTTPConnection(host, port)


def _path(call: Call) -> str:
    path = f"/v1/models/{urllib.parse.quote(call.model, safe='')}"
    if call.version is not None:
        return f"{path}/versions/{call.version}"
    if call.label is not None:
        return f"{path}/labels/{urllib.parse.quote(call.label, safe='')}"
    return path


def _json_ready(values: Any) -> Any:
    """Return values as JSON has them: lists, and text in place of bytes."""
    if isinstance(values, np.ndarray | np.generic):
        values = values.tolist()
    if isinstance(values, list | tuple):
        return [_json_ready(value) for value in values]
    return values.decode() if isinstance(values, bytes) else values
