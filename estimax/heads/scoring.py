"""What all heads do alike: reduce losses, regularize, name and merge metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp

from estimax import metrics
from estimax.heads import checks
from estimax.heads.head import (
    Features,
    Head,
    Labels,
    Logits,
    Losses,
    LossFn,
    Measured,
    Metrics,
)
from estimax.heads.labels import LabelRule, labels_for
from estimax.heads.losses import reduce_losses
from estimax.heads.weights import WeightColumn, check_weight_column, weights_for


@dataclass(frozen=True)
class Scored:
    """A batch with the loss of every example, ready to be reduced or measured."""

    labels: jax.Array
    logits: jax.Array
    losses: jax.Array
    weights: jax.Array | None  # None: every example weighs 1

    def loss(self, reduction: str, regularization_losses: Losses = None) -> jax.Array:
        """The regularized loss of the batch."""
        loss = reduce_losses(self.losses, self.weights, reduction)
        return regularized(loss, regularization_losses)


@dataclass(frozen=True)
class Rules:
    """How a head scores a batch; what the heads of one task differ in."""

    title: str  # what messages call the head
    labels: LabelRule
    label_width: int  # size of the last axis of labels
    logits_dimension: int
    loss_fn: LossFn
    loss_width: int  # size of the last axis of the losses
    weight_column: WeightColumn | None
    weight_per_output: bool = False

    def check(self, loss_reduction: str) -> None:
        """Raise for what no head can be constructed with."""
        check_weight_column(self.title, self.weight_column)
        checks.check_reduction(self.title, loss_reduction)
        checks.check_loss_fn(self.title, self.loss_fn)

    def score(self, labels: Labels, logits: Logits, features: Features) -> Scored:
        """Check a batch and compute the loss of every example."""
        x = checks.checked_logits(self.title, logits, self.logits_dimension)
        ready = labels_for(self.labels, labels, x, self.label_width)
        return self.score_ready(ready, x, features, self.weights(features, x))

    def score_ready(
        self,
        labels: jax.Array,
        logits: jax.Array,
        features: Features,
        weights: jax.Array | None,
    ) -> Scored:
        """The loss of every example of a batch already checked."""
        losses = checks.call_loss_fn(
            self.title, self.loss_fn, labels, logits, features, self.loss_width
        )
        return Scored(labels, logits, losses, weights)

    def weights(self, features: Features, logits: jax.Array) -> jax.Array | None:
        """The weights of the examples."""
        per_output = self.weight_per_output
        return weights_for(
            self.title, self.weight_column, features, logits, per_output=per_output
        )


class RuledHead(Head, Protocol):
    """A head of this room that scores by `Rules`, and so can be wrapped."""

    @property
    def _rules(self) -> Rules: ...

    def _measure(self, scored: Scored | None) -> Measured: ...


Part = jax.Array | None


def parts_of(scored: Scored | None) -> tuple[Part, Part, Part, Part]:
    """Labels, logits, losses and weights; of no batch, None for each."""
    if scored is None:
        return None, None, None, None
    return scored.labels, scored.logits, scored.losses, scored.weights


def regularized(loss: jax.Array, regularization_losses: Losses) -> jax.Array:
    """The loss plus the sum of the regularization losses."""
    penalty = total_regularization(regularization_losses)
    return loss if penalty is None else loss + penalty


def total_regularization(losses: Losses) -> jax.Array | None:
    """The sum of the regularization losses; None for None and for no losses."""
    if losses is None or len(losses) == 0:
        return None
    scalars = [jnp.asarray(loss, jnp.float32).reshape(()) for loss in losses]
    return sum(scalars[1:], scalars[0])


def named(key: str, name: str | None) -> str:
    """A metric or summary key of a head: with its name behind, if it has one.

    >>> named("auc", "click"), named("auc", None)
    ('auc/click', 'auc')
    """
    return key if name is None else f"{key}/{name}"


def fresh_metrics(
    measured: Metrics, name: str | None, regularization_losses: Losses
) -> Measured:
    """Metrics before any data, under the head's names."""
    penalty = None
    if total_regularization(regularization_losses) is not None:
        penalty = metrics.mean()
    return _all_named(measured, penalty, name)


def merged_metrics(
    seen: Metrics,
    measured: Metrics,
    name: str | None,
    regularization_losses: Losses,
) -> Measured:
    """The metrics seen so far with those of one more batch."""
    total = total_regularization(regularization_losses)
    penalty = None if total is None else metrics.mean(total)
    return merge(seen, _all_named(measured, penalty, name))


def merge(seen: Metrics, batch: Metrics) -> Measured:
    """Merge metrics by name; those that only one side has are kept."""
    together = {
        key: seen[key].merge(metric) if key in seen else metric
        for key, metric in batch.items()
    }
    return {**seen, **together}


def _all_named(
    measured: Metrics, penalty: metrics.Metric | None, name: str | None
) -> Measured:
    every: Metrics = measured
    if penalty is not None:
        every = {**measured, "regularization_loss": penalty}
    return {named(key, name): metric for key, metric in every.items()}
