"""The networks of the canned models as functions, to be parts of others.

logit_fn = dnn_logit_fn_builder(1, [64, 32], columns)
logits = variables.scoped("tower", logit_fn)(features=features, mode=mode)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
from flax import linen as nn

from estimax.canned.layers import Activation, dnn_logits, linear_logits
from estimax.core.errors import SpecError


def dnn_logit_fn_builder(
    units: int,
    hidden_units: Sequence[int],
    feature_columns: Iterable[Any],
    activation_fn: Activation | None = nn.relu,
    dropout: float | None = None,
    batch_norm: bool = False,
) -> Callable[..., jax.Array]:
    """Build logit_fn(features, mode) -> logits [B, units] of a deep network.

    >>> from estimax.feature_columns import numeric_column
    >>> logit_fn = dnn_logit_fn_builder(1, [8], [numeric_column("x")])
    """
    _check_units(units, "dnn_logit_fn_builder")
    columns = tuple(feature_columns)

    def dnn_logit_fn(features: Any, mode: str) -> jax.Array:
        return dnn_logits(
            features,
            mode,
            columns=columns,
            hidden_units=hidden_units,
            units=units,
            activation_fn=activation_fn,
            dropout=dropout,
            batch_norm=batch_norm,
        )

    return dnn_logit_fn


def linear_logit_fn_builder(
    units: int, feature_columns: Iterable[Any], sparse_combiner: str = "sum"
) -> Callable[..., jax.Array]:
    """Build logit_fn(features) -> logits [B, units] of a linear model.

    >>> from estimax.feature_columns import numeric_column
    >>> logit_fn = linear_logit_fn_builder(1, [numeric_column("x")])
    """
    _check_units(units, "linear_logit_fn_builder")
    columns = tuple(feature_columns)

    def linear_logit_fn(features: Any) -> jax.Array:
        return linear_logits(
            features, columns=columns, units=units, sparse_combiner=sparse_combiner
        )

    return linear_logit_fn


def _check_units(units: Any, function: str) -> None:
    if not isinstance(units, int) or units < 1:
        raise SpecError(
            f"{function}: units must be a positive number of logits, got {units!r}."
        )
