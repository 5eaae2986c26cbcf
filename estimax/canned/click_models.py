"""DeepFM: every pair of features by the product of its vectors, and a deep network.

Guo et al., "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction"
(2017). One logit is the sum of three: linear in the features, the pairwise products of
their embedding vectors, and hidden layers over the same vectors.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import feature_columns as fc
from estimax import heads, optimizers
from estimax.canned.parts import check_features, click_head
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.errors import ConfigError, FeatureError
from estimax.core.spec import EstimatorSpec, ModeKeys
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


class DCNClassifier(Estimator):
    """A click model of `cross_layers` cross layers and hidden layers.

    The deep network reads the features beside the cross layers ("parallel"), or what
    comes out of them ("stacked"). `projection` gives each cross layer a weight of that
    rank, U Vᵀ, in the place of a square one: a quarter of the width is often enough.
    Without another `optimizer` it is LazyAdam(0.001). `head` may be another one of
    one logit.

    >>> import estimax as ex
    >>> fc = ex.feature_columns
    >>> city = fc.categorical_column_with_hash_bucket("city", 1000)
    >>> columns = [fc.embedding_column(city, 8), fc.numeric_column("age")]
    >>> model = ex.DCNClassifier([64, 32], columns, "/tmp/estimax-doc-dcn")
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Iterable[Any],
        model_dir: str | os.PathLike[str] | None = None,
        cross_layers: int = 3,
        projection: int | None = None,
        structure: Literal["parallel", "stacked"] = "parallel",
        optimizer: Any = None,
        dropout: float | None = None,
        weight_column: Any = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        head: heads.Head | None = None,
    ) -> None:
        if structure not in ("parallel", "stacked"):
            raise ConfigError(
                "DCNClassifier: structure must be 'parallel' or 'stacked', got "
                f"{structure!r}."
            )
        columns = tuple(feature_columns)
        chosen = click_head(head, weight_column)
        trained_by = optimizer or optimizers.LazyAdam(0.001)

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            check_features(features, "DCNClassifier")
            first = fc.input_layer(features, columns)
            crossed = first
            for index in range(cross_layers):
                crossed = Cross(projection, name=f"cross_{index}")(first, crossed)
            net = first if structure == "parallel" else crossed
            for index, units in enumerate(hidden_units):
                net = nn.relu(nn.Dense(units, name=f"hidden_{index}")(net))
                if dropout:
                    net = nn.Dropout(dropout, deterministic=mode != ModeKeys.TRAIN)(net)
            if structure == "parallel":
                net = jnp.concatenate([crossed, net], axis=-1)
            logits = nn.Dense(1, name="logits")(net)
            return chosen.create_estimator_spec(
                features, mode, logits, labels, optimizer=trained_by
            )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class Cross(nn.Module):
    """A cross layer: first ⊙ (W x + b) + x, all [B, D].

    >>> x = jnp.array([[1.0, 2.0]])
    >>> params = {"kernel": {"kernel": jnp.eye(2), "bias": jnp.ones(2)}}
    >>> Cross().apply({"params": params}, x, x).tolist()
    [[3.0, 8.0]]
    """

    projection: int | None = None

    @nn.compact
    def __call__(self, first: jax.Array, x: jax.Array) -> jax.Array:
        """Multiply the features of `x` with those of the first layer."""
        low = x
        if self.projection is not None:
            low = nn.Dense(self.projection, use_bias=False, name="projection")(x)
        mixed: jax.Array = nn.Dense(x.shape[-1], name="kernel")(low)
        return first * mixed + x


