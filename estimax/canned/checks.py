"""Checks of the arguments of canned estimators, made by their constructors.

Without them a wrong argument would raise at the first call of `train`, from inside of a
layer that does not know which argument was meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from estimax import heads
from estimax.core.errors import FeatureError, SpecError
from estimax.feature_columns import DenseFeatures
from estimax.feature_columns.column import is_column


def checked_units(given: Any, model: str, argument: str = "hidden_units") -> Any:
    """Return the widths of layers; raise SpecError unless they are positive integers.

    >>> checked_units([16, 8], "DNN")
    (16, 8)
    """
    is_list = isinstance(given, Iterable) and not isinstance(given, str | bytes)
    units = tuple(given) if is_list else None
    if units is None or not all(map(is_positive, units)):
        shown = f"[{given}]" if is_positive(given) else "[128, 64]"
        raise SpecError(
            f"{model}: {argument} must be a list with the number of units of each "
            f"hidden layer, such as {shown}, got {given!r}."
        )
    return units


def is_positive(value: object) -> bool:
    """Return whether a value is an integer of at least 1."""
    if isinstance(value, bool):
        return False
    return isinstance(value, Integral) and int(value) >= 1


def check_count(given: object, model: str, argument: str) -> None:
    """Raise SpecError unless a value is an integer of at least 1."""
    if not is_positive(given):
        raise SpecError(
            f"{model}: {argument} must be an integer of at least 1, got {given!r}."
        )


def check_dropout(given: Any, model: str, argument: str = "dropout") -> None:
    """Raise SpecError unless a value is None or a share within [0, 1)."""
    is_number = isinstance(given, Real) and not isinstance(given, bool)
    if given is not None and not (is_number and 0 <= float(given) < 1):
        raise SpecError(
            f"{model}: {argument} is the share of outputs that are set to 0 in "
            f"training: expected None or a number from 0 to below 1, got {given!r}."
        )


def check_activation(given: object, model: str) -> None:
    """Raise SpecError unless a value is None or a function."""
    if given is not None and not callable(given):
        raise SpecError(
            f"{model}: activation_fn must be a function such as flax.linen.relu, or "
            f"None; got {given!r}."
        )


def check_head(given: object, model: str) -> None:
    """Raise SpecError unless a value is a head."""
    if isinstance(given, type) or not isinstance(given, heads.Head):
        raise SpecError(
            f"{model}: head must be a head such as ex.heads.BinaryClassHead(), got "
            f"{given.__name__ if isinstance(given, type) else repr(given)}."
        )


def checked_columns(
    given: Any,
    model: str,
    argument: str = "feature_columns",
    layer: Callable[[Any], Any] = DenseFeatures,
) -> tuple[Any, ...]:
    """Return feature columns as a tuple.

    Args:
      given: What the user passed.
      model: The name of the model, for messages.
      argument: The name of the argument, for messages.
      layer: The layer that the columns are for; its constructor checks them.

    Raises:
      FeatureError: The value is no list of columns, or the layer refuses one of them.
    """
    is_list = isinstance(given, Iterable) and not isinstance(given, str | Mapping)
    if is_column(given) or not is_list:
        shown = f"the column {given.name!r}; put it in []" if is_column(given) else ""
        raise FeatureError(
            f"{model}: {argument} must be a list of feature columns, such as "
            f'[ex.feature_columns.numeric_column("age")], got {shown or repr(given)}.'
        )
    columns = tuple(given)
    layer(columns)
    return columns
