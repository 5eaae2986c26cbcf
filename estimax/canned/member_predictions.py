"""Averages of predictions, as logits from which a head makes the same prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from estimax import heads
from estimax.core.errors import SpecError

_YES_OR_NO = (heads.BinaryClassHead, heads.MultiLabelHead, heads.LogisticRegressionHead)


def average_logits(
    head: heads.Head, logits: jax.Array, weights: jax.Array | None = None
) -> jax.Array:
    """Return logits [B, K] of which a head makes the average prediction of M members.

    Probabilities, rates and numbers are averaged, not their logits. For heads of other
    packages, whose predictions are not known, it is the average of the logits.

    Args:
      head: The head of all members.
      logits: The logits of the members, [B, M, K].
      weights: The weights of the members, [M], which sum to 1. None: all are equal.

    >>> from estimax.heads import BinaryClassHead
    >>> two = jnp.array([[[0.0], [100.0]]])  # probabilities 0.5 and 1
    >>> jax.nn.sigmoid(average_logits(BinaryClassHead(), two)).round(4).tolist()
    [[0.75]]
    """
    if isinstance(head, heads.MultiHead):
        sizes = [one.logits_dimension for one in head.heads]
        parts = jnp.split(logits, list(np.cumsum(sizes))[:-1], axis=-1)
        found = [
            average_logits(one, part, weights)
            for one, part in zip(head.heads, parts, strict=True)
        ]
        return jnp.concatenate(found, axis=-1)
    count = logits.shape[1]
    share = jnp.full(count, 1 / count) if weights is None else weights
    share = share.astype(logits.dtype)[None, :, None]
    if isinstance(head, _YES_OR_NO):
        yes = jax.nn.logsumexp(jax.nn.log_sigmoid(logits), axis=1, b=share)
        no = jax.nn.logsumexp(jax.nn.log_sigmoid(-logits), axis=1, b=share)
        return yes - no
    if isinstance(head, heads.MultiClassHead):
        logits = jax.nn.log_softmax(logits, axis=-1)
    if isinstance(head, heads.MultiClassHead | heads.PoissonRegressionHead):
        mean: jax.Array = jax.nn.logsumexp(logits, axis=1, b=share)
        return mean
    return jnp.sum(logits * share, axis=1)


def logits_of(head: heads.Head, predictions: Any, member: str) -> jax.Array:
    """Return the logits [B, K] that a head needs to predict what a member predicts.

    Raises:
      SpecError: The member predicts something else than the head.
    """
    found = predictions if isinstance(predictions, Mapping) else {}
    logits: jax.Array | None
    if isinstance(head, heads.RegressionHead) and "predictions" in found:
        numbers = jnp.asarray(found["predictions"], jnp.float32)
        logits = (numbers - head.label_mean) / head.label_std
    else:
        logits = found.get("logits")
    width = head.logits_dimension
    if logits is None or logits.ndim != 2 or logits.shape[1] != width:
        shape = None if logits is None else list(logits.shape)
        raise SpecError(
            f"AverageEstimator: member {member!r} must predict what the head does, "
            f"with logits of shape [B, {width}]; got {shape} among {sorted(found)}. "
            "Give all members a head of the same kind and size."
        )
    # The head of the average corrects them again.
    return (
        logits - head.logit_shift if isinstance(head, heads.BinaryClassHead) else logits
    )
