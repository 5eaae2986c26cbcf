"""What the canned estimators share: heads, optimizers given by name, and checks."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

from estimax import heads, optimizers
from estimax.canned.checks import is_positive
from estimax.core.errors import FeatureError, SpecError, did_you_mean
from estimax.v1 import optimizers as v1

ModelPath = str | os.PathLike[str]
MEAN = "sum_over_batch_size"
Compat = Literal["v1", "v2"]  # the defaults of tf.compat.v1.estimator or tf.estimator

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
    """Return the head of a classifier: one logit for two classes, K for K > 2."""
    loss_reduction = _reduction(loss_reduction, compat)
    if n_classes == 1 or not is_positive(n_classes):
        raise SpecError(
            f"n_classes must be an integer of at least 2, got {n_classes!r}. To answer "
            "yes or no, use 2 and labels 0 and 1."
        )
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
    """Return the head of a click model: `head`, or binary classification if None."""
    if head is None:
        return heads.BinaryClassHead(weight_column=weight_column)
    if weight_column is not None:
        raise SpecError(
            "weight_column and head are both given. Pass weight_column to the head, "
            "such as BinaryClassHead(weight_column=...)."
        )
    return head


def regressor_head(
    label_dimension: int,
    weight_column: Any,
    loss_reduction: str | None,
    compat: Compat = "v2",
) -> heads.Head:
    """Return the head of a regressor, which minimises the squared error."""
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
    """Return a train op for an optimizer in any form that `minimize` accepts.

    An optimizer given by name gets `learning_rate`. It trains the variables that match
    `var_list`. A `TrainOp` is returned as it is.
    """
    if isinstance(given, optimizers.TrainOp):
        return given
    by = _optimizer_of(given, learning_rate, compat)
    return optimizers.minimize(by, var_list=var_list)


def checked_optimizer(
    given: Any,
    learning_rate: float | None,
    model: str,
    argument: str = "optimizer",
    compat: Compat = "v2",
) -> optimizers.Optimizer | None:
    """Return the optimizer of an argument; None if it is a function or a train op.

    Raises:
      SpecError: The name is unknown, or the value is no optimizer.
    """
    is_made_later = callable(given) and not isinstance(given, optimizers.Optimizer)
    if is_made_later or isinstance(given, optimizers.TrainOp):
        return None
    try:
        return _optimizer_of(given, learning_rate, compat)
    except (TypeError, ValueError) as error:
        raise SpecError(f"{model}: {argument}: {error}") from None


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
    """Raise SpecError unless `compat` is "v1" or "v2"."""
    if compat not in ("v1", "v2"):
        raise SpecError(
            f"compat must be 'v2' (tf.estimator's defaults) or 'v1' (those of "
            f"tf.compat.v1.estimator), got {compat!r}."
        )


def combined_linear_rate(columns: Sequence[Any]) -> float:
    """Return the learning rate of a named optimizer of a linear part."""
    return min(0.005, 1.0 / math.sqrt(len(columns)))


def check_features(features: Any, model: str) -> None:
    """Raise FeatureError unless the features are a dict."""
    if not isinstance(features, dict):
        shape = getattr(features, "shape", None)
        got = type(features).__name__ if shape is None else f"an array {list(shape)}"
        raise FeatureError(
            f"{model}: features must be a dict from name to array, because feature "
            f"columns look them up by name; got {got}."
        )
