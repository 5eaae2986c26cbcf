"""Status codes of answers, the same for REST and gRPC.

    raise ServingError(Code.NOT_FOUND, "model 'ctr' is not served here")
    Code.NOT_FOUND.http                    # 404

The numbers are the status codes of gRPC. TensorFlow Serving answers REST requests with
the HTTP status that belongs to the code.
"""

from __future__ import annotations

import enum
import hmac
from typing import Final

from estimax.core.errors import EstimaxError


class Code(enum.IntEnum):
    """The status codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16

    @property
    def http(self) -> int:
        """The HTTP status that TensorFlow Serving answers with."""
        return _HTTP.get(self, 500)


_HTTP: Final = {
    Code.OK: 200,
    Code.INVALID_ARGUMENT: 400,
    Code.FAILED_PRECONDITION: 400,
    Code.OUT_OF_RANGE: 400,
    Code.UNAUTHENTICATED: 401,
    Code.PERMISSION_DENIED: 403,
    Code.NOT_FOUND: 404,
    Code.ABORTED: 409,
    Code.ALREADY_EXISTS: 409,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.CANCELLED: 499,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.DEADLINE_EXCEEDED: 504,
}


class ServingError(EstimaxError, RuntimeError):
    """A request that the server cannot answer, with the status code to send.

    Args:
      code: The status code.
      message: What was expected, what was found, and what the client can do.

    Example:
      >>> error = ServingError(Code.UNAVAILABLE, "the queue is full; try again")
      >>> error.code.http
      503
    """

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.is_counted = False  # whether metrics have the request that it answers


def check_token(token: str, given: bytes) -> None:
    """Raise UNAUTHENTICATED unless a request carries the token.

    Args:
      token: The token of the server.
      given: The header or metadata "authorization".
    """
    # The time of `==` would tell how many characters of a guess are right.
    if not hmac.compare_digest(given, b"Bearer " + token.encode()):
        raise ServingError(
            Code.UNAUTHENTICATED,
            "expected the header 'Authorization: Bearer TOKEN' with the token of this "
            "server; in gRPC, the metadata 'authorization'.",
        )


def invalid(message: str) -> ServingError:
    """Return the error of a request that does not fit the model."""
    return ServingError(Code.INVALID_ARGUMENT, message)


def not_found(message: str) -> ServingError:
    """Return the error of a request for a model or version that is not served."""
    return ServingError(Code.NOT_FOUND, message)
