"""What a `model_fn` returns: `EstimatorSpec`, its modes and its export outputs.

    def model_fn(features, labels, mode):
        ...
        return ex.EstimatorSpec(mode, predictions=p, loss=loss, train_op=optimizer)

`ModeKeys` lists the modes. `ClassificationOutput`, `RegressionOutput` and
`PredictOutput` describe the signatures of an exported model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import jax
import jax.numpy as jnp
import numpy as np

from estimax.core.device_dtypes import is_host_value
from estimax.core.errors import SpecError

Mode = Literal["train", "eval", "infer"]


class ModeKeys:
    """The modes in which a `model_fn` is called.

    A `model_fn` receives one of these strings as `mode`. Use it to switch parts of the
    model, e.g. dropout only in training. Names and values are those of tf.estimator.

    Attributes:
      TRAIN: `"train"`: `Estimator.train` calls the model; the spec needs a loss and a
        `train_op`.
      EVAL: `"eval"`: `Estimator.evaluate` calls the model; the spec needs a loss.
      PREDICT: `"infer"`: `Estimator.predict` or an export calls the model without
        labels; the spec needs predictions.

    Example:
      >>> ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT
      ('train', 'eval', 'infer')
    """

    TRAIN: Final = "train"
    EVAL: Final = "eval"
    PREDICT: Final = "infer"


_MODES: Final = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)


@dataclass(frozen=True, repr=False)
class EstimatorSpec:
    """What a `model_fn` returns: predictions, loss, how to train, metrics, exports.

    Return one from every `model_fn`. The fields are checked when the spec is made, so
    an error points at the `model_fn`. Which fields are required depends on the mode;
    fields of other modes may be given and are ignored, so one `return` can serve all
    modes. Heads build specs with `head.create_estimator_spec`.

    Args:
      mode: The mode that the `model_fn` was called with, one of `ModeKeys`.
      predictions: An array, or a dict of arrays by name. The first axis is the batch.
        Required to predict and to export.
      loss: The loss to minimize, an array with one element. Required to train and to
        evaluate.
      train_op: How to train: an `ex.optimizers` optimizer, an optax transformation, the
        name of an optimizer, or the result of `ex.minimize`. Required to train.
      eval_metric_ops: Metrics to evaluate by name, each a metric value such as
        `ex.metrics.auc(labels, scores)`. `loss` and `global_step` are reserved, because
        the Estimator reports them itself.
      export_outputs: Signatures of an export by name: `ClassificationOutput`,
        `RegressionOutput` or `PredictOutput`. By default the predictions are exported
        as `serving_default`. A single signature is also used as `serving_default`; of
        several, one must have that name.
      training_chief_hooks: Hooks of training that only the chief process runs.
      training_hooks: Hooks of training that every process runs.
      scaffold: Must be None: there is no graph to finish. Load what its `init_fn`
        loaded with `warm_start_from` of the Estimator.
      evaluation_hooks: Hooks of evaluation.
      prediction_hooks: Hooks of prediction.

    Raises:
      SpecError: The mode is unknown, a field that it needs is missing, the loss has
        more than one element, a scaffold is given, a metric has a reserved name, or
        none of several `export_outputs` is named `serving_default`.
      TypeError: A field has a value of the wrong type.

    Example:
      >>> y = jnp.array([0.2, 0.8])
      >>> EstimatorSpec(ModeKeys.PREDICT, predictions={"y": y})
      EstimatorSpec(mode='infer', predictions={'y': float32[2]},
        export_outputs={'serving_default': PredictOutput({'y': float32[2]})})
      >>> EstimatorSpec(ModeKeys.TRAIN, loss=jnp.mean(y), train_op="SGD").loss.shape
      ()
      >>> EstimatorSpec(ModeKeys.EVAL, predictions={"y": y})
      Traceback (most recent call last):
      estimax.core.errors.SpecError: EstimatorSpec: loss is missing in mode 'eval'.
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Mapping[str, Any] | None = None
    export_outputs: Mapping[str, ExportOutput] | None = None
    training_chief_hooks: Sequence[Any] = ()
    training_hooks: Sequence[Any] = ()
    scaffold: None = None
    evaluation_hooks: Sequence[Any] = ()
    prediction_hooks: Sequence[Any] = ()

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise SpecError(
                "EstimatorSpec: mode must be what the model_fn was called with: "
                "ex.ModeKeys.TRAIN ('train'), EVAL ('eval') or PREDICT ('infer'); got "
                f"{self.mode!r}."
            )
        if self.scaffold is not None:
            raise SpecError(
                "EstimatorSpec: scaffold must be None. There is no session to set up: "
                "give Estimator(warm_start_from=…) what init_fn loads, and a "
                "CheckpointSaverHook in place of a saver."
            )
        self._put("loss", _validate_loss(self.loss))
        self._put("predictions", _validate_predictions(self.predictions))
        self._put("eval_metric_ops", _validate_metrics(self.eval_metric_ops))
        for name in _HOOK_FIELDS:
            self._put(name, _validate_hooks(name, getattr(self, name)))
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
            self._put("export_outputs", _validate_exports(self))

    def _put(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        parts = [f"mode={self.mode!r}"]
        for field in dataclasses.fields(self)[1:]:
            value = getattr(self, field.name)
            is_unset = value is None or (
                isinstance(value, Mapping | tuple) and not value
            )
            if not is_unset:
                parts.append(f"{field.name}={_format_field(value)}")
        lines = ["EstimatorSpec("]
        for i, part in enumerate(parts):
            end = ", " if i < len(parts) - 1 else ")"
            if len(lines[-1]) + len(part) > 84 and i:
                lines[-1] = lines[-1].rstrip()
                lines.append("  ")
            lines[-1] += part + end
        return "\n".join(lines)

    def _replace(self, **changes: Any) -> EstimatorSpec:
        """Return a copy with other fields, checked again; the mode cannot change."""
        if changes.get("mode", self.mode) != self.mode:
            raise SpecError("EstimatorSpec: the mode of a spec cannot be replaced.")
        if "predictions" in changes and self._exports_predictions():
            changes = {"export_outputs": None, **changes}
        return dataclasses.replace(self, **changes)

    def _exports_predictions(self) -> bool:
        """Return whether the exports are the default ones, made of the predictions."""
        exports = self.export_outputs or {}
        default = exports.get("serving_default")
        made_of_them = getattr(default, "outputs", None) is self.predictions
        return len(exports) == 1 and default is not None and made_of_them


@dataclass(frozen=True, repr=False)
class ClassificationOutput:
    """A signature of an exported model that returns classes and their scores.

    Use it in `EstimatorSpec(export_outputs=…)` for clients of TensorFlow Serving's
    `Classify` call. At least one of the two arguments is required.

    Args:
      scores: Float array [B, K], the score of each class.
      classes: Array [B, K] of class names or ids, in the order of the scores.

    Raises:
      SpecError: Both are None.

    Example:
      >>> output = ClassificationOutput(scores=jnp.ones((2, 3)))
      >>> output
      ClassificationOutput({'scores': float32[2, 3]})
    """

    scores: Any = None
    classes: Any = None

    def __post_init__(self) -> None:
        if self.scores is None and self.classes is None:
            raise SpecError("ClassificationOutput: give scores, classes, or both.")

    def __repr__(self) -> str:
        return f"ClassificationOutput({_format_field(self.as_outputs())})"

    def as_outputs(self) -> dict[str, Any]:
        """Return the arrays of the signature by name: `scores`, `classes`."""
        both = {"scores": self.scores, "classes": self.classes}
        return {name: value for name, value in both.items() if value is not None}


@dataclass(frozen=True, repr=False)
class RegressionOutput:
    """A signature of an exported model that returns a number for each example.

    Use it in `EstimatorSpec(export_outputs=…)` for clients of TensorFlow Serving's
    `Regress` call.

    Args:
      value: Float array [B] or [B, D], the prediction for each example.

    Example:
      >>> RegressionOutput(jnp.ones((2, 1)))
      RegressionOutput({'outputs': float32[2, 1]})
    """

    value: Any

    def __repr__(self) -> str:
        return f"RegressionOutput({_format_field(self.as_outputs())})"

    def as_outputs(self) -> dict[str, Any]:
        """Return the array of the signature by its name, `outputs`."""
        return {"outputs": self.value}


@dataclass(frozen=True, repr=False)
class PredictOutput:
    """A signature of an exported model that returns any named arrays.

    Use it in `EstimatorSpec(export_outputs=…)` for clients of TensorFlow Serving's
    `Predict` call.

    Args:
      outputs: A dict of arrays by name, or one array, which is named `output`. The
        first axis is the batch.

    Example:
      >>> PredictOutput({"mean": jnp.ones((2, 1)), "rank": jnp.arange(2)})
      PredictOutput({'mean': float32[2, 1], 'rank': int32[2]})
      >>> list(PredictOutput(jnp.ones((2, 1))).as_outputs())
      ['output']
    """

    outputs: Any

    def __repr__(self) -> str:
        return f"PredictOutput({_format_field(self.as_outputs())})"

    def as_outputs(self) -> dict[str, Any]:
        """Return the arrays by name; a tuple as a key is joined with slashes."""
        if not isinstance(self.outputs, Mapping):
            return {"output": self.outputs}
        return {_join_key(key): value for key, value in self.outputs.items()}


ExportOutput = ClassificationOutput | RegressionOutput | PredictOutput
"""Any output of an exported model, a value of `EstimatorSpec.export_outputs`."""


_HOOK_FIELDS = (
    "training_chief_hooks",
    "training_hooks",
    "evaluation_hooks",
    "prediction_hooks",
)
RESERVED_METRICS = ("loss", "global_step")


def _validate_loss(loss: Any) -> Any:
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


def _validate_predictions(predictions: Any) -> Any:
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


def _validate_metrics(metrics: Mapping[str, Any] | None) -> dict[str, Any]:
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
                f"EstimatorSpec: the metric name {name!r} is reserved, because the "
                "Estimator reports it itself. Use another name."
            )
        if not (hasattr(metric, "merge") and hasattr(metric, "compute")):
            if isinstance(metric, tuple):
                raise TypeError(
                    f"EstimatorSpec: metric {name!r} is a tuple, as of a metric that "
                    "was unpacked into value and update_op. Give what the function of "
                    "ex.metrics returned; of your own sums, make a metric with "
                    "ex.metrics.from_sums."
                )
            raise TypeError(
                f"EstimatorSpec: metric {name!r} must be a metric value, such as "
                f"ex.metrics.mean(x), got {type(metric).__name__}."
            )
    return dict(metrics)


