"""The numbers through which features enter a model; explanations vary them.

    net = as_model_input(net, features, columns, widths)    # in a layer of columns

The layers of feature columns pass their result through `as_model_input`, which returns
it as it is. While a model is explained, the `ModelInputs` of its trace record these
arrays with the features that each part was computed from, or put other arrays in their
place: an id cannot be varied step by step, but the embedding of an id can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from estimax.staging.trace import Trace, current


class InputPart(NamedTuple):
    """Neighbouring numbers of an array that were computed from the same features."""

    features: tuple[str, ...]
    width: int


class ModelInput(NamedTuple):
    """An array of numbers, and the parts into which one of its axes is divided."""

    array: Any  # [B, …]
    parts: tuple[InputPart, ...]
    axis: int


@dataclass
class ModelInputs:
    """What enters a model, in the order in which its layers are called.

    Attributes:
      given: Arrays that take the place of the model's own, in the same order; None
        leaves those.
      found: What the layers of the model passed.
    """

    given: Sequence[Any] | None = None
    found: list[ModelInput] = field(default_factory=list)

    def pass_on(self, entry: ModelInput) -> Any:
        """Record an array; return the one that the model goes on with."""
        self.found.append(entry)
        return entry.array if self.given is None else self.given[len(self.found) - 1]


def as_model_input(
    array: Any,
    features: Mapping[str, Any],
    columns: Sequence[Any],
    widths: Sequence[int],
    axis: int = 1,
) -> Any:
    """Return the array that the model goes on with: `array`, unless it is explained.

    Args:
      array: Numbers computed from columns, [B, …].
      features: The features of the batch by key.
      columns: The columns, in the order of their numbers on the axis.
      widths: How many numbers on the axis each column has.
      axis: The axis that the columns divide.
    """
    trace = current()
    if trace is None or trace.inputs is None:
        return array
    parts = tuple(
        InputPart(_features_of(column, features, trace), width)
        for column, width in zip(columns, widths, strict=True)
    )
    return trace.inputs.pass_on(ModelInput(array, parts, axis))


def _features_of(
    column: Any, features: Mapping[str, Any], trace: Trace
) -> tuple[str, ...]:
    """Return the names of the features that a column reads."""
    names = []
    for key in column.parse_example_spec:
        # A model may rename features; one that it computed has no origin.
        origin = trace.origin(features[key])
        names.append(key if origin is None else origin.short_name)
    return tuple(dict.fromkeys(names))
