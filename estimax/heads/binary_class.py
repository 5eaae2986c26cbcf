"""One yes/no question an example: sigmoid cross entropy of one logit.

head = BinaryClassHead(label_vocabulary=["no", "yes"], thresholds=[0.3])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import jax
import jax.numpy as jnp

from estimax import metrics
from estimax.core.errors import SpecError
from estimax.core.numbers import Int64, Words
from estimax.core.spec import (
    ClassificationOutput,
    ExportOutput,
    PredictOutput,
    RegressionOutput,
)
from estimax.heads import checks, members
from estimax.heads.head import (
    Logits,
    LossFn,
    Measured,
)
from estimax.heads.labels import NumberLabels, all_class_ids, all_classes, words_of
from estimax.heads.losses import sigmoid_cross_entropy
from estimax.heads.make_spec import make_spec
from estimax.heads.scoring import Rules, Scored, parts_of
from estimax.heads.weights import WeightColumn


@final
@dataclass(frozen=True)
class BinaryClassHead:
    """Two classes, decided by the sign of one logit [B, 1].

    Labels are 0 and 1 (any value between is a soft label), or words of
    `label_vocabulary`. Each of `thresholds` adds accuracy, precision and recall of
    `logistic > threshold`. `compat="v1"` measures the areas under curves as the heads
    of tf.compat.v1 did: smoothed, and for precision and recall by trapezoids.

    >>> head = BinaryClassHead()
    >>> float(head.loss(labels=[1, 0], logits=jnp.zeros((2, 1)))) < 0.7
    True
    >>> head.predictions(jnp.array([[2.0]]), keys=["class_ids"])["class_ids"].shape
    (1, 1)
    """

    weight_column: WeightColumn | None = None
    thresholds: Sequence[float] | None = None
    label_vocabulary: Sequence[str] | None = None
    loss_reduction: str = "sum_over_batch_size"
    loss_fn: LossFn | None = None
    name: str | None = None
    compat: Literal["v1", "v2"] = "v2"

    def __post_init__(self) -> None:
        self._rules.check(self.loss_reduction)
        if self.compat not in ("v1", "v2"):
            raise SpecError(
                f"{self._title}: compat must be 'v1' or 'v2', got {self.compat!r}."
            )
        checks.put(
            self, "thresholds", checks.checked_thresholds(self._title, self.thresholds)
        )
        words = checks.checked_vocabulary(self._title, self.label_vocabulary)
        checks.put(self, "label_vocabulary", words)

    @property
    def logits_dimension(self) -> int:
        """One logit an example."""
        return 1

    def predictions(
        self, logits: Logits, keys: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Logits, logistic, probabilities, the class and all classes."""
        x = checks.checked_logits(self._title, logits, 1)
        words = words_of(2, self._words)
        # Decided on the logit: the sigmoid of a tiny one rounds to exactly 0.5.
        class_ids = (x > 0).astype(jnp.int32)
        two_classes = jnp.concatenate([jnp.zeros_like(x), x], axis=-1)
        every = {
            "logits": x,
            "logistic": jax.nn.sigmoid(x),
            "probabilities": jax.nn.softmax(two_classes, axis=-1),
            "class_ids": Int64(class_ids),
            "classes": Words(class_ids, words),
            "all_class_ids": all_class_ids(x, 2),
            "all_classes": all_classes(x, words),
        }
        return checks.selected(self._title, every, keys)

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        """Served as a classification, a regression of the probability, or all."""
        classification = ClassificationOutput(
            predictions["probabilities"], predictions["all_classes"]
        )
        return {
            "serving_default": classification,
            "classification": classification,
            "regression": RegressionOutput(predictions["logistic"]),
            "predict": PredictOutput(predictions),
        }

    loss = members.loss
    metrics = members.fresh
    update_metrics = members.updated
    create_estimator_spec = make_spec

    @property
    def _title(self) -> str:
        return checks.title("BinaryClassHead", self.name)

    @property
    def _words(self) -> tuple[str, ...] | None:
        return None if self.label_vocabulary is None else tuple(self.label_vocabulary)

    @property
    def _rules(self) -> Rules:
        title = self._title
        return Rules(
            title,
            labels=NumberLabels(title, 0.0, 1.0, self._words),
            label_width=1,
            logits_dimension=1,
            loss_fn=self.loss_fn or sigmoid_cross_entropy,
            loss_width=1,
            weight_column=self.weight_column,
        )

    def _measure(self, scored: Scored | None) -> Measured:
        # Without a batch every metric gets nothing and is what it is before any data.
        z, x, losses, w = parts_of(scored)
        logistic = None if x is None else jax.nn.sigmoid(x)
        class_ids = None if x is None else (x > 0).astype(jnp.float32)
        area = metrics.v1.auc if self.compat == "v1" else metrics.auc
        measured: Measured = {
            "average_loss": metrics.mean(losses, w),
            "accuracy": metrics.accuracy(z, class_ids, w),
            "precision": metrics.precision(z, class_ids, w),
            "recall": metrics.recall(z, class_ids, w),
            "prediction/mean": metrics.mean(logistic, w),
            "label/mean": metrics.mean(z, w),
            "accuracy_baseline": metrics.accuracy_baseline(z, w),
            "auc": area(z, logistic, w),
            "auc_precision_recall": area(z, logistic, w, curve="PR"),
        }
        return {**measured, **at_thresholds(self.thresholds, z, logistic, w)}


def at_thresholds(
    thresholds: Sequence[float] | None,
    labels: jax.Array | None,
    probabilities: jax.Array | None,
    weights: jax.Array | None,
) -> Measured:
    """Accuracy, precision and recall of `probability > threshold`, by threshold."""
    measured: Measured = {}
    for t in thresholds or ():
        given = labels, probabilities, weights
        at = f"positive_threshold_{t:g}"
        measured[f"accuracy/{at}"] = metrics.binary_accuracy(*given, threshold=t)
        measured[f"precision/{at}"] = metrics.precision(*given, thresholds=t)
        measured[f"recall/{at}"] = metrics.recall(*given, thresholds=t)
    return measured
