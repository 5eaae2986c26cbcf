"""The arguments of trees as parameters of LightGBM, checked."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from estimax.canned import defaults
from estimax.core.errors import SpecError, did_you_mean

_PRUNING = ("none", "pre", "post")
_PER_ROW = {
    "l1_regularization": "lambda_l1",
    "l2_regularization": "lambda_l2",
    "tree_complexity": "min_gain_to_split",
    "min_node_weight": "min_sum_hessian_in_leaf",
}


def boosting(
    model: str,
    *,
    max_depth: int,
    learning_rate: float,
    center_bias: bool,
    pruning_mode: str,
    quantile_sketch_epsilon: float,
    num_leaves: int | None,
    min_data_in_leaf: int,
    subsample: float,
    feature_fraction: float,
) -> dict[str, Any]:
    """Return LightGBM's parameters of boosted trees."""
    _check_number(learning_rate, model, "learning_rate", above=0.0)
    _check_number(
        quantile_sketch_epsilon, model, "quantile_sketch_epsilon", above=0.0, most=0.5
    )
    _check_number(feature_fraction, model, "feature_fraction", above=0.0, most=1.0)
    if pruning_mode not in _PRUNING:
        near = did_you_mean(str(pruning_mode), _PRUNING)
        raise SpecError(f"{model}: unknown pruning_mode {pruning_mode!r}{near}")
    return {
        **_shape(model, max_depth, num_leaves, min_data_in_leaf, subsample),
        "learning_rate": float(learning_rate),
        "boost_from_average": bool(center_bias),
        "max_bin": max(2, round(1 / quantile_sketch_epsilon)),
        "feature_fraction": float(feature_fraction),
    }


def forest(
    model: str,
    *,
    columns: int,
    is_regression: bool,
    max_depth: int,
    num_leaves: int,
    min_data_in_leaf: int | None,
    subsample: float,
    feature_fraction: float | None,
) -> dict[str, Any]:
    """Return LightGBM's parameters of a random forest of so many columns."""
    least = 5 if min_data_in_leaf is None else min_data_in_leaf
    if subsample == 1:
        raise SpecError(
            f"{model}: subsample must be below 1: trees of a forest differ because "
            "each is grown on other rows."
        )
    if feature_fraction is None:
        feature_fraction = 1 / 3 if is_regression else 1 / math.sqrt(columns)
        # At least one column, and two where there are two.
        feature_fraction = min(1.0, max(feature_fraction, 2 / columns))
    _check_number(feature_fraction, model, "feature_fraction", above=0.0, most=1.0)
    return {
        **_shape(model, max_depth, num_leaves, least, subsample),
        "boosting": "rf",
        "feature_fraction_bynode": float(feature_fraction),
    }


def per_row(model: str, **given: float) -> dict[str, float]:
    """Return LightGBM's names of penalties for each row, of those that are not 0."""
    for name, value in given.items():
        _check_number(value, model, name, least=0.0)
    return {_PER_ROW[name]: float(value) for name, value in given.items() if value}


def _shape(
    model: str,
    max_depth: int,
    num_leaves: int | None,
    min_data_in_leaf: int,
    subsample: float,
) -> dict[str, Any]:
    if max_depth != -1:
        defaults.check_count(max_depth, model, "max_depth")
    if num_leaves is None:
        num_leaves = 31 if max_depth == -1 else 2 ** min(max_depth, 16)
    defaults.check_count(num_leaves, model, "num_leaves")
    if num_leaves < 2:
        raise SpecError(f"{model}: num_leaves must be at least 2, got {num_leaves}.")
    defaults.check_count(min_data_in_leaf, model, "min_data_in_leaf")
    _check_number(subsample, model, "subsample", above=0.0, most=1.0)
    return {
        "max_depth": int(max_depth),
        "num_leaves": int(num_leaves),
        "min_data_in_leaf": int(min_data_in_leaf),
        "bagging_fraction": float(subsample),
    }


def _check_number(
    given: Any,
    model: str,
    argument: str,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float = math.inf,
) -> None:
    is_number = isinstance(given, Real) and not isinstance(given, bool)
    value = float(given) if is_number else math.nan
    is_low = value <= above if above is not None else value < (least or 0.0)
    if not math.isfinite(value) or is_low or value > most:
        low = f"above {above:g}" if above is not None else f"of at least {least:g}"
        high = "" if most == math.inf else f" and at most {most:g}"
        raise SpecError(
            f"{model}: {argument} must be a number {low}{high}, got {given!r}."
        )
