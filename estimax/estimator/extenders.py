"""Estimators made of other estimators, and model functions made of parts.

model = ex.add_metrics(model, lambda labels, predictions: {"mae": …})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax

from estimax.core.errors import SpecError, did_you_mean
from estimax.core.spec import EstimatorSpec, ModeKeys
from estimax.estimator.calling import accepted_names
from estimax.estimator.estimator import Estimator

_METRIC_FN_ARGUMENTS = ("features", "labels", "predictions", "config")
_LOGIT_FN_ARGUMENTS = ("features", "mode", "params", "config")


def add_metrics(
    estimator: Estimator, metric_fn: Callable[..., Mapping[str, Any]]
) -> Estimator:
    """Make an estimator of the same model and folder with more metrics.

    `metric_fn` takes any of features, labels, predictions and config by name and
    returns metrics, which replace those of the same name.

    >>> import jax.numpy as jnp
    >>> import estimax as ex
    >>> model = ex.BaselineRegressor(model_dir="/tmp/estimax-doc-metrics")
    >>> def metric_fn(labels, predictions):
    ...     off = jnp.abs(labels - predictions["predictions"])
    ...     return {"mae": ex.metrics.mean(off)}
    >>> model = ex.add_metrics(model, metric_fn)
    """
    if not isinstance(estimator, Estimator):
        raise TypeError(
            f"add_metrics: expected an Estimator, got {type(estimator).__name__}."
        )
    names = _checked_names("add_metrics: metric_fn", metric_fn, _METRIC_FN_ARGUMENTS)

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
    """Call a function that makes logits with those arguments that it names.

    It must return an array, or a dict of arrays by name.

    >>> import jax.numpy as jnp
    >>> def logit_fn(features, params):
    ...     return features["x"] * params["scale"]
    >>> features = {"x": jnp.ones((2, 1))}
    >>> call_logit_fn(logit_fn, features, "eval", {"scale": 3.0}, None).tolist()
    [[3.0], [3.0]]
    """
    names = _checked_names("call_logit_fn: logit_fn", logit_fn, _LOGIT_FN_ARGUMENTS)
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


def _checked_names(
    what: str, function: Callable[..., Any], allowed: tuple[str, ...]
) -> list[str]:
    names = accepted_names(function)
    for name in names:
        if name not in allowed:
            raise SpecError(
                f"{what} has an argument {name!r} that nothing is known to fill"
                f"{did_you_mean(name, allowed)}"
            )
    return names
