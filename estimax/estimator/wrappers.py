"""Extend an Estimator: more metrics, or features among its predictions.

    model = ex.add_metrics(model, lambda labels, predictions: {"mae": …})
    model = ex.forward_features(model, "user_id")

`call_logit_fn` calls a logit function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from estimax import staging
from estimax.core.errors import SpecError, did_you_mean
from estimax.core.spec import EstimatorSpec, ModeKeys, PredictOutput
from estimax.estimator.arguments import known_names
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
    _check_estimator("add_metrics", estimator)
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

    return _extend(estimator, model_fn)


def forward_features(
    estimator: Estimator,
    keys: str | Sequence[str] | None = None,
    sparse_default_values: Mapping[str, Any] | None = None,
) -> Estimator:
    """Return an Estimator of the same model whose predictions contain features.

    Use it to find the example of a prediction again, by a key among the features. A
    feature of any dtype comes out as it was given: text as bytes, int64 with all of its
    bits. `predict` and exported bundles return it; in a bundle, the outputs of the
    signatures "predict" and "serving_default" get it. The model does not see the
    feature.

    Args:
      estimator: The Estimator to extend. It does not change.
      keys: The features to forward, one name or several. None forwards all features.
      sparse_default_values: Key of a sparse feature to the value of its empty places. A
        prediction needs rows of one length, so a sparse feature needs a default.

    Returns:
      A new Estimator.

    Raises:
      TypeError: `estimator` is not an Estimator, or a key is not text.
      SpecError: When predicting: a key is not among the features or is a prediction
        already, or a sparse feature has no default.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> def input_fn():
      ...     features = {"x": np.ones((2, 1)), "id": ["a7", "b9"]}
      ...     return iter([(features, np.ones(2))])
      >>> model = ex.forward_features(ex.BaselineRegressor(), "id")
      >>> [row["id"] for row in model.train(input_fn).predict(input_fn)]
      [b'a7', b'b9']
    """
    _check_estimator("forward_features", estimator)
    names = [keys] if isinstance(keys, str) else keys
    defaults = dict(sparse_default_values or {})
    for name in (*(names or ()), *defaults):
        if not isinstance(name, str):
            raise TypeError(f"forward_features: a key must be str, got {name!r}.")

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        spec: EstimatorSpec = estimator.model_fn(features, labels, mode, config)
        if mode != ModeKeys.PREDICT:
            return spec
        _check_forwarded(features, spec.predictions, names)
        forwarded = {
            name: staging.forward(features[name], defaults.get(name))
            for name in (features if names is None else names)
        }
        return _with_predictions(spec, forwarded)

    return _extend(estimator, model_fn)


def _check_forwarded(
    features: Any, predictions: Any, names: Sequence[str] | None
) -> None:
    for what, value in (("features", features), ("predictions", predictions)):
        if not isinstance(value, Mapping):
            raise SpecError(
                f"forward_features: {what} must be a dict, got {type(value).__name__}."
            )
    for name in features if names is None else names:
        if name not in features:
            raise SpecError(
                f"forward_features: there is no feature {name!r}"
                f"{did_you_mean(name, list(features))}"
            )
        if name in predictions:
            raise SpecError(
                f"forward_features: {name!r} is a prediction already; the model "
                f"predicts {list(predictions)}. Rename the feature in the input_fn, or "
                "leave it out of keys."
            )


def _with_predictions(spec: EstimatorSpec, more: Mapping[str, Any]) -> EstimatorSpec:
    """Return a spec with more predictions, also in what its exports predict."""
    exports = dict(spec.export_outputs or {})
    for name in ("predict", "serving_default"):
        output = exports.get(name)
        if isinstance(output, PredictOutput):
            exports[name] = PredictOutput({**output.as_outputs(), **more})
    predictions = {**spec.predictions, **more}
    return spec._replace(predictions=predictions, export_outputs=exports)


def _check_estimator(function: str, estimator: Any) -> None:
    if not isinstance(estimator, Estimator):
        raise TypeError(
            f"{function}: expected an Estimator, got {type(estimator).__name__}."
        )


def _extend(estimator: Estimator, model_fn: Callable[..., EstimatorSpec]) -> Estimator:
    """Return an Estimator of another model_fn with the same folder and settings."""
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
