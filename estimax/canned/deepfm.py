"""DeepFM: every pair of features by the product of its vectors, and a deep network.

Guo et al., "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction"
(2017). One logit is the sum of three: linear in the features, the pairwise products of
their embedding vectors, and hidden layers over the same vectors.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import feature_columns as fc
from estimax import heads, optimizers
from estimax.canned.parts import check_features, click_head
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.errors import FeatureError
from estimax.core.mode import ModeKeys
from estimax.core.spec import EstimatorSpec
from estimax.estimator import Estimator, RunConfig


class DeepFMClassifier(Estimator):
    """A click model over embedding columns of one dimension, and any dense columns.

    Embedding columns are the fields whose pairs count; numeric and indicator columns
    join them in the deep and the linear part. The linear part weighs the ids that the
    embedding columns embed; `linear_feature_columns` says otherwise. Without another
    `optimizer` it is LazyAdam(0.001), which moves the rows of a batch only. `head` may
    be another one of one logit, such as a BinaryClassHead with a label_vocabulary.

    >>> import estimax as ex
    >>> fc = ex.feature_columns
    >>> city = fc.categorical_column_with_hash_bucket("city", 1000)
    >>> page = fc.categorical_column_with_hash_bucket("page", 1000)
    >>> columns = [fc.embedding_column(c, 8) for c in (city, page)]
    >>> columns.append(fc.numeric_column("age"))
    >>> model = ex.DeepFMClassifier([64, 32], columns, "/tmp/estimax-doc-deepfm")
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Iterable[Any],
        model_dir: str | os.PathLike[str] | None = None,
        linear_feature_columns: Iterable[Any] | None = None,
        optimizer: Any = None,
        dropout: float | None = None,
        weight_column: Any = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        head: heads.Head | None = None,
    ) -> None:
        columns = tuple(feature_columns)
        fields = _fields(columns)
        if linear_feature_columns is None:  # each once: embeddings may share their ids
            linear_feature_columns = dict.fromkeys(map(_ids_or_numbers, columns))
        linear = tuple(linear_feature_columns)
        chosen = click_head(head, weight_column)
        trained_by = optimizer or optimizers.LazyAdam(0.001)

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            check_features(features, "DeepFMClassifier")
            blocks: dict[Any, jax.Array] = {}
            net = fc.input_layer(features, columns, cols_to_output_tensors=blocks)
            vectors = jnp.stack([blocks[field] for field in fields], axis=1)
            logits = (
                fc.linear_model(features, linear)
                + pairwise_products(vectors)
                + _deep(net, hidden_units, dropout, mode)
            )
            return chosen.create_estimator_spec(
                features, mode, logits, labels, optimizer=trained_by
            )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


def pairwise_products(vectors: jax.Array) -> jax.Array:
    """The sum of the dot products of all pairs of fields: [B, F, D] to [B, 1].

    >>> pairwise_products(jnp.array([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]])).tolist()
    [[67.0]]
    """
    # (Σv)² - Σv² counts every pair twice and costs F, not F².
    square_of_sum = jnp.square(vectors.sum(axis=1))
    sum_of_squares = jnp.square(vectors).sum(axis=1)
    return 0.5 * (square_of_sum - sum_of_squares).sum(axis=1, keepdims=True)


def _deep(
    net: jax.Array, hidden_units: Sequence[int], dropout: float | None, mode: str
) -> jax.Array:
    for index, units in enumerate(hidden_units):
        net = nn.relu(nn.Dense(units, name=f"hidden_{index}")(net))
        if dropout:
            net = nn.Dropout(dropout, deterministic=mode != ModeKeys.TRAIN)(net)
    logits: jax.Array = nn.Dense(1, name="logits")(net)
    return logits


def _fields(columns: Sequence[Any]) -> list[Any]:
    fields = [column for column in columns if _embeds(column)]
    dimensions = {column.name: column.dimension for column in fields}
    if len(fields) < 2 or len(set(dimensions.values())) > 1:
        raise FeatureError(
            "DeepFMClassifier: feature_columns needs at least two embedding columns, "
            f"all of one dimension, because it multiplies them; got {dimensions}."
        )
    return fields


def _embeds(column: Any) -> bool:
    return isinstance(column, fc.EmbeddingColumn)


def _ids_or_numbers(column: Any) -> Any:
    """What the linear part weighs in the place of this column."""
    return column.categorical_column if _embeds(column) else column
