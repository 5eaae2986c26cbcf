"""Example weights: read from a feature and shaped to multiply losses.

    weights = weights_for("BinaryClassHead", "w", features, logits)      # [B, 1]

A feature [B] becomes [B, 1], so that it broadcasts over outputs and not over examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from estimax import staging
from estimax.core.errors import FeatureError, did_you_mean
from estimax.core.raw_values import as_raw
from estimax.core.sparse import Sparse
from estimax.feature_columns import transforms


@runtime_checkable
class NumericColumnLike(Protocol):
    """The members of a numeric column that a head reads."""

    @property
    def key(self) -> str:
        """The key of the feature."""

    @property
    def normalizer_fn(self) -> Callable[[Any], Any] | None:
        """Function applied to the raw feature, or None."""


WeightColumn = str | NumericColumnLike
# By class id or word, or one weight for each class in the order of the ids.
ClassWeights = Mapping[int | str, float] | Sequence[float]


def check_weight_column(head: str, column: object) -> None:
    """Raise `TypeError` unless the column is None, a key or a numeric column."""
    if column is not None and not isinstance(column, str | NumericColumnLike):
        raise TypeError(
            f"{head}: weight_column must be the key of a feature or a numeric column, "
            f"got {type(column).__name__}."
        )


def weights_for(
    head: str,
    column: WeightColumn | None,
    features: Any,  # a dict of arrays; None or anything else when there is no column
    logits: jax.Array,
    *,
    per_output: bool = False,
) -> jax.Array | None:
    """Return weights float32 [..., 1] for logits [..., K]; None without a column.

    With `per_output` they may have the shape of the logits, one for each output.
    """
    if column is None:
        return None
    key = column if isinstance(column, str) else column.key
    raw = _feature(head, key, features)
    if not isinstance(column, str) and column.normalizer_fn is not None:
        raw = column.normalizer_fn(raw)
    elif staging.is_wide(raw):
        raw = staging.stage(transforms.Numbers(key), features)
    weights = jnp.asarray(raw, jnp.float32)
    return _fit(head, key, weights, logits, per_output)


def _feature(head: str, key: str, features: Any) -> Any:
    if not isinstance(features, Mapping):
        raise FeatureError(
            f"{head}: weight_column {key!r} needs features by name, got "
            f"{type(features).__name__}. Pass a dict of features to the head."
        )
    if key not in features:
        near = did_you_mean(key, [str(name) for name in features], listed_as="found")
        raise FeatureError(
            f"{head}: the weight_column {key!r} is not among the features{near}"
        )
    raw = features[key]
    if isinstance(raw, staging.HostOnly) and raw.kind == "wide":
        return raw
    is_array = isinstance(raw, jax.Array)
    kind = raw if is_array or isinstance(raw, staging.HostOnly) else as_raw(raw, key)
    if isinstance(kind, staging.HostOnly | Sparse) or not hasattr(kind, "dtype"):
        raise FeatureError(
            f"{head}: the weight_column {key!r} must hold numbers, one for each "
            "example; it is text or sparse. Parse it as a FixedLenFeature of a number."
        )
    return kind


def _fit(
    head: str, key: str, weights: jax.Array, logits: jax.Array, per_output: bool
) -> jax.Array:
    given = weights.shape
    if weights.ndim == logits.ndim - 1:
        weights = weights[..., None]
    leading = logits.shape[:-1]
    allowed = [(*leading, 1), *([logits.shape] if per_output else [])]
    if weights.shape not in allowed:
        shapes = " or ".join(str(list(shape)) for shape in (leading, *allowed))
        raise FeatureError(
            f"{head}: the weight_column {key!r} must have shape {shapes} for logits of "
            f"shape {list(logits.shape)}, got {list(given)}."
        )
    return weights
