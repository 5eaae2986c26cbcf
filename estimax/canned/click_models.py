"""Click-through models: DeepFM, deep and cross network, deep interest network.

The papers are:

    DeepFMClassifier   Guo et al., "DeepFM: A Factorization-Machine based Neural Network
                       for CTR Prediction" (2017)
    DCNClassifier      Wang et al., "DCN V2: Improved Deep & Cross Network" (2020)
    DINClassifier      Zhou et al., "Deep Interest Network for Click-Through Rate
                       Prediction" (2018)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import feature_columns as fc
from estimax import heads, optimizers
from estimax.canned import defaults
from estimax.canned.defaults import (
    ModelPath,
    check_features,
    click_head,
    validate_optimizer,
)
from estimax.canned.hints import python_hint
from estimax.canned.layers import hidden_layers
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.errors import ConfigError, FeatureError
from estimax.core.spec import EstimatorSpec
from estimax.estimator import Estimator, RunConfig


class DeepFMClassifier(Estimator):
    """DeepFM: a linear part, products of all pairs of embeddings, and hidden layers.

    Use it for click-through data with many categorical features: it learns the
    interaction of every pair of features without crosses made by hand.

    Args:
      hidden_units: Width of each hidden layer, first to last, e.g. `[256, 128]`.
      feature_columns: At least two embedding columns of one dimension, whose pairs are
        multiplied. Other dense columns join the hidden layers and the linear part.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      linear_feature_columns: Columns of the linear part. None: the categorical columns
        under the embeddings, and the other columns.
      optimizer: An `ex.optimizers` optimizer, an optax transformation, a function that
        returns one, or a name. None: `LazyAdam(0.001)`, which only updates the table
        rows of the batch.
      dropout: Share of each hidden layer's outputs set to 0 in training. None: no
        dropout.
      weight_column: A feature name or `numeric_column` with the weight of each example
        in the loss and the metrics. Give it to `head` if you pass one.
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.
      head: Another head of one logit, such as a `BinaryClassHead` with a
        `label_vocabulary`. None: `BinaryClassHead()`.

    Raises:
      FeatureError: There are fewer than two embedding columns, or their dimensions
        differ.
      SpecError: Both `head` and `weight_column` are given.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> fc = ex.feature_columns
      >>> features = {
      ...     "city": np.array(["Oslo", "Oslo", "Rome", "Rome"]),
      ...     "page": np.array(["ski", "sea", "ski", "sea"]),
      ... }
      >>> clicks = np.array([1, 0, 0, 1])  # no single feature tells
      >>> rows = ex.input.Dataset.from_tensor_slices((features, clicks))
      >>> columns = [
      ...     fc.embedding_column(fc.categorical_column_with_hash_bucket(name, 100), 4)
      ...     for name in features
      ... ]
      >>> fast = ex.optimizers.Adagrad(0.5)
      >>> model = ex.DeepFMClassifier([8], columns, optimizer=fast)
      >>> model = model.train(lambda: rows.repeat().batch(4), steps=40)
      >>> float(model.evaluate(lambda: rows.batch(4))["accuracy"])
      1.0
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Iterable[Any],
        model_dir: ModelPath | None = None,
        linear_feature_columns: Iterable[Any] | None = None,
        optimizer: Any = None,
        dropout: float | None = None,
        weight_column: Any = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        head: heads.Head | None = None,
    ) -> None:
        columns = defaults.validate_columns(feature_columns, "DeepFMClassifier")
        hidden_units = defaults.validate_units(hidden_units, "DeepFMClassifier")
        defaults.check_dropout(dropout, "DeepFMClassifier")
        fields = _fields(columns)
        if linear_feature_columns is None:
            # Without duplicates: two embeddings may share a categorical column.
            linear_feature_columns = dict.fromkeys(map(_ids_or_numbers, columns))
        linear = tuple(linear_feature_columns)
        chosen = click_head(head, weight_column)
        trained_by = optimizer or optimizers.LazyAdam(0.001)
        known = validate_optimizer(trained_by, None, "DeepFMClassifier")

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            check_features(features, "DeepFMClassifier")
            blocks: dict[Any, jax.Array] = {}
            net = fc.input_layer(features, columns, cols_to_output_tensors=blocks)
            vectors = jnp.stack([blocks[field] for field in fields], axis=1)
            first_order = fc.linear_model(features, linear)
            second_order = pairwise_products(vectors)
            net = hidden_layers(net, hidden_units, dropout=dropout, mode=mode)
            deep = nn.Dense(1, name="logits")(net)
            logits = first_order + second_order + deep
            return chosen.create_estimator_spec(
                features, mode, logits, labels, optimizer=trained_by
            )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)
        self.not_learning_hint = python_hint(chosen, optimizer=known)


