"""Calls of the user's functions, and checks of the arguments of an Estimator.

A `model_fn` or `input_fn` is called with the arguments that it accepts, by name. The
checks raise when a wrong argument is given, not later when it is used.
"""

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
from estimax.core.errors import ConfigError, InputError, SpecError, did_you_mean
from estimax.core.spec import EstimatorSpec, ModeKeys
from estimax.estimator.run_config import RunConfig
from estimax.hooks import Hook
from estimax.input import InputContext
from estimax.staging.feed import Feed
from estimax.staging.trace import Origin
from estimax.staging.variables import declared_name

MODEL_FN_ARGUMENTS = ("features", "labels", "mode", "params", "config")
OVERRIDABLE = ("model_fn", "latest_checkpoint")
_log = logging.getLogger("estimax")


def check_model_fn(model_fn: Any, *, has_params: bool) -> None:
    """Raise SpecError if a `model_fn` is no function or has unknown arguments."""
    if not callable(model_fn):
        raise SpecError(
            "Estimator: model_fn must be a function of (features, labels, mode, "
            f"params, config) returning an EstimatorSpec, got {model_fn!r}."
        )
    names = known_names("Estimator: model_fn", model_fn, MODEL_FN_ARGUMENTS)
    if "features" not in names:
        raise SpecError("Estimator: model_fn must have an argument 'features'.")
    if has_params and "params" not in names:
        raise SpecError(
            "Estimator: params were given, but model_fn has no argument 'params'."
        )
    if "params" in names and not has_params:
        _log.warning("Estimator: model_fn takes params, but none were given")


_TPU_BATCH_SIZES = ("train_batch_size", "eval_batch_size", "predict_batch_size")
_TPU_ARGUMENTS = (
    "use_tpu",
    "batch_axis",
    "eval_on_tpu",
    "export_to_tpu",
    "export_to_cpu",
    "embedding_config_spec",
    "export_saved_model_api_version",
)


def check_no_more_arguments(unknown: Mapping[str, Any]) -> None:
    """Raise TypeError for an unknown argument, with advice if TPUEstimator had it."""
    for name, value in unknown.items():
        if name in _TPU_BATCH_SIZES:
            advice = (
                f'. The input_fn makes the batches: give params={{"batch_size": {value}'
                "} and write def input_fn(params) with "
                'dataset.batch(params["batch_size"]), the size of all devices together.'
            )
        elif name in _TPU_ARGUMENTS:
            advice = (
                ": leave it out. The same program runs on CPU, GPU and TPU; "
                "ex.RunConfig(devices=…) chooses devices."
            )
        else:
            known = ("model_fn", "model_dir", "config", "params", "warm_start_from")
            advice = did_you_mean(name, known)
        raise TypeError(f"Estimator: unexpected argument {name!r}{advice}")


def check_subclass(kind: type, base: type) -> None:
    """Raise SpecError if a subclass overrides a member that is not `OVERRIDABLE`.

    The members of `base` call each other, also the private ones. A subclass that uses
    one of their names by accident would break the others. Classes of estimax may,
    because they are changed together with `base`.
    """
    if kind is base:
        return
    for name in vars(kind) if not kind.__module__.startswith("estimax.") else ():
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
    """Call a `model_fn`; raise SpecError if it does not return an EstimatorSpec."""
    given = {"features": features, "mode": mode, "params": params, "config": config}
    names = accepted_names(model_fn)
    if mode == ModeKeys.PREDICT:
        labels = None
    if "labels" in names:
        given["labels"] = labels
    elif labels is not None:
        raise SpecError(
            "the input_fn returns labels, but model_fn has no argument 'labels'. Add "
            "the argument, or return features alone."
        )
    with _explaining_errors(features):
        spec = model_fn(**{name: given[name] for name in names if name in given})
    if not isinstance(spec, EstimatorSpec):
        raise SpecError(
            f"model_fn must return an EstimatorSpec, got {type(spec).__name__}. With a "
            "head: return head.create_estimator_spec(features, mode, logits, …)."
        )
    if spec.mode != mode:
        raise SpecError(
            f"model_fn was called in mode {mode!r} and returned an EstimatorSpec of "
            f"mode {spec.mode!r}. Pass the mode on: EstimatorSpec(mode, …)."
        )
    return spec


