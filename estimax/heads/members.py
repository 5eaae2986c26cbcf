"""The members that every head of this room has alike; see `RuledHead`.

class BinaryClassHead:
    ...
    loss = members.loss
    metrics = members.fresh
    update_metrics = members.updated

A head is a final class without a base: what heads share are functions that take one.
"""

from __future__ import annotations

from typing import Any

import jax

from estimax.heads.head import Features, Labels, Logits, Losses, Metrics
from estimax.heads.scoring import RuledHead, fresh_metrics, merged_metrics


def loss(
    self: RuledHead,
    labels: Labels,
    logits: Logits,
    features: Features = None,
    mode: str | None = None,
    regularization_losses: Losses = None,
) -> jax.Array:
    """The reduced, regularized loss; `mode` changes nothing."""
    scored = self._rules.score(labels, logits, features)
    return scored.loss(self.loss_reduction, regularization_losses)


def fresh(self: RuledHead, regularization_losses: Losses = None) -> dict[str, Any]:
    """Its metrics before any data."""
    return fresh_metrics(self._measure(None), self.name, regularization_losses)


def updated(
    self: RuledHead,
    eval_metrics: Metrics,
    features: Features,
    logits: Logits,
    labels: Labels,
    regularization_losses: Losses = None,
) -> dict[str, Any]:
    """The metrics with this batch merged in, as a new dict."""
    batch = self._measure(self._rules.score(labels, logits, features))
    return merged_metrics(eval_metrics, batch, self.name, regularization_losses)
