"""`MultiClassHead`: one of K exclusive classes, decided by the largest logit.

head = MultiClassHead(3, label_vocabulary=["red", "green", "blue"])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import jax
import jax.numpy as jnp

from estimax import metrics
from estimax.core.device_dtypes import Int64, Words
from estimax.core.errors import SpecError
from estimax.core.spec import ClassificationOutput, ExportOutput, PredictOutput
from estimax.heads import checks
from estimax.heads.head import BaseHead, BatchMetrics, LossFn
from estimax.heads.kept_sums import accuracy_with_table, average_loss
from estimax.heads.labels import ClassLabels, all_class_ids, all_classes, words_of
from estimax.heads.weights import ClassWeights, WeightColumn
from estimax.metrics.losses import (
    sparse_focal_cross_entropy,
    sparse_softmax_cross_entropy,
)


@final
@dataclass(frozen=True, repr=False)
class MultiClassHead(BaseHead):
    """Head for K > 2 exclusive classes: softmax cross entropy of logits [B, K].

    Use it if every example has exactly one class. For two classes use
    `BinaryClassHead`; for several classes of one example, `MultiLabelHead`.

    Labels have shape [B] or [B, 1]. They are class ids from 0 to K - 1, or words of
    `label_vocabulary`. Metrics: average_loss, accuracy. Predictions: logits,
    probabilities, class_ids, classes, all_class_ids, all_classes.

    Args:
      n_classes: The number of classes K, at least 3.
      weight_column: Key of the feature with the example weights, or a numeric column.
        The feature has shape [B] or [B, 1]. By default every example weighs 1.
      label_vocabulary: K words in the order of the class ids, if labels are text.
      loss_reduction: "sum_over_batch_size" (the weighted sum divided by the number of
        examples), "sum", or "auto", which is "sum_over_batch_size".
      loss_fn: Function of `labels` (ids, int32 [B, 1]) and `logits` [B, K], and
        optionally `features`, that returns losses [B, 1]; see `ex.heads.losses`. By
        default softmax cross entropy.
      focal_gamma: Multiply the loss of each example by (1 - p)^focal_gamma, with p the
        probability of its label (focal loss): 2 is usual. None: cross entropy. It
        cannot be given together with `loss_fn`.
      class_weights: How much the loss of an example of each class counts: a dict from
        class id, or word of `label_vocabulary`, to a weight, such as {2: 5.0}; classes
        that it leaves out weigh 1. Or a weight for each class in the order of the ids.
        Metrics other than average_loss are not weighted.
      name: Suffix of metrics and summaries, as in `accuracy/<name>`. `MultiHead` needs
        it.

    Raises:
      SpecError: `n_classes` is less than 3, or `label_vocabulary`, `loss_reduction`,
        `loss_fn`, `focal_gamma` or `class_weights` is not as described.
      TypeError: `weight_column` is neither a key nor a numeric column.

    Example:
      >>> head = MultiClassHead(3, label_vocabulary=["red", "green", "blue"])
      >>> logits = jnp.array([[0.0, 5.0, 1.0]])
      >>> round(float(head.loss(labels=["green"], logits=logits)), 4)
      0.0247
      >>> head.predictions(logits, keys=["probabilities"])["probabilities"].shape
      (1, 3)
    """

    n_classes: int
    weight_column: WeightColumn | None = None
    label_vocabulary: Sequence[str] | None = None
    loss_reduction: str = "sum_over_batch_size"
    loss_fn: LossFn | None = None
    name: str | None = None
    focal_gamma: float | None = None
    class_weights: ClassWeights | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.n_classes, int) or self.n_classes <= 2:
            raise SpecError(
                f"{self._title}: n_classes must be an integer above 2, got "
                f"{self.n_classes}. For two classes use BinaryClassHead."
            )
        super().__post_init__()
        checks.check_loss_fn(self._title, self.loss_fn)
        words = checks.validate_vocabulary(
            self._title, self.label_vocabulary, self.n_classes
        )
        self._set("label_vocabulary", words)
        checks.check_focal_gamma(self._title, self.focal_gamma, self.loss_fn)
        weights = checks.validate_class_weights(
            self._title, self.class_weights, self.n_classes, words
        )
        self._set("class_weights", weights)

    @property
    def logits_dimension(self) -> int:
        return self.n_classes

    @property
    def label_rule(self) -> ClassLabels:
        return ClassLabels(self._title, self.n_classes, self._vocabulary)

    def example_losses(
        self, labels: jax.Array, logits: jax.Array, features: Any
    ) -> jax.Array:
        loss_fn = self.loss_fn or sparse_softmax_cross_entropy
        if self.focal_gamma is not None:
            loss_fn = partial(sparse_focal_cross_entropy, gamma=self.focal_gamma)
        losses = checks.call_loss_fn(self._title, loss_fn, labels, logits, features, 1)
        weights = self.example_class_weights(labels)
        return losses if weights is None else losses * weights

    def example_class_weights(self, labels: jax.Array) -> jax.Array | None:
        """Return the class weight of every example; None if all classes weigh 1.

        Args:
          labels: Checked class ids, [B, 1].
        """
        weights: Any = self.class_weights  # a tuple since the constructor
        return None if weights is None else jnp.asarray(weights, jnp.float32)[labels]

    def all_predictions(self, logits: jax.Array) -> dict[str, Any]:
        words = words_of(self.n_classes, self._vocabulary)
        class_ids = _argmax(logits)
        return {
            "logits": logits,
            "probabilities": jax.nn.softmax(logits, axis=-1),
            "class_ids": Int64(class_ids),
            "classes": Words(class_ids, words),
            "all_class_ids": all_class_ids(logits, self.n_classes),
            "all_classes": all_classes(logits, words),
        }

    def batch_metrics(
        self,
        labels: jax.Array,
        logits: jax.Array,
        losses: jax.Array,
        weights: jax.Array | None,
    ) -> BatchMetrics:
        loss: metrics.Metric = metrics.mean(losses, weights)
        if (self.loss_fn, self.focal_gamma, self.class_weights) == (None, None, None):
            loss = average_loss(
                losses,
                labels,
                weights,
                baseline="class_entropy",
                classes=self.n_classes,
            )
        return {
            "average_loss": loss,
            "accuracy": accuracy_with_table(
                labels, _argmax(logits), weights, classes=self.n_classes
            ),
        }

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        classification = ClassificationOutput(
            predictions["probabilities"], predictions["all_classes"]
        )
        return {
            "serving_default": classification,
            "classification": classification,
            "predict": PredictOutput(predictions),
        }


def _argmax(logits: jax.Array) -> jax.Array:
    """Return the class of the largest logit, [..., 1]; the first one wins a tie."""
    return jnp.argmax(logits, axis=-1, keepdims=True).astype(jnp.int32)