class DCNClassifier(Estimator):
    """Deep and cross network: cross layers that multiply features, and hidden layers.

    Use it when products of more than two features matter. Each cross layer multiplies
    the features once more. `DeepFMClassifier` has an example of training.

    Args:
      hidden_units: Width of each hidden layer, first to last, e.g. `[256, 128]`.
      feature_columns: Dense columns (`embedding_column`, `numeric_column` …).
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      cross_layers: Number of cross layers.
      projection: Rank of the weight of each cross layer, U Vᵀ instead of a square
        matrix. A quarter of the input width is often enough. None: a square matrix.
      structure: "parallel": the hidden layers read the features. "stacked": they read
        the output of the cross layers.
      optimizer: An `ex.optimizers` optimizer, an optax transformation, a function that
        returns one, or a name. None: `LazyAdam(0.001)`, which only updates the table
        rows of the batch.
      dropout: Share of each hidden layer's outputs set to 0 in training. None: no
        dropout.
      weight_column: A feature name or `numeric_column` with the weight of each example
        in the loss and the metrics. Give it to `head` if you pass one.
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.
      head: Another head of one logit, such as a `BinaryClassHead` with a
        `label_vocabulary`. None: `BinaryClassHead()`.

    Raises:
      ConfigError: `structure` is neither "parallel" nor "stacked".
      SpecError: Both `head` and `weight_column` are given.

    Example:
      >>> import estimax as ex
      >>> fc = ex.feature_columns
      >>> city = fc.categorical_column_with_hash_bucket("city", 1000)
      >>> columns = [fc.embedding_column(city, 8), fc.numeric_column("age")]
      >>> model = ex.DCNClassifier([64, 32], columns, structure="stacked")
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Iterable[Any],
        model_dir: ModelPath | None = None,
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
        columns = defaults.validate_columns(feature_columns, "DCNClassifier")
        hidden_units = defaults.validate_units(hidden_units, "DCNClassifier")
        defaults.check_count(cross_layers, "DCNClassifier", "cross_layers")
        defaults.check_dropout(dropout, "DCNClassifier")
        chosen = click_head(head, weight_column)
        trained_by = optimizer or optimizers.LazyAdam(0.001)
        known = validate_optimizer(trained_by, None, "DCNClassifier")

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            check_features(features, "DCNClassifier")
            first = fc.input_layer(features, columns)
            crossed = first
            for index in range(cross_layers):
                crossed = CrossLayer(projection, name=f"cross_{index}")(first, crossed)
            net = first if structure == "parallel" else crossed
            net = hidden_layers(net, hidden_units, dropout=dropout, mode=mode)
            if structure == "parallel":
                net = jnp.concatenate([crossed, net], axis=-1)
            logits = nn.Dense(1, name="logits")(net)
            return chosen.create_estimator_spec(
                features, mode, logits, labels, optimizer=trained_by
            )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)
        self.not_learning_hint = python_hint(chosen, optimizer=known)


class DINClassifier(Estimator):
    """Deep interest network: attention of a candidate item over the user's history.

    Use it when the history of a user (items clicked, for example) is a sequence
    feature, and only the part of it that resembles the candidate matters.
    `DeepFMClassifier` has an example of training.

    Args:
      hidden_units: Width of each hidden layer, first to last, e.g. `[256, 128]`.
      attend: Pairs (candidate column, sequence column) of the same kind of thing, of
        one dimension. `fc.shared_embeddings` gives both the same table. All sequences
        of an example have the same length.
      feature_columns: Dense columns of everything else that is known.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      attention_units: Width of each hidden layer of the attention.
      optimizer: An `ex.optimizers` optimizer, an optax transformation, a function that
        returns one, or a name. None: `LazyAdam(0.001)`, which only updates the table
        rows of the batch.
      dropout: Share of each hidden layer's outputs set to 0 in training. None: no
        dropout.
      weight_column: A feature name or `numeric_column` with the weight of each example
        in the loss and the metrics. Give it to `head` if you pass one.
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.
      head: Another head of one logit, such as a `BinaryClassHead` with a
        `label_vocabulary`. None: `BinaryClassHead()`.

    Raises:
      FeatureError: `attend` is empty, or a pair is not a candidate and a sequence
        column of one dimension.
      SpecError: Both `head` and `weight_column` are given.

    Example:
      >>> import estimax as ex
      >>> fc = ex.feature_columns
      >>> item = fc.categorical_column_with_hash_bucket("item", 1000)
      >>> clicked = fc.sequence_categorical_column_with_hash_bucket("clicked", 1000)
      >>> pair = tuple(fc.shared_embeddings([item, clicked], 8))
      >>> model = ex.DINClassifier([64], attend=[pair])
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        attend: Iterable[tuple[Any, Any]],
        feature_columns: Iterable[Any] = (),
        model_dir: ModelPath | None = None,
        attention_units: Sequence[int] = (36,),
        optimizer: Any = None,
        dropout: float | None = None,
        weight_column: Any = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        head: heads.Head | None = None,
    ) -> None:
        pairs = _validate_pairs(attend)
        columns = tuple(feature_columns)
        if columns:
            defaults.validate_columns(columns, "DINClassifier")
        hidden_units = defaults.validate_units(hidden_units, "DINClassifier")
        defaults.check_dropout(dropout, "DINClassifier")
        chosen = click_head(head, weight_column)
        trained_by = optimizer or optimizers.LazyAdam(0.001)
        known = validate_optimizer(trained_by, None, "DINClassifier")

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
            net = hidden_layers(net, hidden_units, dropout=dropout, mode=mode)
            logits = nn.Dense(1, name="logits")(net)
            return chosen.create_estimator_spec(
                features, mode, logits, labels, optimizer=trained_by
            )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)
        self.not_learning_hint = python_hint(chosen, optimizer=known)