@contextmanager
def _explaining_errors(features: Any) -> Iterator[None]:
    """Add advice to errors of JAX and Python that leave the block."""
    try:
        yield
    except jax.errors.ConcretizationTypeError as error:
        error.add_note(
            "A model_fn is compiled, so it cannot read the values of arrays. To choose "
            "by a value, use jnp.where or jax.lax.cond. To print values, run with "
            "RunConfig(debug=True) and use ex.inspection.value(x)."
        )
        raise
    except AttributeError as error:
        _explain_method(error)
        raise
    except KeyError as error:
        key = error.args[0] if error.args else None
        if isinstance(features, Mapping) and key not in features:
            names = ", ".join(sorted(map(str, features)))
            error.add_note(f"If {key!r} is a feature: the input has {names}.")
        raise


# Methods of TensorFlow's variables and tensors -> what to write instead.
_METHODS = {
    "assign": "write ex.assign(variable, value), for one declared with trainable=False",
    "assign_add": "write ex.assign(variable, variable + value), for one declared with "
    "trainable=False",
    "assign_sub": "write ex.assign(variable, variable - value), for one declared with "
    "trainable=False",
    "eval": "there is no session; estimator.get_variable_value({name!r}) reads the "
    "latest checkpoint, and jax.debug.print prints values while the model runs",
    "get_shape": "write array.shape, a tuple",
    "initialized_value": "write the array itself",
    "name": "this variable is {name!r}; ex.variables_by_name() returns all by name",
    "numpy": "values are known while the model runs, not while it is traced; "
    "RunConfig(debug=True) runs it without jit, see ex.inspection.value",
    "op": "there is no graph; this variable is {name!r}",
    "read_value": "write the array itself",
    "set_shape": "shapes are always known; write array.reshape(shape) to change one",
    "value": "write the array itself",
}


def _explain_method(error: AttributeError) -> None:
    """Raise an error that says what to write for a method of a TensorFlow variable."""
    if error.name not in _METHODS or not isinstance(error.obj, jax.Array):
        return
    found = declared_name(error.obj)
    name = found[0] if found else "a computed array"
    advice = _METHODS[error.name].format(name=name)
    raise AttributeError(
        f"an array has no {error.name!r}, which TensorFlow's variables and tensors "
        f"have; ex.get_variable returns an array: {advice}.",
        name=error.name,
        obj=error.obj,
    ) from error


def call_input_fn(
    input_fn: Callable[..., Any], *, mode: str, params: Any, config: Any
) -> Any:
    """Call an `input_fn` with the arguments that it accepts.

    The arguments are `mode`, `params`, `config` and `input_context`. If one process
    reads all data, an `input_context` that has a default is not passed, as in
    tf.estimator without a strategy.
    """
    check_input_fn(input_fn)
    given = {"mode": mode, "params": params, "config": config}
    names = accepted_names(input_fn)
    if "input_context" in names:
        # Only training is divided: a process evaluates and predicts by itself.
        is_train = mode == ModeKeys.TRAIN
        context = InputContext.from_run_config(config) if is_train else InputContext()
        default = inspect.signature(input_fn).parameters["input_context"].default
        if context.num_input_pipelines > 1 or default is inspect.Parameter.empty:
            given["input_context"] = context
    try:
        return input_fn(**{name: given[name] for name in names if name in given})
    except KeyError as error:
        is_params = isinstance(params, Mapping) and "batch_size" not in params
        if error.args == ("batch_size",) and is_params:
            error.add_note(
                'Give the batch size to the Estimator: params={"batch_size": …}, as '
                "TPUEstimator did from train_batch_size."
            )
        raise


def reads_share(input_fn: Callable[..., Any], config: RunConfig) -> bool:
    """Return whether an `input_fn` returns a share of the data for one process."""
    check_input_fn(input_fn)
    return not config.split_batches or "input_context" in accepted_names(input_fn)


def describe_share(input_fn: Callable[..., Any], config: RunConfig) -> str:
    """Return a text that says whether an `input_fn` returns a share of the data."""
    is_share = reads_share(input_fn, config)
    return "returns a share of the data" if is_share else "returns all of the data"


def saved_position(
    extra: Any, reader: int, readers: int
) -> tuple[Any, tuple[Any, ...]]:
    """Return the position of one of several readers in a checkpoint, or all positions.

    If as many processes read shares of the data as when the checkpoint was saved, the
    position of this one is returned. Otherwise it is None, and the positions of all
    tell the epoch.
    """
    extra = extra or {}
    saved = extra["inputs"] if "inputs" in extra else [extra.get("input")]
    if len(saved) == readers:
        return saved[reader], ()
    return None, tuple(one for one in saved if one is not None)


