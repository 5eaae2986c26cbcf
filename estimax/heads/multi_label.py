"""Any number of K classes an example: K yes/no questions under one loss.

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
from estimax.heads import checks, members
from estimax.heads.binary_class import at_thresholds
from estimax.heads.head import (
    Logits,
    LossFn,
    Measured,
)
from estimax.heads.labels import IndicatorLabels, all_classes, words_of
from estimax.heads.losses import multi_label_cross_entropy
from estimax.heads.make_spec import make_spec
from estimax.heads.scoring import Rules, Scored, parts_of
from estimax.heads.weights import WeightColumn


@final
@dataclass(frozen=True)
class MultiLabelHead:
    """K >= 2 classes of which an example has any number; logits [B, K].

    Labels are 0/1 indicators [B, K] (fractions are accepted), or sparse class ids or
    words of `label_vocabulary`. Metrics pool all (example, class) pairs; name classes
    in `classes_for_class_based_metrics` to have theirs apart.

    >>> head = MultiLabelHead(2)
    >>> float(head.loss(labels=[[1, 1]], logits=[[9.0, 9.0]])) < 0.001
    True
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
        self._rules.check(self.loss_reduction)
        checks.put(
            self, "thresholds", checks.checked_thresholds(self._title, self.thresholds)
        )
        words = checks.checked_vocabulary(
            self._title, self.label_vocabulary, self.n_classes
        )
        checks.put(self, "label_vocabulary", words)
        chosen = tuple(self.classes_for_class_based_metrics or ())
        checks.put(self, "classes_for_class_based_metrics", chosen)
        for chosen_class in chosen:
            self._class_id(chosen_class)

    @property
    def logits_dimension(self) -> int:
        """One logit a class."""
        return self.n_classes

    def predictions(
        self, logits: Logits, keys: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Logits, the probability of each class, and the names of all classes."""
        x = checks.checked_logits(self._title, logits, self.n_classes)
        every = {
            "logits": x,
            "probabilities": jax.nn.sigmoid(x),
            "classes": all_classes(x, words_of(self.n_classes, self._words)),
        }
        return checks.selected(self._title, every, keys)

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        """Served as a classification, or all predictions."""
        classification = ClassificationOutput(
            predictions["probabilities"], predictions["classes"]
        )
        return {
            "serving_default": classification,
            "classification": classification,
            "predict": PredictOutput(predictions),
        }

    loss = members.loss
    metrics = members.fresh
    update_metrics = members.updated
    create_estimator_spec = make_spec

    @property
    def _title(self) -> str:
        return checks.title("MultiLabelHead", self.name)

    @property
    def _words(self) -> tuple[str, ...] | None:
        return None if self.label_vocabulary is None else tuple(self.label_vocabulary)

    @property
    def _rules(self) -> Rules:
        title = self._title
        return Rules(
            title,
            labels=IndicatorLabels(title, self.n_classes, self._words),
            label_width=self.n_classes,
            logits_dimension=self.n_classes,
            loss_fn=self.loss_fn or multi_label_cross_entropy,
            loss_width=1,
            weight_column=self.weight_column,
        )

    def _measure(self, scored: Scored | None) -> Measured:
        z, x, losses, w = parts_of(scored)
        p = None if x is None else jax.nn.sigmoid(x)
        measured: Measured = {
            "average_loss": metrics.mean(losses, w),
            "auc": metrics.auc(z, p, w),
            "auc_precision_recall": metrics.auc(z, p, w, curve="PR"),
            **at_thresholds(self.thresholds, z, p, w),
        }
        for chosen in self.classes_for_class_based_metrics or ():
            measured |= self._measure_class(self._class_id(chosen), z, p, w)
        return measured

    def _measure_class(
        self,
        class_id: int,
        labels: jax.Array | None,
        probabilities: jax.Array | None,
        weights: jax.Array | None,
    ) -> Measured:
        def column(values: jax.Array | None) -> jax.Array | None:
            return None if values is None else values[..., class_id : class_id + 1]

        z, p = column(labels), column(probabilities)
        shown = f"class{class_id}" if self._words is None else self._words[class_id]
        return {
            f"probability_mean/{shown}": metrics.mean(p, weights),
            f"auc/{shown}": metrics.auc(z, p, weights),
            f"auc_precision_recall/{shown}": metrics.auc(z, p, weights, curve="PR"),
        }

    def _class_id(self, chosen: int | str) -> int:
        """The id of a class of `classes_for_class_based_metrics`."""
        if isinstance(chosen, str):
            if self._words is None or chosen not in self._words:
                near = did_you_mean(chosen, self._words or ())
                raise SpecError(
                    f"{self._title}: classes_for_class_based_metrics names {chosen!r}, "
                    f"which is not in label_vocabulary{near}"
                )
            return self._words.index(chosen)
        if not 0 <= chosen < self.n_classes:
            raise SpecError(
                f"{self._title}: classes_for_class_based_metrics has {chosen}; class "
                f"ids are 0 to {self.n_classes - 1}."
            )
        return chosen
