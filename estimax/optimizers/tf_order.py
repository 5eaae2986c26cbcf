"""Schedules called with TensorFlow's arguments, where the step is one of them.

    rate_at_step(exponential_decay, (0.1, step, 100, 0.96), {})    # step: an array

TensorFlow 1 passes the global step to a schedule, second, and `piecewise_constant` gets
it first. A call in that order with a number as the step would otherwise be understood
as another schedule: `exponential_decay(0.1, 1, 100, 0.96)` as one that grows to the
hundredfold in every step.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import numpy as np

_STEP = "global_step"
# The argument that is in the place of TensorFlow's number of steps, and up to where it
# is understood as given by position. More is a number of steps.
_AT_MOST: Final = {
    "alpha": 1,
    "end_learning_rate": 1,
    "initial_variance": 9,
    "num_periods": 9,
    "t_mul": 9,
}
_FLAGS: Final = ("staircase", "cycle")


def rate_at_step(
    make: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> jax.Array | None:
    """Return the rate of a schedule at the step that is among the arguments.

    Return None for arguments without a step, in our order.

    Raises:
      ValueError: The step is a number, or a flag is not a boolean.
    """
    own = inspect.signature(make)
    given = _bound(_with_step(own), args, kwargs)
    if given is None or not (_has_array(given) or _is_wrong(own, args, kwargs)):
        _check_flags(own, args, kwargs)
        return None
    step = given.pop(_STEP)
    given.pop("name", None)
    if not isinstance(step, jax.Array):
        name = make.__name__
        raise ValueError(
            f"{name}: these are TensorFlow's arguments, with {step!r} as the step. "
            f"Here the training passes the step: write {_call(name, given)}. To "
            "compute the rate in a model_fn, give the step as an array."
        )
    rate: jax.Array = make(**given)(step)
    return rate


def _with_step(own: inspect.Signature) -> inspect.Signature:
    """Return the signature in TensorFlow's order."""
    listed = list(own.parameters.values())
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    place = 0 if listed[0].name == "boundaries" else 1
    listed.insert(place, inspect.Parameter(_STEP, kind))
    name = inspect.Parameter("name", inspect.Parameter.KEYWORD_ONLY, default=None)
    return inspect.Signature([*listed, name])


def _bound(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any] | None:
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError:
        return None


def _has_array(given: Mapping[str, Any]) -> bool:
    return isinstance(given[_STEP], jax.Array)


def _is_wrong(
    own: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    """Return whether arguments do not fit our order, or mean another schedule in it."""
    given = _bound(own, args, kwargs)
    if given is None:
        return True
    if any(not _is_flag(given.get(name, True)) for name in _FLAGS):
        return True
    third = [*own.parameters][2] if len(args) > 2 else ""
    limit = _AT_MOST.get(third)
    return limit is not None and isinstance(args[2], int | float) and args[2] > limit


def _check_flags(
    own: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    given = _bound(own, args, kwargs) or {}
    for name in _FLAGS:
        if not _is_flag(given.get(name, True)):
            raise ValueError(f"{name} must be True or False, got {given[name]!r}.")


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _call(name: str, given: Mapping[str, Any]) -> str:
    first, *rest = given.items()
    listed = [repr(first[1]), *(f"{key}={value!r}" for key, value in rest)]
    return f"{name}({', '.join(listed)})"