def check_input_fn(input_fn: Any, where: str = "") -> None:
    """Raise TypeError if data was given in place of a function that returns it."""
    if not callable(input_fn):
        raise TypeError(
            f"{where}input_fn must be a function that returns the data, got "
            f"{type(input_fn).__name__}. Wrap it: input_fn=lambda: dataset."
        )


def accepted_names(function: Callable[..., Any]) -> list[str]:
    """Return the argument names of a function, without those bound by a partial."""
    bound = getattr(function, "keywords", None) or {}
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind in kinds and p.name not in bound]


def known_names(
    where: str, function: Callable[..., Any], allowed: Sequence[str]
) -> list[str]:
    """Return the argument names of a function; raise SpecError if one is unknown."""
    names = accepted_names(function)
    for name in names:
        if name not in allowed:
            raise SpecError(
                f"{where} has an unknown argument {name!r}{did_you_mean(name, allowed)}"
            )
    return names


def with_model_dir(
    config: RunConfig | None, model_dir: str | os.PathLike[str] | None
) -> RunConfig:
    """Return the config with its model_dir, the given one, or a temporary one."""
    if config is not None and not isinstance(config, RunConfig):
        raise ConfigError(
            f"Estimator: config must be a RunConfig, got {type(config).__name__}."
        )
    config = config or RunConfig()
    if not isinstance(model_dir, str | os.PathLike | None):
        raise ConfigError(f"Estimator: model_dir must be a path, got {model_dir!r}.")
    given = os.fspath(model_dir) if model_dir else None
    if given and config.model_dir and not _is_same(given, config.model_dir):
        raise ConfigError(
            f"Estimator: model_dir is {given!r} here and {config.model_dir!r} in the "
            "RunConfig. Give one of them."
        )
    resolved = given or config.model_dir
    if resolved is None:
        resolved = tempfile.mkdtemp(prefix="estimax-")
        _log.warning("no model_dir given: using the temporary folder %s", resolved)
    # Absolute, so that a later change of the working directory does not move it.
    return config.replace(model_dir=os.path.abspath(resolved))


def _is_same(one: str, other: str) -> bool:
    return os.path.abspath(one) == os.path.abspath(other)


def check_steps(**given: int | None) -> None:
    """Raise SpecError if two counts are given, or one is not a number above 0."""
    values = {name: value for name, value in given.items() if value is not None}
    if len(values) > 1:
        raise SpecError(
            "train: give steps (that many more) or max_steps (up to that many in all), "
            "not both."
        )
    for name, value in values.items():
        check_count(name, value)


def check_count(name: str, value: Any) -> None:
    """Raise SpecError unless `value` is None or a whole number above 0."""
    if value is None:
        return
    if not isinstance(value, Integral):
        raise SpecError(
            f"{name} must be a whole number, got {value!r}. Use int(…) or //."
        )
    if value <= 0:
        raise SpecError(f"{name} must be > 0 or None, got {value}.")


def hooks_of(hooks: Sequence[Hook] | None, where: str = "") -> tuple[Hook, ...]:
    """Return `hooks` as a tuple; raise TypeError if one is not a `Hook`."""
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


def first_batch(feed: Feed, what: str) -> dict[Origin, Any]:
    """Return the first batch; raise SpecError if the input is empty."""
    if feed.first is None:
        raise SpecError(
            f"{what}: the input_fn returned no data; check its files and filters."
        )
    return feed.first


def check_ends(feed: Feed, steps: int | None, hooks: Sequence[Hook] | None) -> None:
    """Raise InputError if an evaluation would never end."""
    if feed.endless and steps is None and not hooks:
        raise InputError(
            f"evaluate: the input_fn returned {feed.endless}; or give steps, the "
            "number of batches to evaluate."
        )


def warn_if_endless(
    feed: Feed, what: str, steps: int | None, hooks: Sequence[Hook] | None
) -> None:
    """Log a warning if nothing but the consumer or a signal will end a call."""
    if feed.endless and steps is None and not hooks:
        _log.warning(
            "%s goes on until it is interrupted: the input_fn returned %s",
            what,
            feed.endless,
        )


def check_folder(model_dir: str) -> None:
    """Raise ConfigError if a folder holds a checkpoint of TensorFlow.

    Training there would start a new model beside the old checkpoint.
    """
    found = checkpoints.tensorflow_checkpoint(model_dir)
    if found is not None:
        raise ConfigError(
            f"train: {model_dir!r} holds a checkpoint of TensorFlow. Use a new "
            f"model_dir, and start from the checkpoint with warm_start_from={found!r}."
        )
