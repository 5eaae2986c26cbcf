"""Calling what users write: arguments by name, only those that a function accepts."""

from __future__ import annotations

import inspect
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import jax

from estimax import checkpoints
from estimax.core.errors import ConfigError, SpecError, did_you_mean
from estimax.core.spec import EstimatorSpec, ModeKeys
from estimax.estimator.run_config import RunConfig
from estimax.feeding.feed import Feed
from estimax.hooks import Hook
from estimax.input import InputContext
from estimax.staging.recording import Origin

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
            "RunConfig(debug=True) and look at ex.inspection.value(x)."
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


def with_model_dir(
    config: RunConfig | None, model_dir: str | os.PathLike[str] | None
) -> RunConfig:
    """The config with the model_dir that it or the argument names, or a new one."""
    if config is not None and not isinstance(config, RunConfig):
        raise ConfigError(
            f"Estimator: config must be a RunConfig, got {type(config).__name__}."
        )
    config = config or RunConfig()
    given = os.fspath(model_dir) if model_dir else None
    if given and config.model_dir and given != config.model_dir:
        raise ConfigError(
            f"Estimator: model_dir is {given!r} here and {config.model_dir!r} in the "
            "RunConfig. Give one of them."
        )
    resolved = given or config.model_dir
    if resolved is None:
        resolved = tempfile.mkdtemp(prefix="estimax-")
        _log.warning("no model_dir given: using the temporary folder %s", resolved)
    return config.replace(model_dir=resolved)


def check_steps(**given: int | None) -> None:
    """Refuse counts of steps that cannot be meant."""
    values = {name: value for name, value in given.items() if value is not None}
    if len(values) > 1:
        raise SpecError(
            "train: give steps (that many more) or max_steps (up to that many in all), "
            "not both."
        )
    for name, value in values.items():
        check_count(name, value)


def check_count(name: str, value: Any) -> None:
    """Refuse what is neither a number of steps nor None."""
    if value is None:
        return
    if not isinstance(value, Integral):
        raise SpecError(
            f"{name} must be a whole number, got {value!r}. Use int(…) or //."
        )
    if value <= 0:
        raise SpecError(f"{name} must be > 0 or None, got {value}.")


def checked_hooks(hooks: Sequence[Hook] | None, where: str = "") -> tuple[Hook, ...]:
    """The hooks, which must be some."""
    if hooks is not None and not isinstance(hooks, Iterable):
        raise TypeError(
            f"{where}hooks must be a list of Hooks, got {type(hooks).__name__}."
        )
    every = tuple(hooks or ())
    for hook in every:
        if isinstance(hook, type):
            raise TypeError(
                f"{where}hooks must be Hooks, got the class {hook.__name__}. Call it: "
                f"{hook.__name__}(…)."
            )
        if not isinstance(hook, Hook):
            raise TypeError(
                f"{where}hooks must be Hooks, got {type(hook).__name__}. Subclass "
                "ex.hooks.Hook and override what you need."
            )
    return every


def needed(feed: Feed, what: str) -> dict[Origin, Any]:
    """The first batch, where there must be one."""
    if feed.first is None:
        raise SpecError(
            f"{what}: the input_fn gave no data; check its files and filters."
        )
    return feed.first


def check_folder(model_dir: str) -> None:
    """Refuse to start from nothing in the folder of a model that TensorFlow trained."""
    found = checkpoints.tensorflow_checkpoint(model_dir)
    if found is not None:
        raise ConfigError(
            f"train: {model_dir!r} holds a checkpoint of TensorFlow's. Use a new "
            f"model_dir, and go on from it with warm_start_from={found!r}."
        )
