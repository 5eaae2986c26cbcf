"""`MultiLabelHead`: any number of K classes, K yes/no labels for each example.

head = MultiLabelHead(3, label_vocabulary=["x", "y", "z"], thresholds=[0.5])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import jax

from estimax import metrics
from estimax.core.errors import SpecError, did_you_mean
from estimax.core.spec import ClassificationOutput, ExportOutput, PredictOutput
from estimax.heads import checks
from estimax.heads.binary_class import metrics_at_thresholds
from estimax.heads.head import BaseHead, BatchMetrics, LossFn
from estimax.heads.labels import IndicatorLabels, all_classes, words_of
from estimax.heads.weights import WeightColumn
from estimax.metrics.losses import multi_label_cross_entropy


@final
@dataclass(frozen=True, repr=False)
class MultiLabelHead(BaseHead):
    """Head for K >= 2 classes of which an example has any number; logits [B, K].

    Use it for tags. The loss of an example is the mean of K sigmoid cross entropies. If
    every example has exactly one class, use `MultiClassHead`.

    Labels are indicators [B, K] within [0, 1], or `Sparse` class ids or words of
    `label_vocabulary`. Metrics pool all pairs of example and class: average_loss, auc,
    auc_precision_recall, and those of `thresholds` and
    `classes_for_class_based_metrics`. Predictions: logits, probabilities, classes.

    Args:
      n_classes: The number of classes K, at least 2.
      weight_column: Key of the feature with the example weights, or a numeric column.
        The feature has shape [B] or [B, 1]. By default every example weighs 1.
      thresholds: Numbers strictly between 0 and 1. Each adds the accuracy, precision
        and recall of `probability > threshold`.
      label_vocabulary: K words in the order of the class ids, if labels are text.
      loss_reduction: "sum_over_batch_size" (the weighted sum divided by the number of
        examples), "sum", or "auto", which is "sum_over_batch_size".
      loss_fn: Function of `labels` (indicators [B, K]) and `logits` [B, K], and
        optionally `features`, that returns losses [B, 1]. By default
        `losses.multi_label_cross_entropy`.
      classes_for_class_based_metrics: Class ids, or words of `label_vocabulary`. Each
        adds the mean probability, auc and auc_precision_recall of that class.
      name: Suffix of metrics and summaries, as in `auc/<name>`. `MultiHead` needs it.

    Raises:
      SpecError: `n_classes` is less than 2, or `thresholds`, `label_vocabulary`,
        `loss_reduction`, `loss_fn` or `classes_for_class_based_metrics` is not as
        described.
      TypeError: `weight_column` is neither a key nor a numeric column.

    Example:
      >>> head = MultiLabelHead(2, thresholds=[0.5])
      >>> labels, logits = [[1, 1], [0, 1]], [[9.0, 9.0], [9.0, 9.0]]
      >>> round(float(head.loss(labels, logits)), 2)
      2.25
      >>> seen = head.update_metrics(head.metrics(), {}, logits, labels)
      >>> float(seen["precision/positive_threshold_0.5"].compute())
      0.75
    """

    n_classes: int
    weight_column: WeightColumn | None = None
    thresholds: Sequence[float] | None = None
    label_vocabulary: Sequence[str] | None = None
    loss_reduction: str = "sum_over_batch_size"
    loss_fn: LossFn | None = None
    classes_for_class_based_metrics: Sequence[int | str] | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.n_classes, int) or self.n_classes < 2:
            raise SpecError(
                f"{self._title}: n_classes must be an integer of at least 2, got "
                f"{self.n_classes}. For one yes/no label use BinaryClassHead."
            )
        super().__post_init__()
        checks.check_loss_fn(self._title, self.loss_fn)
        thresholds = checks.validate_thresholds(self._title, self.thresholds)
        self._set("thresholds", thresholds)
        words = checks.validate_vocabulary(
            self._title, self.label_vocabulary, self.n_classes
        )
        self._set("label_vocabulary", words)
        chosen = tuple(self.classes_for_class_based_metrics or ())
        self._set("classes_for_class_based_metrics", chosen)
        for chosen_class in chosen:
            self._class_id(chosen_class)

    @property
    def logits_dimension(self) -> int:
        return self.n_classes

    @property
    def label_dimension(self) -> int:
        return self.n_classes

    @property
    def label_rule(self) -> IndicatorLabels:
        return IndicatorLabels(self._title, self.n_classes, self._vocabulary)

    def example_losses(
        self, labels: jax.Array, logits: jax.Array, features: Any
    ) -> jax.Array:
        loss_fn = self.loss_fn or multi_label_cross_entropy
        return checks.call_loss_fn(self._title, loss_fn, labels, logits, features, 1)

    def all_predictions(self, logits: jax.Array) -> dict[str, Any]:
        return {
            "logits": logits,
            "probabilities": jax.nn.sigmoid(logits),
            "classes": all_classes(logits, words_of(self.n_classes, self._vocabulary)),
        }

    def batch_metrics(
        self,
        labels: jax.Array,
        logits: jax.Array,
        losses: jax.Array,
        weights: jax.Array | None,
    ) -> BatchMetrics:
        p = jax.nn.sigmoid(logits)
        measured: BatchMetrics = {
            "average_loss": metrics.mean(losses, weights),
            "auc": metrics.auc(labels, p, weights),
            "auc_precision_recall": metrics.auc(labels, p, weights, curve="PR"),
            **metrics_at_thresholds(self.thresholds, labels, p, weights),
        }
        for chosen in self.classes_for_class_based_metrics or ():
            measured |= self._class_metrics(self._class_id(chosen), labels, p, weights)
        return measured

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        classification = ClassificationOutput(
            predictions["probabilities"], predictions["classes"]
        )
        return {
            "serving_default": classification,
            "classification": classification,
            "predict": PredictOutput(predictions),
        }

    def _class_metrics(
        self,
        class_id: int,
        labels: jax.Array,
        probabilities: jax.Array,
        weights: jax.Array | None,
    ) -> BatchMetrics:
        """Return the metrics of one class, from its column of labels and scores."""
        column = slice(class_id, class_id + 1)
        z, p = labels[..., column], probabilities[..., column]
        shown = (
            f"class{class_id}"
            if self._vocabulary is None
            else self._vocabulary[class_id]
        )
        return {
            f"probability_mean/{shown}": metrics.mean(p, weights),
            f"auc/{shown}": metrics.auc(z, p, weights),
            f"auc_precision_recall/{shown}": metrics.auc(z, p, weights, curve="PR"),
        }

    def _class_id(self, chosen: int | str) -> int:
        """Return the id of a class in `classes_for_class_based_metrics`."""
        if isinstance(chosen, str):
            if self._vocabulary is None or chosen not in self._vocabulary:
                near = did_you_mean(chosen, self._vocabulary or ())
                raise SpecError(
                    f"{self._title}: classes_for_class_based_metrics names {chosen!r}, "
                    f"which is not in label_vocabulary{near}"
                )
            return self._vocabulary.index(chosen)
        if not 0 <= chosen < self.n_classes:
            raise SpecError(
                f"{self._title}: classes_for_class_based_metrics has {chosen}; class "
                f"ids are 0 to {self.n_classes - 1}."
            )
        return chosen
