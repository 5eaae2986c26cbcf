"""What the canned estimators share: their heads, and optimizers given by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

from estimax import heads, optimizers
from estimax.core.errors import FeatureError, SpecError, did_you_mean
from estimax.optimizers import v1

MEAN = "sum_over_batch_size"
Compat = Literal["v1", "v2"]  # whose defaults: tf.compat.v1.estimator's, tf.estimator's

_V1_OPTIMIZERS: dict[str, Callable[..., optimizers.Optimizer]] = {
    "adagrad": v1.AdagradOptimizer,
    "adam": v1.AdamOptimizer,
    "ftrl": v1.FtrlOptimizer,
    "rmsprop": v1.RMSPropOptimizer,
    "sgd": v1.GradientDescentOptimizer,
}


def classifier_head(
    n_classes: int,
    weight_column: Any,
    label_vocabulary: Sequence[str] | None,
    loss_reduction: str | None,
    compat: Compat = "v2",
) -> heads.Head:
    """The head of a classifier: one logit for two classes, K for more."""
    loss_reduction = _reduction(loss_reduction, compat)
    if n_classes == 2:
        return heads.BinaryClassHead(
            weight_column=weight_column,
            label_vocabulary=label_vocabulary,
            loss_reduction=loss_reduction,
            compat=compat,
        )
    return heads.MultiClassHead(
        n_classes,
        weight_column=weight_column,
        label_vocabulary=label_vocabulary,
        loss_reduction=loss_reduction,
    )


def click_head(head: heads.Head | None, weight_column: Any) -> heads.Head:
    """The head of a click model: two classes, unless another is given."""
    if head is None:
        return heads.BinaryClassHead(weight_column=weight_column)
    if weight_column is not None:
        raise SpecError(
            "a click model with a head of its own: give weight_column to the head."
        )
    return head


def regressor_head(
    label_dimension: int,
    weight_column: Any,
    loss_reduction: str | None,
    compat: Compat = "v2",
) -> heads.Head:
    """The head of a regressor: squared error."""
    return heads.RegressionHead(
        label_dimension,
        weight_column=weight_column,
        loss_reduction=_reduction(loss_reduction, compat),
    )


def _reduction(given: str | None, compat: Compat) -> str:
    check_compat(compat)
    return given or {"v1": "sum", "v2": MEAN}[compat]


def train_op_of(
    given: Any,
    learning_rate: float | None,
    compat: Compat = "v2",
    var_list: str | None = None,
) -> optimizers.TrainOp:
    """A train op; an optimizer given by name gets the family's learning rate.

    Variables are `var_list`'s, unless a train op is given, which names its own.
    """
    if isinstance(given, optimizers.TrainOp):
        return given
    by = _optimizer_of(given, learning_rate, compat)
    return optimizers.minimize(by, var_list=var_list)


def _optimizer_of(
    given: Any, learning_rate: float | None, compat: Compat
) -> optimizers.Optimizer:
    if not isinstance(given, str):
        return optimizers.as_optimizer(given)
    if compat == "v2":
        return optimizers.by_name(given, learning_rate)
    if given.lower() not in _V1_OPTIMIZERS:
        near = did_you_mean(given.lower(), _V1_OPTIMIZERS)
        raise SpecError(f"unknown optimizer {given!r} with compat='v1'{near}")
    return _V1_OPTIMIZERS[given.lower()](learning_rate)


def check_compat(compat: str) -> None:
    """Raise unless the generation of defaults is a known one."""
    if compat not in ("v1", "v2"):
        raise SpecError(
            f"compat must be 'v2' (tf.estimator's defaults) or 'v1' (those of "
            f"tf.compat.v1.estimator), got {compat!r}."
        )


def combined_linear_rate(columns: Sequence[Any]) -> float:
    """The learning rate of a combined model's linear part, given by name."""
    return min(0.005, 1.0 / math.sqrt(len(columns)))


def check_features(features: Any, model: str) -> None:
    """Refuse features that are not named, which columns could not find."""
    if not isinstance(features, dict):
        shape = getattr(features, "shape", None)
        got = type(features).__name__ if shape is None else f"an array {list(shape)}"
        raise FeatureError(
            f"{model}: features must be a dict from name to array, because feature "
            f"columns find them by name; got {got}."
        )
