"""What all heads do alike: reduce losses, regularize, name and merge metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from estimax import metrics
from estimax.heads.head import Losses, Metrics
from estimax.heads.losses import reduce_losses


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
) -> dict[str, metrics.Metric]:
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
) -> dict[str, metrics.Metric]:
    """The metrics seen so far with those of one more batch."""
    total = total_regularization(regularization_losses)
    penalty = None if total is None else metrics.mean(total)
    return merge(seen, _all_named(measured, penalty, name))


def merge(seen: Metrics, batch: Metrics) -> dict[str, metrics.Metric]:
    """Merge metrics by name; those that only one side has are kept."""
    together = {
        key: seen[key].merge(metric) if key in seen else metric
        for key, metric in batch.items()
    }
    return {**seen, **together}


def _all_named(
    measured: Metrics, penalty: metrics.Metric | None, name: str | None
) -> dict[str, metrics.Metric]:
    every: Mapping[str, metrics.Metric] = measured
    if penalty is not None:
        every = {**measured, "regularization_loss": penalty}
    return {named(key, name): metric for key, metric in every.items()}
