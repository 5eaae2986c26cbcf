"""The client that programs use: it chooses the transport and tries again."""

from __future__ import annotations

import random
import time
import urllib.parse
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

from numpy.typing import NDArray

from estimax.client.calls import Call, CallError, Transport, columns_of
from estimax.client.rest import RestTransport
from estimax.core.errors import ConfigError

_FIRST_WAIT = 0.1  # seconds before the second try
_PORTS = {"http": 8501, "https": 8501, "grpc": 8500, "grpcs": 8500}

Result = TypeVar("Result")


class Client:
    """Calls the models of `estimax serve` or of TensorFlow Serving.

    Use it where a program needs predictions and should not load the model itself. It
    needs neither TensorFlow nor JAX. Several threads may share a client.

    Args:
      address: Where the server is: "http://host:8501" or "https://…" for REST,
        "grpc://host:8500" or "grpcs://…" for gRPC, which needs the extra `serve`.
      token: The token of a server that asks for one.
      timeout: Seconds until a call is given up, with all its tries.
      retries: How often a call is tried again if the server cannot be reached, is
        overloaded, or is loading the model.
      certificates: A file with the certificates of the authorities to trust.

    Raises:
      ConfigError: The address has another form.

    Example:
      >>> client = Client("http://localhost:9", timeout=1.0, retries=0)
      >>> client.is_ready("late")
      False
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        timeout: float = 10.0,
        retries: int = 3,
        certificates: str | None = None,
    ) -> None:
        url = urllib.parse.urlsplit(address)
        if url.scheme not in _PORTS or not url.hostname:
            raise ConfigError(
                "Client: expected an address such as http://localhost:8501 or "
                f"grpc://localhost:8500, got {address!r}."
            )
        self._timeout = timeout
        self._retries = retries
        self._transport = _transport_for(url, token, certificates)

    def predict(
        self,
        model: str,
        features: Any,
        *,
        version: int | None = None,
        label: str | None = None,
        signature: str = "",
        outputs: Sequence[str] = (),
    ) -> dict[str, NDArray[Any]]:
        """Return the predictions of a model for some rows.

        Args:
          model: The name of the model.
          features: A dict from the names of features to columns; a data frame of pandas
            or polars; a pyarrow Table; or a list of dicts, one for each row. Over REST,
            None is a missing value.
          version: The version of the model; None is the newest one.
          label: The label of a version, in place of `version`.
          signature: The name of the signature; "serving_default" if empty.
          outputs: The names of the wanted outputs; empty for all.

        Returns:
          The outputs by name. REST has no dtypes, so numbers are float64 or int64
          there. Text is `str` over REST and `bytes` over gRPC.

        Raises:
          CallError: The server refused the call, or did not answer in time.
        """
        call = Call(model, version, label, signature, tuple(outputs))
        columns = columns_of(features)
        return self._retry(lambda left: self._transport.predict(call, columns, left))

    def versions(self, model: str) -> dict[int, str]:
        """Return the state of each version of a model.

        Args:
          model: The name of the model.

        Returns:
          Version to state; "AVAILABLE" is a version that answers.

        Raises:
          CallError: The server has no such model, or did not answer in time.
        """
        return self._retry(lambda left: self._transport.versions(model, left))

    def is_ready(self, model: str) -> bool:
        """Return whether a version of a model answers now; an error counts as no.

        Args:
          model: The name of the model.
        """
        try:
            states = self._transport.versions(model, self._timeout)
        except CallError:
            return False
        return "AVAILABLE" in states.values()

    def close(self) -> None:
        """Close the connections; the client cannot be used afterwards."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _retry(self, send: Callable[[float], Result]) -> Result:
        """Send a call, again if the error may pass, until the time is over."""
        end = time.monotonic() + self._timeout
        wait = _FIRST_WAIT
        for last in (*[False] * self._retries, True):
            try:
                return send(max(end - time.monotonic(), 0.001))
            except CallError as error:
                # Random, so that many clients do not come back at the same moment.
                pause = wait * random.uniform(0.5, 1.5)
                is_late = time.monotonic() + pause > end
                if last or is_late or not error.is_temporary:
                    raise
            time.sleep(pause)
            wait *= 2
        raise AssertionError("the last try returns or raises")


def _transport_for(
    url: urllib.parse.SplitResult, token: str | None, certificates: str | None
) -> Transport:
    host = str(url.hostname)
    shown = f"[{host}]" if ":" in host else host
    address = f"{shown}:{url.port or _PORTS[url.scheme]}"
    if url.scheme in ("http", "https"):
        return RestTransport(url._replace(netloc=address), token, certificates)
    # grpc and the messages take half a second to import, and are an extra.
    from estimax.client.grpc_calls import GrpcTransport

    return GrpcTransport(address, url.scheme == "grpcs", token, certificates)
