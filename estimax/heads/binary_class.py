"""`BinaryClassHead`: two classes, decided by the sign of one logit.

head = BinaryClassHead(label_vocabulary=["no", "yes"], thresholds=[0.3])
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, final

import jax
import jax.numpy as jnp

from estimax import metrics
from estimax.core.device_dtypes import Int64, Words
from estimax.core.errors import SpecError
from estimax.core.spec import (
    ClassificationOutput,
    ExportOutput,
    PredictOutput,
    RegressionOutput,
)
from estimax.heads import checks
from estimax.heads.head import BaseHead, BatchMetrics, LossFn
from estimax.heads.kept_sums import average_loss
from estimax.heads.labels import NumberLabels, all_class_ids, all_classes, words_of
from estimax.heads.weights import ClassWeights, WeightColumn
from estimax.metrics.losses import focal_cross_entropy, sigmoid_cross_entropy
from estimax.v1 import metrics as v1_metrics


@final
@dataclass(frozen=True, repr=False)
class BinaryClassHead(BaseHead):
    """Head for two classes: sigmoid cross entropy of one logit, [B, 1].

    Use it for yes/no labels, such as clicks. For K > 2 exclusive classes use
    `MultiClassHead`; for several yes/no labels of one example, `MultiLabelHead`.

    Labels have shape [B] or [B, 1]. They are 0 or 1 (a value between is a soft label),
    or words of `label_vocabulary`. Metrics: average_loss, accuracy, precision, recall,
    prediction/mean, label/mean, accuracy_baseline, auc, auc_precision_recall, and those
    of `thresholds`. Predictions: logits, logistic, probabilities, class_ids, classes,
    all_class_ids, all_classes.

    Args:
      weight_column: Key of the feature with the example weights, or a numeric column.
        The feature has shape [B] or [B, 1]. By default every example weighs 1.
      thresholds: Numbers strictly between 0 and 1. Each adds the accuracy, precision
        and recall of predicting class 1 for `logistic > threshold`.
      label_vocabulary: The words of class 0 and class 1, if labels are text.
      loss_reduction: "sum_over_batch_size" (the weighted sum divided by the number of
        examples), "sum", or "auto", which is "sum_over_batch_size".
      loss_fn: Function of `labels` [B, 1] and `logits` [B, 1], and optionally
        `features`, that returns losses [B, 1]; see `ex.heads.losses`. By default
        sigmoid cross entropy.
      focal_gamma: Multiply the loss of each example by (1 - p)^focal_gamma, with p the
        probability of its label (focal loss): 2 is usual. None: cross entropy. It
        cannot be given together with `loss_fn`.
      class_weights: How much the loss of an example of each class counts: a dict from
        class id, or word of `label_vocabulary`, to a weight, such as {1: 5.0}; classes
        that it leaves out weigh 1. Or a weight for each class in the order of the ids.
        Metrics other than average_loss are not weighted.
      sampling_rate: The share of the examples of class 0 that was kept in the training
        data, within (0, 1]. Predictions and metrics are corrected: their odds are
        multiplied by it, which is what they would be on all examples. The loss of the
        training is not corrected. Evaluate on all examples of class 0. None: all.
      name: Suffix of metrics and summaries, as in `auc/<name>`. `MultiHead` needs it.
      compat: "v1" computes the areas under curves as the heads of tf.compat.v1 did:
        smoothed, and with trapezoids for precision and recall. "v2" is Keras' way.

    Raises:
      SpecError: A threshold, `loss_reduction`, `loss_fn`, `label_vocabulary`,
        `focal_gamma`, `class_weights`, `sampling_rate` or `compat` is not as described.
      TypeError: `weight_column` is neither a key nor a numeric column.

    Example:
      >>> head = BinaryClassHead(name="click")
      >>> logits = jnp.array([[2.0], [-1.0]])
      >>> round(float(head.loss(labels=[1, 0], logits=logits)), 4)
      0.2201
      >>> head.predictions([[0.0]], keys=["logistic"])["logistic"].tolist()
      [[0.5]]
      >>> seen = head.update_metrics(head.metrics(), {}, logits, [1, 0])
      >>> float(seen["accuracy/click"].compute())
      1.0
      >>> one_in_ten = BinaryClassHead(sampling_rate=0.1)  # of the negatives was kept
      >>> chance = one_in_ten.predictions([[0.0]], keys=["logistic"])["logistic"]
      >>> round(float(chance[0, 0]), 4)  # 1 / 11 instead of 1 / 2
      0.0909
    """

    weight_column: WeightColumn | None = None
    thresholds: Sequence[float] | None = None
    label_vocabulary: Sequence[str] | None = None
    loss_reduction: str = "sum_over_batch_size"
    loss_fn: LossFn | None = None
    name: str | None = None
    compat: Literal["v1", "v2"] = "v2"
    focal_gamma: float | None = None
    class_weights: ClassWeights | None = None
    sampling_rate: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.check_loss_fn(self._title, self.loss_fn)
        if self.compat not in ("v1", "v2"):
            raise SpecError(
                f"{self._title}: compat must be 'v1' or 'v2', got {self.compat!r}."
            )
        thresholds = checks.validate_thresholds(self._title, self.thresholds)
        self._set("thresholds", thresholds)
        words = checks.validate_vocabulary(self._title, self.label_vocabulary)
        self._set("label_vocabulary", words)
        if words is not None and len(words) != 2:
            raise SpecError(
                f"{self._title}: label_vocabulary must have 2 words, for the labels 0 "
                f"and 1, got {len(words)}. For K classes use MultiClassHead(K), or "
                "n_classes=K in a canned model."
            )
        checks.check_focal_gamma(self._title, self.focal_gamma, self.loss_fn)
        weights = checks.validate_class_weights(
            self._title, self.class_weights, 2, self._vocabulary
        )
        self._set("class_weights", weights)
        checks.check_sampling_rate(self._title, self.sampling_rate)

    @property
    def logits_dimension(self) -> int:
        return 1

    @property
    def label_rule(self) -> NumberLabels:
        return NumberLabels(self._title, 0.0, 1.0, self._vocabulary)

    def example_losses(
        self, labels: jax.Array, logits: jax.Array, features: Any
    ) -> jax.Array:
        loss_fn = self.loss_fn or sigmoid_cross_entropy
        if self.focal_gamma is not None:
            loss_fn = partial(focal_cross_entropy, alpha=None, gamma=self.focal_gamma)
        losses = checks.call_loss_fn(self._title, loss_fn, labels, logits, features, 1)
        weights = self.example_class_weights(labels)
        return losses if weights is None else losses * weights

    def example_class_weights(self, labels: jax.Array) -> jax.Array | None:
        """Return the class weight of every example; None if all classes weigh 1.

        Args:
          labels: Checked labels, [B, 1]; one between 0 and 1 has a weight between.
        """
        weights: Any = self.class_weights  # a tuple since the constructor
        if weights is None:
            return None
        no, yes = weights
        return jnp.asarray(no + (yes - no) * labels)

    @property
    def logit_shift(self) -> float:
        """What is added to the logits for predictions and metrics."""
        return 0.0 if self.sampling_rate is None else math.log(self.sampling_rate)

    def _corrected(self, logits: jax.Array) -> jax.Array:
        return logits + self.logit_shift if self.logit_shift else logits

    def all_predictions(self, logits: jax.Array) -> dict[str, Any]:
        words = words_of(2, self._vocabulary)
        # Compare the logit and not its sigmoid, which rounds to 0.5 for a tiny logit.
        class_ids = (logits > 0).astype(jnp.int32)
        two_classes = jnp.concatenate([jnp.zeros_like(logits), logits], axis=-1)
        return {
            "logits": logits,
            "logistic": jax.nn.sigmoid(logits),
            "probabilities": jax.nn.softmax(two_classes, axis=-1),
            "class_ids": Int64(class_ids),
            "classes": Words(class_ids, words),
            "all_class_ids": all_class_ids(logits, 2),
            "all_classes": all_classes(logits, words),
        }

    def batch_metrics(
        self,
        labels: jax.Array,
        logits: jax.Array,
        losses: jax.Array,
        weights: jax.Array | None,
    ) -> BatchMetrics:
        logistic = jax.nn.sigmoid(logits)
        class_ids = (logits > 0).astype(jnp.float32)
        auc = v1_metrics.auc if self.compat == "v1" else metrics.auc
        return {
            "average_loss": self._average_loss(losses, labels, weights),
            "accuracy": metrics.accuracy(labels, class_ids, weights),
            "precision": metrics.precision(labels, class_ids, weights),
            "recall": metrics.recall(labels, class_ids, weights),
            "prediction/mean": metrics.mean(logistic, weights),
            "label/mean": metrics.mean(labels, weights),
            "accuracy_baseline": metrics.accuracy_baseline(labels, weights),
            "auc": auc(labels, logistic, weights),
            "auc_precision_recall": auc(labels, logistic, weights, curve="PR"),
            **metrics_at_thresholds(self.thresholds, labels, logistic, weights),
        }

    def _average_loss(
        self, losses: jax.Array, labels: jax.Array, weights: jax.Array | None
    ) -> metrics.Metric:
        if (self.loss_fn, self.focal_gamma, self.class_weights) != (None, None, None):
            return metrics.mean(losses, weights)
        return average_loss(losses, labels, weights, baseline="entropy")

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        classification = ClassificationOutput(
            predictions["probabilities"], predictions["all_classes"]
        )
        return {
            "serving_default": classification,
            "classification": classification,
            "regression": RegressionOutput(predictions["logistic"]),
            "predict": PredictOutput(predictions),
        }


def metrics_at_thresholds(
    thresholds: Sequence[float] | None,
    labels: jax.Array,
    probabilities: jax.Array,
    weights: jax.Array | None,
) -> BatchMetrics:
    """Return accuracy, precision and recall of `probability > t` for each t."""
    measured: BatchMetrics = {}
    for t in thresholds or ():
        given = labels, probabilities, weights
        at = f"positive_threshold_{t:g}"
        measured[f"accuracy/{at}"] = metrics.binary_accuracy(*given, threshold=t)
        measured[f"precision/{at}"] = metrics.precision(*given, thresholds=t)
        measured[f"recall/{at}"] = metrics.recall(*given, thresholds=t)
    return measured