def pairwise_products(vectors: jax.Array) -> jax.Array:
    """Return the sum of the dot products of all pairs of fields: [B, F, D] to [B, 1].

    >>> pairwise_products(jnp.array([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]])).tolist()
    [[67.0]]
    """
    # (Σv)² - Σv² counts every pair twice, hence 0.5. Its cost grows with F, not F².
    square_of_sum = jnp.square(vectors.sum(axis=1))
    sum_of_squares = jnp.square(vectors).sum(axis=1)
    return 0.5 * (square_of_sum - sum_of_squares).sum(axis=1, keepdims=True)


def _fields(columns: Sequence[Any]) -> list[Any]:
    """Return the embedding columns, checked to be two or more of one dimension."""
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
    """Return the column that the linear part reads in place of this one."""
    return column.categorical_column if _embeds(column) else column


class CrossLayer(nn.Module):
    """A cross layer: first * (W x + b) + x, all [B, D].

    >>> x = jnp.array([[1.0, 2.0]])
    >>> params = {"kernel": {"kernel": jnp.eye(2), "bias": jnp.ones(2)}}
    >>> CrossLayer().apply({"params": params}, x, x).tolist()
    [[3.0, 8.0]]
    """

    projection: int | None = None

    @nn.compact
    def __call__(self, first: jax.Array, x: jax.Array) -> jax.Array:
        """Multiply the features `first` of the first layer with a projection of `x`."""
        low = x
        if self.projection is not None:
            low = nn.Dense(self.projection, use_bias=False, name="projection")(x)
        mixed: jax.Array = nn.Dense(x.shape[-1], name="kernel")(low)
        return first * mixed + x


class Attention(nn.Module):
    """The weighted sum over the steps of a history, [B, T, D] to [B, D].

    The weight of a step is computed from the step and the candidate [B, D]. As in the
    paper, weights are not normalised, so the sum is larger for a user with more steps
    that resemble the candidate. Steps after an example's length have weight 0.
    """

    units: Sequence[int]

    @nn.compact
    def __call__(
        self, candidate: jax.Array, history: jax.Array, lengths: jax.Array
    ) -> jax.Array:
        """Weigh and sum the steps of each history."""
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
    """Return candidates [B, D], histories [B, T, D] in one order, and lengths [B]."""
    # An input layer sorts its columns by name, so pairs are sorted by the name of the
    # sequence, and each candidate has a layer of its own. All sequences go through one
    # layer, which checks that they have the same lengths.
    pairs = sorted(pairs, key=lambda pair: pair[1].name)
    candidates = [
        fc.input_layer(features, [candidate], name=f"candidate_{i}")
        for i, (candidate, _) in enumerate(pairs)
    ]
    steps, lengths = fc.sequence_input_layer(
        features, [behaviour for _, behaviour in pairs], name="behaviour"
    )
    return jnp.concatenate(candidates, axis=-1), steps, lengths


def _validate_pairs(attend: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
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
                f"DINClassifier: {candidate.name!r} and {behaviour.name!r} must have "
                f"the same dimension, because they are compared; they have "
                f"{candidate.variable_shape} and {behaviour.variable_shape}."
            )
    return pairs
