"""What a client sends and how a call can fail; REST and gRPC share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from estimax.core.errors import EstimaxError

# Worth another try: the queue is full, a model is loading, or the server restarts.
_TEMPORARY = ("RESOURCE_EXHAUSTED", "UNAVAILABLE")


class CallError(EstimaxError, RuntimeError):
    """A server refused a call, did not answer, or answered something unknown.

    Args:
      message: What went wrong, with the words of the server.
      code: The name of the gRPC status, also for REST: "NOT_FOUND", "UNAVAILABLE", ….

    Example:
      >>> error = CallError("model 'ctr' is not served here", "NOT_FOUND")
      >>> error.code, error.is_temporary
      ('NOT_FOUND', False)
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def is_temporary(self) -> bool:
        """Whether the same call may succeed a moment later."""
        return self.code in _TEMPORARY


@dataclass(frozen=True)
class Call:
    """One call of a model.

    Args:
      model: The name of the model.
      version: Its version; None for the newest, or for the one with `label`.
      label: The label of a version.
      signature: The name of the signature; empty for "serving_default".
      outputs: The names of the wanted outputs; empty for all.
    """

    model: str
    version: int | None = None
    label: str | None = None
    signature: str = ""
    outputs: tuple[str, ...] = ()


class Transport(Protocol):
    """How calls reach a server."""

    def predict(
        self, call: Call, columns: Mapping[str, Any], timeout: float
    ) -> dict[str, NDArray[Any]]:
        """Return the outputs of a signature."""

    def versions(self, model: str, timeout: float) -> dict[int, str]:
        """Return the state of each version of a model."""

    def close(self) -> None:
        """Close the connections."""


def columns_of(features: Any) -> dict[str, Any]:
    """Return the columns of a table.

    >>> columns_of([{"age": 3, "city": "Rome"}, {"age": 4}])
    {'age': [3, 4], 'city': ['Rome', None]}
    """
    if isinstance(features, Mapping):
        return {str(name): values for name, values in features.items()}
    if hasattr(features, "to_pydict"):  # a pyarrow Table
        table: dict[str, Any] = features.to_pydict()
        return table
    if hasattr(features, "columns"):  # a data frame of pandas or polars
        return {str(name): _values_of(features[name]) for name in features.columns}
    rows = list(features)
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        raise TypeError(
            "predict: expected a dict of columns, a data frame, a pyarrow Table, or a "
            f"list of dicts; got {type(features).__name__}."
        )
    names = dict.fromkeys(name for row in rows for name in row)
    return {str(name): [row.get(name) for row in rows] for name in names}


def _values_of(column: Any) -> Any:
    """Return the values of a column, with None where a word is missing."""
    array = column.to_numpy()
    if array.dtype != object:
        return array
    # pandas has NaN for a missing word.
    return [None if value != value else value for value in array.tolist()]
