"""Calling what users write: arguments by name, only those that a function accepts."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax

from estimax.core.errors import SpecError, did_you_mean
from estimax.core.mode import ModeKeys
from estimax.core.spec import EstimatorSpec
from estimax.input import InputContext

MODEL_FN_ARGUMENTS = ("features", "labels", "mode", "params", "config")
OVERRIDABLE = ("model_fn", "latest_checkpoint")
_log = logging.getLogger("estimax")


def check_model_fn(model_fn: Any, *, has_params: bool) -> None:
    """Refuse a `model_fn` whose arguments cannot be given, when it is handed over."""
    if not callable(model_fn):
        raise SpecError(
            "Estimator: model_fn must be a function of (features, labels, mode, "
            f"params, config) returning an EstimatorSpec, got {model_fn!r}."
        )
    names = accepted_names(model_fn)
    for name in names:
        if name not in MODEL_FN_ARGUMENTS:
            raise SpecError(
                f"Estimator: model_fn has an argument {name!r} that nothing is known "
                f"to fill{did_you_mean(name, MODEL_FN_ARGUMENTS)}"
            )
    if "features" not in names:
        raise SpecError("Estimator: model_fn must have an argument 'features'.")
    if has_params and "params" not in names:
        raise SpecError(
            "Estimator: params were given, but model_fn has no argument 'params'."
        )
    if "params" in names and not has_params:
        _log.warning("Estimator: model_fn takes params, and none were given")


def check_subclass(kind: type, base: type) -> None:
    """Refuse a subclass that redefines what the base is made of.

    Its parts call each other; one that was meant to be new would break the others.
    """
    if kind is base:
        return
    for name in vars(kind):
        is_own = name in vars(base) and not name.startswith("__")
        if is_own and name not in OVERRIDABLE:
            raise SpecError(
                f"{kind.__name__} redefines {name!r} of {base.__name__}. A subclass "
                f"may define {' and '.join(OVERRIDABLE)}, and members of other names; "
                "to change the model, pass a model_fn."
            )


def call_model_fn(
    model_fn: Callable[..., Any],
    features: Any,
    labels: Any,
    *,
    mode: str,
    params: Any,
    config: Any,
) -> EstimatorSpec:
    """Call a `model_fn` and check that it answers with a spec."""
    given = {"features": features, "mode": mode, "params": params, "config": config}
    names = accepted_names(model_fn)
    if mode == ModeKeys.PREDICT:
        labels = None
    if "labels" in names:
        given["labels"] = labels
    elif labels is not None:
        raise SpecError(
            "the input_fn gives labels, but model_fn has no argument 'labels'. Add it, "
            "or return features alone."
        )
    with _explaining_errors(features):
        spec = model_fn(**{name: given[name] for name in names if name in given})
    if not isinstance(spec, EstimatorSpec):
        raise SpecError(
            f"model_fn must return an EstimatorSpec, got {type(spec).__name__}. With a "
            "head: return head.create_estimator_spec(features, mode, logits, …)."
        )
    return spec


@contextmanager
def _explaining_errors(features: Any) -> Iterator[None]:
    """Add to errors that are not ours how to go on."""
    try:
        yield
    except jax.errors.ConcretizationTypeError as error:
        error.add_note(
            "A model_fn describes what to compute, and is compiled. Choose by values "
            "with jnp.where or jax.lax.cond; to see them, run with "
            "RunConfig(debug=True) and look at ex.debug.value(x)."
        )
        raise
    except KeyError as error:
        key = error.args[0] if error.args else None
        if isinstance(features, Mapping) and key not in features:
            names = ", ".join(sorted(map(str, features)))
            error.add_note(f"If {key!r} is to be a feature: the input has {names}.")
        raise


def call_input_fn(
    input_fn: Callable[..., Any], *, mode: str, params: Any, config: Any
) -> Any:
    """Call an `input_fn` with what it names of mode, params, config, input_context.

    An `input_context` with a default is left alone where one process reads all, as in
    tf.estimator without a strategy.
    """
    check_input_fn(input_fn)
    given = {"mode": mode, "params": params, "config": config}
    names = accepted_names(input_fn)
    if "input_context" in names:
        context = InputContext.from_run_config(config)
        default = inspect.signature(input_fn).parameters["input_context"].default
        if context.num_input_pipelines > 1 or default is inspect.Parameter.empty:
            given["input_context"] = context
    return input_fn(**{name: given[name] for name in names if name in given})


def check_input_fn(input_fn: Any, where: str = "") -> None:
    """Refuse the data itself in the place of what makes it."""
    if not callable(input_fn):
        raise TypeError(
            f"{where}input_fn must be a function that returns the data, got "
            f"{type(input_fn).__name__}. Wrap it: input_fn=lambda: dataset."
        )


def accepted_names(function: Callable[..., Any]) -> list[str]:
    """The argument names of a function, without those that a partial has bound."""
    bound = getattr(function, "keywords", None) or {}
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind in kinds and p.name not in bound]
