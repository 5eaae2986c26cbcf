"""Heads that predict numbers: `RegressionHead`, and two with another loss.

head = RegressionHead(label_dimension=2)
head = PoissonRegressionHead()          # counts: logits are logs of rates
head = LogisticRegressionHead()         # labels in [0, 1], regression metrics

The three differ only in the loss, the inverse link (from logits to predictions) and the
range of labels. Functions below the classes implement what they have in common.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp

from estimax import metrics
from estimax.core.errors import SpecError
from estimax.core.spec import ExportOutput, PredictOutput, RegressionOutput
from estimax.heads import checks
from estimax.heads.head import BaseHead, BatchMetrics, LossFn
from estimax.heads.kept_sums import average_loss
from estimax.heads.labels import NumberLabels
from estimax.heads.weights import WeightColumn, weights_for
from estimax.metrics.losses import poisson, sigmoid_cross_entropy, squared_error

InverseLink = Callable[[jax.Array], jax.Array]


@final
@dataclass(frozen=True, repr=False)
class RegressionHead(BaseHead):
    """Head for D numbers for each example: squared error of logits [B, D].

    Use it to predict any real numbers. For counts, `PoissonRegressionHead` fits better;
    for numbers within [0, 1], `LogisticRegressionHead`.

    Labels have shape [B, D], or [B] if D is 1. Metrics: average_loss, prediction/mean,
    label/mean. Predictions: predictions, and logits if `inverse_link_fn` is given.

    Args:
      label_dimension: How many numbers D an example has.
      weight_column: Key of the feature with the weights, or a numeric column. The
        feature has shape [B] or [B, 1], or [B, D] to weigh every number on its own. By
        default all weigh 1.
      loss_reduction: "sum_over_batch_size" (the weighted sum divided by B * D), "sum",
        or "auto", which is "sum_over_batch_size".
      loss_fn: Function of `labels` [B, D] and `logits` [B, D], and optionally
        `features`, that returns losses [B, D]; see `ex.heads.losses`. By default the
        squared error.
      inverse_link_fn: Function from logits to predictions, [B, D] to [B, D]. The loss
        is computed from the logits. By default predictions are the logits.
      name: Suffix of metrics and summaries, as in `average_loss/<name>`. `MultiHead`
        needs it.
      label_mean: Subtracted from the labels before the loss is computed. Set it and
        `label_std` to the mean and standard deviation of the labels, so that the loss
        begins near 1 and the usual learning rates suit. Predictions, average_loss,
        label/mean and prediction/mean keep the unit of the labels.
      label_std: Divides the labels after `label_mean` was subtracted.

    Raises:
      SpecError: `label_dimension` is less than 1, `loss_reduction` or `loss_fn` is not
        as described, `label_std` is not above 0, or labels are scaled and there is a
        `loss_fn` or `inverse_link_fn`.
      TypeError: `weight_column` is neither a key nor a numeric column.

    Example:
      >>> head = RegressionHead(weight_column="w")
      >>> logits, features = [[1.0], [2.0]], {"w": [1.0, 0.5]}
      >>> float(head.loss([3.0, 2.0], logits, features))
      2.0
      >>> head.predictions(logits)["predictions"].tolist()
      [[1.0], [2.0]]
      >>> prices = RegressionHead(label_mean=100.0, label_std=20.0)
      >>> prices.predictions([[0.5]])["predictions"].tolist()
      [[110.0]]
      >>> float(prices.loss([120.0], [[0.5]]))
      0.25
    """

    label_dimension: int = 1
    weight_column: WeightColumn | None = None
    loss_reduction: str = "sum_over_batch_size"
    loss_fn: LossFn | None = None
    inverse_link_fn: InverseLink | None = None
    name: str | None = None
    label_mean: float = 0.0
    label_std: float = 1.0

    def __post_init__(self) -> None:
        _check_dimension(self._title, self.label_dimension)
        super().__post_init__()
        checks.check_loss_fn(self._title, self.loss_fn)
        self._check_scaling()

    @property
    def logits_dimension(self) -> int:
        return self.label_dimension

    def example_losses(
        self, labels: jax.Array, logits: jax.Array, features: Any
    ) -> jax.Array:
        loss_fn, width = self.loss_fn or squared_error, self.label_dimension
        if self.is_scaled:
            labels = (labels - self.label_mean) / self.label_std
        return checks.call_loss_fn(
            self._title, loss_fn, labels, logits, features, width
        )

    def all_predictions(self, logits: jax.Array) -> dict[str, Any]:
        if self.is_scaled:
            return {"predictions": logits * self.label_std + self.label_mean}
        if self.inverse_link_fn is None:
            return {"predictions": logits}
        return {"predictions": self.inverse_link_fn(logits), "logits": logits}

    def batch_metrics(
        self,
        labels: jax.Array,
        logits: jax.Array,
        losses: jax.Array,
        weights: jax.Array | None,
    ) -> BatchMetrics:
        predicted = self.all_predictions(logits)["predictions"]
        measured = _batch_metrics(labels, predicted, losses, weights)
        if self.loss_fn is None:
            losses = losses * self.label_std**2  # in the unit of the labels, squared
            measured["average_loss"] = average_loss(
                losses, labels, weights, baseline="variance"
            )
        return measured

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        return _export_outputs(predictions)

    def _weights(self, features: Any, logits: jax.Array) -> jax.Array | None:
        return _weights(self, features, logits)

    @property
    def is_scaled(self) -> bool:
        """Whether `label_mean` and `label_std` change the labels."""
        return (self.label_mean, self.label_std) != (0.0, 1.0)

    def _check_scaling(self) -> None:
        if not (math.isfinite(self.label_mean) and 0 < self.label_std < math.inf):
            raise SpecError(
                f"{self._title}: label_mean must be a finite number and label_std "
                f"above 0, got {self.label_mean} and {self.label_std}."
            )
        if self.is_scaled and (self.loss_fn or self.inverse_link_fn):
            raise SpecError(
                f"{self._title}: label_mean and label_std cannot be combined with "
                "loss_fn or inverse_link_fn; scale the labels in the input instead."
            )


@final
@dataclass(frozen=True, repr=False)
class PoissonRegressionHead(BaseHead):
    """Head for counts: Poisson loss of logits [B, D], the logs of the rates.

    Use it for labels 0, 1, 2, … such as visits in an hour. Predictions are the rates,
    exp(logits).

    Labels have shape [B, D], or [B] if D is 1. Metrics: average_loss, prediction/mean,
    label/mean. Predictions: predictions, logits.

    Args:
      label_dimension: How many counts D an example has.
      weight_column: Key of the feature with the weights, or a numeric column. The
        feature has shape [B] or [B, 1], or [B, D] to weigh every count on its own. By
        default all weigh 1.
      loss_reduction: "sum_over_batch_size" (the weighted sum divided by B * D), "sum",
        or "auto", which is "sum_over_batch_size".
      compute_full_loss: Whether the loss includes log(label!), which is approximated
        and does not depend on the logits.
      name: Suffix of metrics and summaries, as in `average_loss/<name>`. `MultiHead`
        needs it.

    Raises:
      SpecError: `label_dimension` is less than 1, or `loss_reduction` is unknown.
      TypeError: `weight_column` is neither a key nor a numeric column.

    Example:
      >>> head = PoissonRegressionHead()
      >>> head.predictions([[0.0]])["predictions"].tolist()
      [[1.0]]
      >>> float(head.loss(labels=[1], logits=[[0.0]]))
      1.0
    """

    label_dimension: int = 1
    weight_column: WeightColumn | None = None
    loss_reduction: str = "sum_over_batch_size"
    compute_full_loss: bool = True
    name: str | None = None

    def __post_init__(self) -> None:
        _check_dimension(self._title, self.label_dimension)
        super().__post_init__()

    @property
    def logits_dimension(self) -> int:
        return self.label_dimension

    def example_losses(
        self, labels: jax.Array, logits: jax.Array, features: Any
    ) -> jax.Array:
        return poisson(labels, logits, compute_full_loss=self.compute_full_loss)

    def all_predictions(self, logits: jax.Array) -> dict[str, Any]:
        return {"predictions": jnp.exp(logits), "logits": logits}

    def batch_metrics(
        self,
        labels: jax.Array,
        logits: jax.Array,
        losses: jax.Array,
        weights: jax.Array | None,
    ) -> BatchMetrics:
        return _batch_metrics(labels, jnp.exp(logits), losses, weights)

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        return _export_outputs(predictions)

    def _weights(self, features: Any, logits: jax.Array) -> jax.Array | None:
        return _weights(self, features, logits)


@final
@dataclass(frozen=True, repr=False)
class LogisticRegressionHead(BaseHead):
    """Head for a number within [0, 1]: sigmoid cross entropy of one logit, [B, 1].

    Use it for rates, such as observed click-through rates. Metrics and serving
    signatures are those of a regression; for classes use `BinaryClassHead`.

    Labels have shape [B] or [B, 1]. Metrics: average_loss, prediction/mean, label/mean.
    Predictions: predictions, logits.

    Args:
      weight_column: Key of the feature with the example weights, or a numeric column.
        The feature has shape [B] or [B, 1]. By default every example weighs 1.
      loss_reduction: "sum_over_batch_size" (the weighted sum divided by the number of
        examples), "sum", or "auto", which is "sum_over_batch_size".
      name: Suffix of metrics and summaries, as in `average_loss/<name>`. `MultiHead`
        needs it.

    Raises:
      SpecError: `loss_reduction` is unknown.
      TypeError: `weight_column` is neither a key nor a numeric column.

    Example:
      >>> head = LogisticRegressionHead()
      >>> head.predictions([[0.0]])["predictions"].tolist()
      [[0.5]]
      >>> round(float(head.loss(labels=[0.25], logits=[[0.0]])), 4)
      0.6931
    """

    weight_column: WeightColumn | None = None
    loss_reduction: str = "sum_over_batch_size"
    name: str | None = None

    @property
    def logits_dimension(self) -> int:
        return 1

    @property
    def label_rule(self) -> NumberLabels:
        return NumberLabels(self._title, 0.0, 1.0)

    def example_losses(
        self, labels: jax.Array, logits: jax.Array, features: Any
    ) -> jax.Array:
        return sigmoid_cross_entropy(labels, logits)

    def all_predictions(self, logits: jax.Array) -> dict[str, Any]:
        return {"predictions": jax.nn.sigmoid(logits), "logits": logits}

    def batch_metrics(
        self,
        labels: jax.Array,
        logits: jax.Array,
        losses: jax.Array,
        weights: jax.Array | None,
    ) -> BatchMetrics:
        measured = _batch_metrics(labels, jax.nn.sigmoid(logits), losses, weights)
        loss = average_loss(losses, labels, weights, baseline="entropy")
        return {**measured, "average_loss": loss}

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        return _export_outputs(predictions)


def _check_dimension(head: str, dimension: object) -> None:
    if not isinstance(dimension, int) or dimension < 1:
        raise SpecError(
            f"{head}: label_dimension must be an integer of at least 1, got "
            f"{dimension}."
        )


def _weights(
    head: RegressionHead | PoissonRegressionHead, features: Any, logits: jax.Array
) -> jax.Array | None:
    """Return the weights, [B, 1] or one for every number, [B, D]."""
    return weights_for(
        head._title, head.weight_column, features, logits, per_output=True
    )


def _batch_metrics(
    labels: jax.Array,
    predictions: jax.Array,
    losses: jax.Array,
    weights: jax.Array | None,
) -> BatchMetrics:
    return {
        "average_loss": metrics.mean(losses, weights),
        "prediction/mean": metrics.mean(predictions, weights),
        "label/mean": metrics.mean(labels, weights),
    }


def _export_outputs(predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
    regression = RegressionOutput(predictions["predictions"])
    return {
        "serving_default": regression,
        "regression": regression,
        "predict": PredictOutput(predictions),
    }
