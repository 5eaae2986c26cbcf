"""`add_metrics` adds metrics to an Estimator; `call_logit_fn` calls a logit function.

model = ex.add_metrics(model, lambda labels, predictions: {"mae": …})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax

from estimax.core.errors import SpecError
from estimax.core.spec import EstimatorSpec, ModeKeys
from estimax.estimator.calling import known_names
from estimax.estimator.estimator import Estimator

_METRIC_FN_ARGUMENTS = ("features", "labels", "predictions", "config")
_LOGIT_FN_ARGUMENTS = ("features", "mode", "params", "config")


def add_metrics(
    estimator: Estimator, metric_fn: Callable[..., Mapping[str, Any]]
) -> Estimator:
    """Return an Estimator of the same model and folder with additional metrics.

    Use it to evaluate a canned Estimator by metrics of your own. The given Estimator
    does not change; train either of the two.

    Args:
      estimator: The Estimator to add metrics to.
      metric_fn: Function that takes any of `features`, `labels`, `predictions` and
        `config`, by name, and returns a dict of metrics by name. It replaces metrics of
        the same name.

    Returns:
      A new Estimator.

    Raises:
      TypeError: `estimator` is not an Estimator.
      SpecError: `metric_fn` has another argument.

    Example:
      >>> import jax.numpy as jnp
      >>> import numpy as np
      >>> import estimax as ex
      >>> def metric_fn(labels, predictions):
      ...     off = jnp.abs(labels - predictions["predictions"])
      ...     return {"mae": ex.metrics.mean(off)}
      >>> def input_fn():
      ...     return iter([({"x": np.ones((4, 1))}, np.ones(4))])
      >>> model = ex.add_metrics(ex.BaselineRegressor(), metric_fn)
      >>> "mae" in model.train(input_fn).evaluate(input_fn)
      True
    """
    if not isinstance(estimator, Estimator):
        raise TypeError(
            f"add_metrics: expected an Estimator, got {type(estimator).__name__}."
        )
    names = known_names("add_metrics: metric_fn", metric_fn, _METRIC_FN_ARGUMENTS)

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        spec: EstimatorSpec = estimator.model_fn(features, labels, mode, config)
        if mode != ModeKeys.EVAL:
            return spec
        given = {
            "features": features,
            "labels": labels,
            "predictions": spec.predictions,
            "config": config,
        }
        more = metric_fn(**{name: given[name] for name in names})
        return spec._replace(eval_metric_ops={**(spec.eval_metric_ops or {}), **more})

    return Estimator(
        model_fn,
        estimator.model_dir,
        estimator.config,
        warm_start_from=estimator.warm_start_from,
    )


def call_logit_fn(
    logit_fn: Callable[..., Any], features: Any, mode: str, params: Any, config: Any
) -> Any:
    """Call a function that computes logits, with the arguments that it accepts.

    Use it in a `model_fn` that takes the network as a function.

    Args:
      logit_fn: Function that takes any of `features`, `mode`, `params` and `config`, by
        name, and returns an array, or a dict of arrays by name.
      features: The features of a batch.
      mode: A `ModeKeys` value.
      params: Hyper-parameters of the model.
      config: The RunConfig.

    Returns:
      What `logit_fn` returns.

    Raises:
      SpecError: `logit_fn` has another argument, or returns something else.

    Example:
      >>> import jax.numpy as jnp
      >>> def logit_fn(features, params):
      ...     return features["x"] * params["scale"]
      >>> features = {"x": jnp.ones((2, 1))}
      >>> call_logit_fn(logit_fn, features, "eval", {"scale": 3.0}, None).tolist()
      [[3.0], [3.0]]
    """
    names = known_names("call_logit_fn: logit_fn", logit_fn, _LOGIT_FN_ARGUMENTS)
    given = {"features": features, "mode": mode, "params": params, "config": config}
    logits = logit_fn(**{name: given[name] for name in names})
    arrays = logits if isinstance(logits, Mapping) else {"logits": logits}
    for name, array in arrays.items():
        if not isinstance(name, str) or not isinstance(array, jax.Array):
            raise SpecError(
                "call_logit_fn: logit_fn must return an array or a dict from str to "
                f"arrays, got {type(logits).__name__} with {name!r} of "
                f"{type(array).__name__}."
            )
    return logits