def _validate_hooks(name: str, hooks: Sequence[Any] | None) -> tuple[Any, ...]:
    for hook in hooks or ():
        # Checked by methods, because the `hooks` package is in a higher layer.
        if not (hasattr(hook, "begin") and hasattr(hook, "after_run")):
            raise TypeError(
                f"EstimatorSpec: {name} must be hooks, got {type(hook).__name__}. "
                "Subclass ex.hooks.Hook and override the methods you need."
            )
    return tuple(hooks or ())


def _validate_exports(spec: EstimatorSpec) -> dict[str, ExportOutput]:
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


def _join_key(key: Any) -> str:
    return "/".join(key) if isinstance(key, tuple) else str(key)


def _format_field(value: Any) -> str:
    """Return a short description of a field for `repr`; arrays as `float32[2, 3]`."""
    if isinstance(value, Mapping):
        items = [
            f"{_join_key(key)!r}: {_format_field(item)}" for key, item in value.items()
        ]
        more = [f"… {len(items) - 8} more"] if len(items) > 8 else []
        return f"{{{', '.join(items[:8] + more)}}}"
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return f"[{', '.join(type(item).__name__ for item in value)}]"
    if _is_array(value):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, str | ExportOutput) or is_host_value(value):
        return repr(value)
    name = getattr(value, "name", None)  # of an optimizer
    return f"{type(value).__name__}({name!r})" if name else type(value).__name__
