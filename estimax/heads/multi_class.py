"""One of K classes an example: softmax cross entropy of K logits.

head = MultiClassHead(3, label_vocabulary=["red", "green", "blue"])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp

from estimax import metrics
from estimax.core.errors import SpecError
from estimax.core.numbers import Int64, Words
from estimax.core.spec import ClassificationOutput, ExportOutput, PredictOutput
from estimax.heads import checks, members
from estimax.heads.head import (
    Logits,
    LossFn,
    Measured,
)
from estimax.heads.labels import ClassLabels, all_class_ids, all_classes, words_of
from estimax.heads.losses import sparse_softmax_cross_entropy
from estimax.heads.make_spec import make_spec
from estimax.heads.scoring import Rules, Scored, parts_of
from estimax.heads.weights import WeightColumn


@final
@dataclass(frozen=True)
class MultiClassHead:
    """K > 2 exclusive classes, decided by the largest of K logits [B, K].

    Labels are class ids in [0, K), or words of `label_vocabulary`.

    >>> head = MultiClassHead(3)
    >>> logits = jnp.array([[0.0, 5.0, 1.0]])
    >>> float(head.loss(labels=[1], logits=logits)) < 0.1
    True
    """

    n_classes: int
    weight_column: WeightColumn | None = None
    label_vocabulary: Sequence[str] | None = None
    loss_reduction: str = "sum_over_batch_size"
    loss_fn: LossFn | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.n_classes, int) or self.n_classes <= 2:
            raise SpecError(
                f"{self._title}: n_classes must be an integer above 2, got "
                f"{self.n_classes}. For two classes use BinaryClassHead."
            )
        self._rules.check(self.loss_reduction)
        words = checks.checked_vocabulary(
            self._title, self.label_vocabulary, self.n_classes
        )
        checks.put(self, "label_vocabulary", words)

    @property
    def logits_dimension(self) -> int:
        """One logit a class."""
        return self.n_classes

    def predictions(
        self, logits: Logits, keys: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Logits, probabilities, the class and all classes."""
        x = checks.checked_logits(self._title, logits, self.n_classes)
        words = words_of(self.n_classes, self._words)
        class_ids = _argmax(x)
        every = {
            "logits": x,
            "probabilities": jax.nn.softmax(x, axis=-1),
            "class_ids": Int64(class_ids),
            "classes": Words(class_ids, words),
            "all_class_ids": all_class_ids(x, self.n_classes),
            "all_classes": all_classes(x, words),
        }
        return checks.selected(self._title, every, keys)

    def export_outputs(self, predictions: Mapping[Any, Any]) -> dict[str, ExportOutput]:
        """Served as a classification, or all predictions."""
        classification = ClassificationOutput(
            predictions["probabilities"], predictions["all_classes"]
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
        return checks.title("MultiClassHead", self.name)

    @property
    def _words(self) -> tuple[str, ...] | None:
        return None if self.label_vocabulary is None else tuple(self.label_vocabulary)

    @property
    def _rules(self) -> Rules:
        title = self._title
        return Rules(
            title,
            labels=ClassLabels(title, self.n_classes, self._words),
            label_width=1,
            logits_dimension=self.n_classes,
            loss_fn=self.loss_fn or sparse_softmax_cross_entropy,
            loss_width=1,
            weight_column=self.weight_column,
        )

    def _measure(self, scored: Scored | None) -> Measured:
        ids, x, losses, w = parts_of(scored)
        return {
            "average_loss": metrics.mean(losses, w),
            "accuracy": metrics.accuracy(ids, None if x is None else _argmax(x), w),
        }


def _argmax(logits: jax.Array) -> jax.Array:
    """The class of the largest logit, [..., 1]; the first one wins a tie."""
    return jnp.argmax(logits, axis=-1, keepdims=True).astype(jnp.int32)
