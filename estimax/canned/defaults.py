"""What the canned estimators share: heads, optimizers given by name, and checks.

The constructors check their arguments here. Without these checks a wrong argument would
raise at the first call of `train`, from inside of a layer that does not know which
argument was meant.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Literal

import jax
import numpy as np

from estimax import heads, optimizers
from estimax.core.errors import FeatureError, SpecError, did_you_mean
from estimax.feature_columns import DenseFeatures
from estimax.feature_columns.column import is_column
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


def validate_optimizer(
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


def validate_units(given: Any, model: str, argument: str = "hidden_units") -> Any:
    """Return the widths of layers; raise SpecError unless they are positive integers.

    >>> validate_units([16, 8], "DNN")
    (16, 8)
    """
    is_list = isinstance(given, Iterable) and not isinstance(given, str | bytes)
    units = tuple(given) if is_list else None
    if units is None or not all(map(is_positive, units)):
        shown = f"[{given}]" if is_positive(given) else "[128, 64]"
        raise SpecError(
            f"{model}: {argument} must be a list with the number of units of each "
            f"hidden layer, such as {shown}, got {given!r}."
        )
    return units


def is_positive(value: object) -> bool:
    """Return whether a value is an integer of at least 1."""
    if isinstance(value, bool):
        return False
    return isinstance(value, Integral) and int(value) >= 1


def check_count(given: object, model: str, argument: str) -> None:
    """Raise SpecError unless a value is an integer of at least 1."""
    if not is_positive(given):
        raise SpecError(
            f"{model}: {argument} must be an integer of at least 1, got {given!r}."
        )


def check_dropout(given: Any, model: str, argument: str = "dropout") -> None:
    """Raise SpecError unless a value is None or a share within [0, 1)."""
    is_number = isinstance(given, Real) and not isinstance(given, bool)
    if given is not None and not (is_number and 0 <= float(given) < 1):
        raise SpecError(
            f"{model}: {argument} is the share of outputs that are set to 0 in "
            f"training: expected None or a number from 0 to below 1, got {given!r}."
        )


def check_activation(given: object, model: str) -> None:
    """Raise SpecError unless a value is None or a function."""
    if given is not None and not callable(given):
        raise SpecError(
            f"{model}: activation_fn must be a function such as flax.linen.relu, or "
            f"None; got {given!r}."
        )


def check_head(given: object, model: str) -> None:
    """Raise SpecError unless a value is a head."""
    if isinstance(given, type) or not isinstance(given, heads.Head):
        raise SpecError(
            f"{model}: head must be a head such as ex.heads.BinaryClassHead(), got "
            f"{given.__name__ if isinstance(given, type) else repr(given)}."
        )


def is_by_row(*parts: Any, activation: object = None) -> bool:
    """Return whether a model of these parts computes every row by itself.

    It does if heads and columns are those of this package, without functions of the
    user, and the activation is one of JAX or Flax. Other code might mix rows.

    >>> is_by_row(heads.BinaryClassHead(), None)
    True
    >>> is_by_row(heads.BinaryClassHead(), activation=max)
    False
    """
    # Not `functools.partial`, whose arguments may name the axis of the batch.
    is_known = activation is None or _is_from(activation, "estimax", "jax", "flax")
    return is_known and all(map(_is_ours, parts))


def _is_ours(part: Any) -> bool:
    if isinstance(part, list | tuple | frozenset):
        return all(map(_is_ours, part))
    if isinstance(part, Mapping):
        return all(map(_is_ours, part.values()))
    if part is None or isinstance(part, str | bytes | Real | np.ndarray | jax.Array):
        return True
    if isinstance(part, heads.SequentialHeadWrapper):
        return False  # its mask is that of steps
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        fields = [getattr(part, field.name) for field in dataclasses.fields(part)]
        return _is_from(type(part), "estimax") and all(map(_is_ours, fields))
    # Another function of JAX, as a `normalizer_fn`, may be one over the axis of rows.
    is_initializer = str(getattr(part, "__module__", "")).endswith(".initializers")
    return _is_from(part, "estimax", *["jax"] * is_initializer)


def _is_from(part: Any, *packages: str) -> bool:
    return str(getattr(part, "__module__", "")).split(".")[0] in packages


def validate_columns(
    given: Any,
    model: str,
    argument: str = "feature_columns",
    layer: Callable[[Any], Any] = DenseFeatures,
) -> tuple[Any, ...]:
    """Return feature columns as a tuple.

    Args:
      given: What the user passed.
      model: The name of the model, for messages.
      argument: The name of the argument, for messages.
      layer: The layer that the columns are for; its constructor checks them.

    Raises:
      FeatureError: The value is no list of columns, or the layer refuses one of them.
    """
    is_list = isinstance(given, Iterable) and not isinstance(given, str | Mapping)
    if is_column(given) or not is_list:
        shown = f"the column {given.name!r}; put it in []" if is_column(given) else ""
        raise FeatureError(
            f"{model}: {argument} must be a list of feature columns, such as "
            f'[ex.feature_columns.numeric_column("age")], got {shown or repr(given)}.'
        )
    columns = tuple(given)
    layer(columns)
    return columns
