"""What the canned estimators share: their heads, and optimizers given by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from estimax import heads, optimizers
from estimax.core.errors import FeatureError

MEAN = "sum_over_batch_size"


def classifier_head(
    n_classes: int,
    weight_column: Any,
    label_vocabulary: Sequence[str] | None,
    loss_reduction: str,
) -> heads.Head:
    """The head of a classifier: one logit for two classes, K for more."""
    if n_classes == 2:
        return heads.BinaryClassHead(
            weight_column=weight_column,
            label_vocabulary=label_vocabulary,
            loss_reduction=loss_reduction,
        )
    return heads.MultiClassHead(
        n_classes,
        weight_column=weight_column,
        label_vocabulary=label_vocabulary,
        loss_reduction=loss_reduction,
    )


def regressor_head(
    label_dimension: int, weight_column: Any, loss_reduction: str
) -> heads.Head:
    """The head of a regressor: squared error."""
    return heads.RegressionHead(
        label_dimension, weight_column=weight_column, loss_reduction=loss_reduction
    )


def optimizer_of(given: Any, learning_rate: float | None) -> optimizers.Optimizer:
    """An optimizer; one given by name gets the family's learning rate."""
    if isinstance(given, str):
        return optimizers.by_name(given, learning_rate)
    return optimizers.as_optimizer(given)


def combined_linear_rate(columns: Sequence[Any]) -> float:
    """The learning rate of a combined model's linear part, given by name."""
    return min(0.005, 1.0 / math.sqrt(len(columns)))


def check_features(features: Any, model: str) -> None:
    """Refuse features that are not named, which columns could not find."""
    if not isinstance(features, dict):
        raise FeatureError(
            f"{model}: features must be a dict from name to array, because feature "
            f"columns find them by name; got {type(features).__name__}."
        )