class DINClassifier(Estimator):
    """A click model with attention over a behaviour sequence.

    `attend` pairs a column of the candidate with the sequence column of the same thing
    in the user's history; `fc.shared_embeddings` gives both one table. All histories
    have the same lengths. `feature_columns` are whatever else is known. Without another
    `optimizer` it is LazyAdam(0.001). `head` may be another one of
    one logit.

    >>> import estimax as ex
    >>> fc = ex.feature_columns
    >>> item = fc.categorical_column_with_hash_bucket("item", 1000)
    >>> clicked = fc.sequence_categorical_column_with_hash_bucket("clicked", 1000)
    >>> pair = tuple(fc.shared_embeddings([item, clicked], 8))
    >>> age = fc.numeric_column("age")
    >>> model = ex.DINClassifier([64], [pair], [age], "/tmp/estimax-doc-din")
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        attend: Iterable[tuple[Any, Any]],
        feature_columns: Iterable[Any] = (),
        model_dir: str | os.PathLike[str] | None = None,
        attention_units: Sequence[int] = (36,),
        optimizer: Any = None,
        dropout: float | None = None,
        weight_column: Any = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        head: heads.Head | None = None,
    ) -> None:
        pairs = _checked(attend)
        columns = tuple(feature_columns)
        chosen = click_head(head, weight_column)
        trained_by = optimizer or optimizers.LazyAdam(0.001)

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            check_features(features, "DINClassifier")
            candidate, history, lengths = _vectors(features, pairs)
            interest = Attention(attention_units, name="attention")(
                candidate, history, lengths
            )
            parts = [candidate, interest, candidate * interest]
            if columns:
                parts.append(fc.input_layer(features, columns, name="context"))
            net = jnp.concatenate(parts, axis=-1)
            for index, units in enumerate(hidden_units):
                net = nn.relu(nn.Dense(units, name=f"hidden_{index}")(net))
                if dropout:
                    net = nn.Dropout(dropout, deterministic=mode != ModeKeys.TRAIN)(net)
            logits = nn.Dense(1, name="logits")(net)
            return chosen.create_estimator_spec(
                features, mode, logits, labels, optimizer=trained_by
            )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class Attention(nn.Module):
    """The steps of [B, T, D], weighed by their likeness to [B, D] and added: [B, D].

    The weights are not made to sum to one, as in the paper: a user with much of an
    interest differs from one with little. Steps past an example's length count nothing.
    """

    units: Sequence[int]

    @nn.compact
    def __call__(
        self, candidate: jax.Array, history: jax.Array, lengths: jax.Array
    ) -> jax.Array:
        """Weigh and add."""
        wanted = jnp.broadcast_to(candidate[:, None], history.shape)
        net = jnp.concatenate(
            [wanted, history, wanted - history, wanted * history], axis=-1
        )
        for index, size in enumerate(self.units):
            net = nn.sigmoid(nn.Dense(size, name=f"hidden_{index}")(net))
        weights = nn.Dense(1, name="weight")(net)[..., 0]  # [B, T]
        is_there = jnp.arange(history.shape[1]) < lengths[:, None]
        return jnp.einsum("bt,btd->bd", jnp.where(is_there, weights, 0.0), history)


def _vectors(
    features: Any, pairs: Sequence[tuple[Any, Any]]
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The candidate [B, D], the history [B, T, D] in the same order, its lengths."""
    # A layer orders its columns by name, which may tear pairs apart; one sequence layer
    # all the same, since it sees that all histories have the same lengths.
    pairs = sorted(pairs, key=lambda pair: pair[1].name)
    candidates = [
        fc.input_layer(features, [candidate], name=f"candidate_{i}")
        for i, (candidate, _) in enumerate(pairs)
    ]
    steps, lengths = fc.sequence_input_layer(
        features, [behaviour for _, behaviour in pairs], name="behaviour"
    )
    return jnp.concatenate(candidates, axis=-1), steps, lengths


def _checked(attend: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    pairs = [(candidate, behaviour) for candidate, behaviour in attend]
    if not pairs:
        raise FeatureError(
            "DINClassifier: attend is empty; give pairs (candidate column, sequence "
            "column), such as fc.shared_embeddings([item, clicked_items], 16)."
        )
    for candidate, behaviour in pairs:
        if fc.is_sequence(candidate) or not fc.is_sequence(behaviour):
            raise FeatureError(
                "DINClassifier: a pair of attend is (candidate column, sequence "
                f"column); got ({candidate.name!r}, {behaviour.name!r})."
            )
        if candidate.variable_shape != behaviour.variable_shape:
            raise FeatureError(
                f"DINClassifier: {candidate.name!r} and {behaviour.name!r} are compared"
                f" and need one dimension; they have {candidate.variable_shape} and "
                f"{behaviour.variable_shape}."
            )
    return pairs
