"""Parse specs: how the features of columns, labels and weights are stored."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from estimax.core.errors import FeatureError
from estimax.core.parse_spec import STRING, FixedLenFeature, VarLenFeature
from estimax.feature_columns.column import Column, ParseSpec, is_column
from estimax.feature_columns.numeric import NumericColumn, numeric_column

Feature = FixedLenFeature | VarLenFeature


def make_parse_example_spec(feature_columns: Iterable[Column]) -> ParseSpec:
    """Return how the features of all columns are stored in an Example.

    Use it with `ex.input.parse_example`, so that the columns alone say what to parse.

    Args:
      feature_columns: Columns of any kind.

    Returns:
      A dict of `FixedLenFeature` and `VarLenFeature` by key.

    Raises:
      FeatureError: Two columns declare a feature differently, or one is no column.

    Example:
      >>> make_parse_example_spec([numeric_column("age")])
      {'age': FixedLenFeature(shape=(1,), dtype='float32', default_value=None)}
    """
    merged: ParseSpec = {}
    for column in feature_columns:
        if not is_column(column):
            raise FeatureError(
                f"make_parse_example_spec: {column!r} is no feature column."
            )
        for key, feature in column.parse_example_spec.items():
            agreed = _agree(merged.setdefault(key, feature), feature)
            if agreed is not None:
                merged[key] = agreed
            else:
                raise FeatureError(
                    f"make_parse_example_spec: feature {key!r} is declared in two "
                    f"ways, {merged[key]} and (by column {column.name!r}) {feature}."
                )
    return merged


def _agree(one: Feature, other: Feature) -> Feature | None:
    """Return how a feature is stored that two columns declare; None if they differ."""
    if one == other:
        return one
    for optional, own in ((one, other), (other, one)):
        if _may_lack(optional) and _is_number(own):
            return own
    return None


def _may_lack(feature: Feature) -> bool:
    """Return whether a column reads one number and takes any: NaN is not there."""
    default = getattr(feature, "default_value", None)
    return isinstance(default, float) and math.isnan(default)


def _is_number(feature: Feature) -> bool:
    is_fixed = isinstance(feature, FixedLenFeature) and feature.dtype != STRING
    return is_fixed and math.prod(getattr(feature, "shape", ())) == 1


def classifier_parse_example_spec(
    feature_columns: Iterable[Column],
    label_key: str,
    label_dtype: Any = "int64",
    label_default: Any = None,
    weight_column: str | NumericColumn | None = None,
) -> ParseSpec:
    """Return how the features of columns, a label and a weight are stored.

    Use it to parse Examples for a classifier.

    Args:
      feature_columns: Columns of any kind.
      label_key: The feature that holds the label.
      label_dtype: Its type: an integer type, or string for a `label_vocabulary`.
      label_default: The label of an Example that has none; by default an error.
      weight_column: The key of the example's weight, or a `numeric_column`.

    Returns:
      A dict of `FixedLenFeature` and `VarLenFeature` by key.

    Raises:
      FeatureError: The label or the weight is a feature of a column as well, or the
        columns disagree as in `make_parse_example_spec`.

    Example:
      >>> spec = classifier_parse_example_spec([numeric_column("age")], "sick")
      >>> spec["sick"]
      FixedLenFeature(shape=(1,), dtype='int64', default_value=None)
    """
    label = FixedLenFeature((1,), label_dtype, label_default)
    return _with_label(feature_columns, label_key, label, weight_column)


def regressor_parse_example_spec(
    feature_columns: Iterable[Column],
    label_key: str,
    label_dtype: Any = "float32",
    label_default: Any = None,
    label_dimension: int = 1,
    weight_column: str | NumericColumn | None = None,
) -> ParseSpec:
    """Return how the features of columns, the targets and a weight are stored.

    Use it to parse Examples for a regressor.

    Args:
      feature_columns: Columns of any kind.
      label_key: The feature that holds the targets.
      label_dtype: Its type.
      label_default: The targets of an Example that has none; by default an error.
      label_dimension: The number of targets.
      weight_column: The key of the example's weight, or a `numeric_column`.

    Returns:
      A dict of `FixedLenFeature` and `VarLenFeature` by key.

    Raises:
      FeatureError: The label or the weight is a feature of a column as well, or the
        columns disagree as in `make_parse_example_spec`.

    Example:
      >>> columns = [numeric_column("age")]
      >>> regressor_parse_example_spec(columns, "y", label_dimension=2)["y"].shape
      (2,)
    """
    label = FixedLenFeature((label_dimension,), label_dtype, label_default)
    return _with_label(feature_columns, label_key, label, weight_column)


def _with_label(
    feature_columns: Iterable[Column],
    label_key: str,
    label: FixedLenFeature,
    weight_column: str | NumericColumn | None,
) -> ParseSpec:
    spec = make_parse_example_spec(feature_columns)
    if label_key in spec:
        raise FeatureError(f"the label {label_key!r} is also the key of a feature.")
    spec[label_key] = label
    if weight_column is None:
        return spec
    if isinstance(weight_column, str):
        weight_column = numeric_column(weight_column)
    if not isinstance(weight_column, NumericColumn):
        raise FeatureError(
            f"weight_column must be a key or a numeric_column, got {weight_column!r}."
        )
    if weight_column.key in spec:
        raise FeatureError(
            f"the weight {weight_column.key!r} is the key of a feature or the label."
        )
    return {**spec, **weight_column.parse_example_spec}
