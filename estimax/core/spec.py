"""What a `model_fn` answers: an `EstimatorSpec`, checked for its mode.

return ex.EstimatorSpec(mode, predictions=p, loss=loss, train_op=ex.optimizers.Adam())
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import jax
import jax.numpy as jnp
import numpy as np

from estimax.core.errors import SpecError
from estimax.core.numbers import is_host_value

ModelFn = Callable[..., "EstimatorSpec"]


@dataclass(frozen=True)
class ClassificationOutput:
    """An exported answer of classes with scores; at least one of the two.

    >>> ClassificationOutput(scores=jnp.ones((2, 3))).classes is None
    True
    """

    scores: Any = None  # [B, K] float
    classes: Any = None  # [B, K] words

    def __post_init__(self) -> None:
        if self.scores is None and self.classes is None:
            raise SpecError("ClassificationOutput: give scores, classes, or both.")

    def as_outputs(self) -> dict[str, Any]:
        """The named arrays of the signature."""
        both = {"scores": self.scores, "classes": self.classes}
        return {name: value for name, value in both.items() if value is not None}


@dataclass(frozen=True)
class RegressionOutput:
    """An exported answer of one number (or vector) per example.

    >>> list(RegressionOutput(jnp.ones((2, 1))).as_outputs())
    ['outputs']
    """

    value: Any

    def as_outputs(self) -> dict[str, Any]:
        """The named arrays of the signature."""
        return {"outputs": self.value}


@dataclass(frozen=True)
class PredictOutput:
    """An exported answer of any named arrays.

    >>> list(PredictOutput(jnp.ones((2, 1))).as_outputs())
    ['output']
    """

    outputs: Any

    def as_outputs(self) -> dict[str, Any]:
        """The named arrays of the signature; tuple keys are joined with a slash."""
        if not isinstance(self.outputs, Mapping):
            return {"output": self.outputs}
        return {_joined(key): value for key, value in self.outputs.items()}


ExportOutput = ClassificationOutput | RegressionOutput | PredictOutput


@dataclass(frozen=True)
class EstimatorSpec:
    """All that a `model_fn` and an Estimator agree on, validated for the mode.

    `train_op` says how to train: an `ex.optimizers` optimizer, an optax
    transformation, or what `ex.minimize` built. `eval_metric_ops` is a dict of
    metric values (`ex.metrics.auc(labels, scores)`).

    >>> EstimatorSpec("infer", predictions={"x": jnp.zeros(3)}).mode
    'infer'
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Mapping[str, Any] | None = None
    export_outputs: Mapping[str, ExportOutput] | None = None
    training_chief_hooks: Sequence[Any] = ()
    training_hooks: Sequence[Any] = ()
    evaluation_hooks: Sequence[Any] = ()
    prediction_hooks: Sequence[Any] = ()

    def __post_init__(self) -> None:
        self._put("loss", _checked_loss(self.loss))
        self._put("predictions", _checked_predictions(self.predictions))
        self._put("eval_metric_ops", _checked_metrics(self.eval_metric_ops))
        for name in _HOOK_FIELDS:
            self._put(name, _checked_hooks(name, getattr(self, name)))
        if self.mode in (ModeKeys.TRAIN, ModeKeys.EVAL) and self.loss is None:
            raise SpecError(f"EstimatorSpec: loss is missing in mode {self.mode!r}.")
        if self.mode == ModeKeys.TRAIN and self.train_op is None:
            raise SpecError(
                "EstimatorSpec: train_op is missing in mode 'train'. Give an "
                "optimizer, such as train_op=ex.optimizers.Adam(1e-3)."
            )
        if self.mode == ModeKeys.PREDICT:
            if _is_empty(self.predictions):
                raise SpecError(
                    "EstimatorSpec: predictions are missing in mode 'infer'."
                )
            self._put("export_outputs", _checked_exports(self))

    def _put(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _replace(self, **changes: Any) -> EstimatorSpec:
        """A copy with other fields, validated again; the mode cannot change."""
        if changes.get("mode", self.mode) != self.mode:
            raise SpecError("EstimatorSpec: the mode of a spec cannot be replaced.")
        if "predictions" in changes and self._exports_predictions():
            changes = {"export_outputs": None, **changes}
        return dataclasses.replace(self, **changes)

    def _exports_predictions(self) -> bool:
        """Whether the exports are the default ones, made of the predictions."""
        exports = self.export_outputs or {}
        default = exports.get("serving_default")
        made_of_them = getattr(default, "outputs", None) is self.predictions
        return len(exports) == 1 and default is not None and made_of_them


_HOOK_FIELDS = (
    "training_chief_hooks",
    "training_hooks",
    "evaluation_hooks",
    "prediction_hooks",
)
RESERVED_METRICS = ("loss", "global_step")


def _checked_loss(loss: Any) -> Any:
    if loss is None:
        return None
    if not _is_array(loss):
        raise TypeError(
            f"EstimatorSpec: loss must be an array, got {type(loss).__name__}."
        )
    if loss.size != 1:
        raise SpecError(
            f"EstimatorSpec: loss must have one element, got shape {loss.shape}. "
            "Reduce it with jnp.mean or jnp.sum."
        )
    return jnp.reshape(loss, ())


def _checked_predictions(predictions: Any) -> Any:
    if predictions is None:
        return {}
    values = (
        predictions.values() if isinstance(predictions, Mapping) else (predictions,)
    )
    for value in values:
        if not (_is_array(value) or is_host_value(value)):
            raise TypeError(
                "EstimatorSpec: predictions must be an array or a dict of arrays, "
                f"got {type(value).__name__}."
            )
    return predictions


def _checked_metrics(metrics: Mapping[str, Any] | None) -> dict[str, Any]:
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise TypeError(
            "EstimatorSpec: eval_metric_ops must be a dict, "
            f"got {type(metrics).__name__}."
        )
    for name, metric in metrics.items():
        if name in RESERVED_METRICS:
            raise SpecError(
                f"EstimatorSpec: the metric name {name!r} is the Estimator's own."
            )
        if not (hasattr(metric, "merge") and hasattr(metric, "compute")):
            raise TypeError(
                f"EstimatorSpec: metric {name!r} must be a metric value, such as "
                f"ex.metrics.mean(x), got {type(metric).__name__}."
            )
    return dict(metrics)


def _checked_hooks(name: str, hooks: Sequence[Any] | None) -> tuple[Any, ...]:
    for hook in hooks or ():
        # By its methods, not its class: the hooks room is above this one.
        if not (hasattr(hook, "begin") and hasattr(hook, "after_run")):
            raise TypeError(
                f"EstimatorSpec: {name} must be hooks, got {type(hook).__name__}. "
                "Subclass ex.hooks.Hook and override what you need."
            )
    return tuple(hooks or ())


def _checked_exports(spec: EstimatorSpec) -> dict[str, ExportOutput]:
    exports = spec.export_outputs
    if exports is None:
        return {"serving_default": PredictOutput(spec.predictions)}
    if not isinstance(exports, Mapping):
        raise TypeError("EstimatorSpec: export_outputs must be a dict.")
    for name, output in exports.items():
        if not isinstance(output, ExportOutput):
            raise TypeError(
                f"EstimatorSpec: export_outputs[{name!r}] must be a PredictOutput, "
                "ClassificationOutput or RegressionOutput, "
                f"got {type(output).__name__}."
            )
    if len(exports) == 1:
        return {**exports, "serving_default": next(iter(exports.values()))}
    if "serving_default" not in exports:
        raise SpecError(
            "EstimatorSpec: several export_outputs need one named 'serving_default'; "
            f"found {sorted(exports)}."
        )
    return dict(exports)


def _is_array(value: Any) -> bool:
    return isinstance(value, jax.Array | np.ndarray | np.generic)


def _is_empty(predictions: Any) -> bool:
    return isinstance(predictions, Mapping) and not predictions


def _joined(key: Any) -> str:
    return "/".join(key) if isinstance(key, tuple) else str(key)


Mode = Literal["train", "eval", "infer"]


class ModeKeys:
    """The modes a `model_fn` is called with, spelled as tf.estimator spells them.

    >>> ModeKeys.PREDICT
    'infer'
    """

    TRAIN: Final = "train"
    EVAL: Final = "eval"
    PREDICT: Final = "infer"
