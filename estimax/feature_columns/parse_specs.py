"""What a parser must know to read the features of columns from Examples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from estimax.core.errors import FeatureError
from estimax.core.parse_spec import FixedLenFeature
from estimax.feature_columns.column import Column, ParseSpec, is_column
from estimax.feature_columns.numeric import NumericColumn, numeric_column


def make_parse_example_spec(feature_columns: Iterable[Column]) -> ParseSpec:
    """How the features of all columns are stored in an Example.

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
            if merged.setdefault(key, feature) != feature:
                raise FeatureError(
                    f"make_parse_example_spec: feature {key!r} is declared in two "
                    f"ways, {merged[key]} and (by column {column.name!r}) {feature}."
                )
    return merged


def classifier_parse_example_spec(
    feature_columns: Iterable[Column],
    label_key: str,
    label_dtype: Any = "int64",
    label_default: Any = None,
    weight_column: str | NumericColumn | None = None,
) -> ParseSpec:
    """How the features of columns, one label and a weight are stored in an Example.

    >>> sorted(classifier_parse_example_spec([numeric_column("age")], "sick"))
    ['age', 'sick']
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
    """How the features of columns, the targets and a weight are stored in an Example.

    >>> regressor_parse_example_spec([numeric_column("age")], "y")["y"].shape
    (1,)
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
        raise FeatureError(f"the label {label_key!r} is the key of a feature, too.")
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
