"""Networks for tables: `TabularEstimator`, `TabularClassifier`, `TabularRegressor`.

    columns = ex.feature_columns.tabular_columns(rows)
    model = ex.TabularClassifier(columns, train_rows=30_000, train_steps=3_000)

Numbers are piecewise-linear codes with a small layer each, categories are one-hot or
embeddings. A linear layer is added to a network with members that share most of their
weights. The papers:

    Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep Learning"
    Gorishniy et al., "TabM: Advancing Tabular Deep Learning with Parameter-Efficient
                       Ensembling"
    Holzmüller et al., "Better by Default: Strong Pre-Tuned MLPs and Boosted Trees"
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from estimax import feature_columns as fc
from estimax import heads, optimizers, staging
from estimax.canned import defaults
from estimax.canned.hints import python_hint
from estimax.canned.member_predictions import average_logits
from estimax.canned.tabular_layers import (
    LinearPath,
    MemberDense,
    MemberLogits,
    MemberScale,
    SmallLayers,
)
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.spec import EstimatorSpec, ModeKeys
from estimax.estimator import Estimator, RunConfig
from estimax.staging import variables

# A table above this size is updated by row: momentum and decay then skip the rows that
# a batch does not have, and a step costs the same for any size.
_LARGE_TABLE = 20_000
# The linear part learns faster than the network, and decays less.
_LINEAR_RATE, _LINEAR_DECAY = 5.0, 0.1


class TabularSizes(NamedTuple):
    """Sizes of a tabular model; see `tabular_sizes`."""

    hidden_units: tuple[int, ...]
    members: int
    dropout: float
    code_units: int
    learning_rate: float
    weight_decay: float


def tabular_sizes(train_rows: int | None, columns: int) -> TabularSizes:
    """Return the sizes that a tabular model has by default.

    >>> tabular_sizes(30_000, columns=14).hidden_units
    (128, 128)
    """
    rows = 10_000 if train_rows is None else train_rows
    # Measured by benchmarks/quality.py. A table of some hundred rows is fitted almost
    # by its linear part alone; the decay below needs the steps that such a table gets.
    limits = ((2_000, (64, 0.5, 1.0)), (10_000, (128, 0.3, 0.3)))
    large = (128 if rows < 200_000 else 256, 0.15 if rows < 200_000 else 0.1, 0.1)
    units, dropout, decay = next((s for most, s in limits if rows < most), large)
    return TabularSizes(
        hidden_units=(units, units),
        members=8,
        dropout=dropout,
        code_units=16 if columns <= 40 else 8,
        learning_rate=2e-3,
        weight_decay=decay,
    )


class TabularEstimator(Estimator):
    """A network for tables, trained for any head.

    Use it for rows of numbers and categories. `TabularClassifier` and
    `TabularRegressor` are shorter where one of them fits. The parts:

    - A `piecewise_linear_column` goes through a small layer of its own: 16 units, or 8
      if there are more than 40 columns.
    - A categorical column of up to 16 ids is one-hot, a larger one an embedding whose
      width is the square root of the number of ids, at most 32. A flag marks rows
      without a value.
    - A linear layer, whose logits are added to those of the network. It starts at 0,
      so a small table gets about the linear model.
    - Hidden layers with relu and dropout: two of 64 units and dropout 0.5 for less than
      2,000 `train_rows`, of 128 units and 0.3 for less than 10,000 or 0.15 for less
      than 200,000, and of 256 units and 0.1 above.
    - 8 members share the weights of the hidden layers. Each scales the input (by 1 or
      -1 at first), and has biases and output weights of its own. The training loss is
      the mean of the members' losses; predictions, and the metrics of an evaluation,
      are of the average of their probabilities.
    - `AdamW` with a warmup of up to 100 steps to a learning rate of 0.002, a cosine
      decay to 0 if `train_steps` is given, and gradients clipped to a norm of 1. Its
      weight decay is 1 for less than 2,000 rows, 0.3 for less than 10,000 and 0.1
      above. The linear layer has 5 times the learning rate and a tenth of the decay.

    Args:
      head: What the model is trained for; sets the width of the logits, the loss and
        the metrics.
      feature_columns: `tabular_columns` of the training rows, or columns of your own:
        categorical columns (not wrapped), `piecewise_linear_column`s, and any other
        dense columns.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      hidden_units: Width of each hidden layer, first to last. None: by `train_rows`.
      members: How many members are averaged. None: 8.
      dropout: Share of each hidden layer's outputs set to 0 in training; 0 for none.
        None: by `train_rows`.
      optimizer: An `ex.optimizers` optimizer, an optax transformation, a function that
        returns one, or a name. None: `AdamW` as described at `TabularEstimator`.
      train_rows: Number of training rows, from which the sizes are chosen. None: those
        for 10,000 rows.
      train_steps: Number of training steps, over which the learning rate decays to 0.
        None: it stays constant.
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.

    Raises:
      SpecError: An argument has the wrong type or range, such as `hidden_units=8`.
      FeatureError: A value is no feature column, or two have the same name; or, at the
        first call, the features are not a dict.

    Example:
      >>> import estimax as ex
      >>> columns = ex.feature_columns.tabular_columns({"x": [1.0, 2.0, 5.0]})
      >>> model = ex.TabularEstimator(ex.heads.PoissonRegressionHead(), columns)
    """

    def __init__(
        self,
        head: heads.Head,
        feature_columns: Iterable[Any],
        model_dir: defaults.ModelPath | None = None,
        hidden_units: Sequence[int] | None = None,
        members: int | None = None,
        dropout: float | None = None,
        optimizer: Any = None,
        train_rows: int | None = None,
        train_steps: int | None = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
    ) -> None:
        model = type(self).__name__
        defaults.check_head(head, model)
        layout = _layout_of(feature_columns, model)
        if train_rows is not None:
            defaults.check_count(train_rows, model, "train_rows")
        sizes = tabular_sizes(train_rows, len(layout.codes) + len(layout.categories))
        units = sizes.hidden_units
        if hidden_units is not None:
            units = defaults.validate_units(hidden_units, model)
        k = sizes.members if members is None else members
        defaults.check_count(k, model, "members")
        defaults.check_dropout(dropout, model)
        rate = sizes.dropout if dropout is None else dropout
        if train_steps is not None:
            defaults.check_count(train_steps, model, "train_steps")
        if optimizer is None:
            optimizer = _default_optimizer(sizes, train_steps)
        known = defaults.validate_optimizer(optimizer, None, model)

        def network(features: Any, mode: str) -> jax.Array:
            plain, net = _first_layer(features, layout, sizes.code_units)
            linear = LinearPath(head.logits_dimension, name="linear")(plain)
            net = MemberScale(k, name="members")(net)
            for index, size in enumerate(units):
                net = nn.relu(MemberDense(size, name=f"hiddenlayer_{index}")(net))
                if rate:
                    net = nn.Dropout(rate, deterministic=mode != ModeKeys.TRAIN)(net)
            width = head.logits_dimension
            logits: jax.Array = MemberLogits(width, name="logits")(net)
            return logits + linear[:, None]

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            defaults.check_features(features, model)
            logits = variables.scoped("tabular", network)(features, mode)
            average = average_logits(head, logits)
            spec = head.create_estimator_spec(
                features,
                mode,
                average,
                labels,
                optimizer=defaults.train_op_of(optimizer, None),
            )
            if mode != ModeKeys.TRAIN:
                return spec
            losses = [
                head.loss(
                    labels=labels, logits=logits[:, i], features=features, mode=mode
                )
                for i in range(k)
            ]
            return dataclasses.replace(spec, loss=sum(losses[1:], losses[0]) / k)

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)
        self.not_learning_hint = python_hint(head, optimizer=known)
        self._masks_padding = defaults.is_by_row(head, layout)
        # Whether the last checkpoint is as good as any: the learning rate ends at 0.
        self.settles = train_steps is not None


class _Layout(NamedTuple):
    """The columns of a tabular model by how they enter it."""

    codes: tuple[Any, ...]  # piecewise-linear columns of one number
    categories: tuple[Any, ...]  # categorical columns, for their missing values
    dense: tuple[Any, ...]  # all others, and categories as one-hot or embeddings


def _layout_of(given: Any, model: str) -> _Layout:
    columns = defaults.validate_columns(given, model, layer=lambda c: None)
    codes = tuple(c for c in columns if _is_code(c))
    categories = tuple(
        c for c in columns if fc.is_categorical(c) and not fc.is_dense(c)
    )
    others = tuple(c for c in columns if c not in codes and c not in categories)
    dense = (*others, *(_dense_of(column) for column in categories))
    fc.DenseFeatures([*codes, *dense])
    return _Layout(
        tuple(sorted(codes, key=lambda c: c.name)),
        tuple(sorted(categories, key=lambda c: c.name)),
        dense,
    )


def _is_code(column: Any) -> bool:
    return (
        isinstance(column, fc.PiecewiseLinearColumn)
        and math.prod(column.source_column.shape) == 1
    )


def embedding_width(num_buckets: int) -> int:
    """Return the width of the embedding of a category; 0 for one-hot.

    >>> [embedding_width(n) for n in (2, 16, 42, 1_000, 1_000_000)]
    [0, 0, 7, 32, 32]
    """
    return 0 if num_buckets <= 16 else min(32, math.ceil(math.sqrt(num_buckets)))


def _dense_of(column: Any) -> Any:
    width = embedding_width(column.num_buckets)
    if not width:
        return fc.indicator_column(column)
    is_large = column.num_buckets > _LARGE_TABLE
    return fc.embedding_column(column, width, row_updates=is_large)


def _first_layer(
    features: Any, layout: _Layout, code_units: int
) -> tuple[jax.Array, jax.Array]:
    """Return the input of the linear layer [B, N] and that of the network [B, D]."""
    parts = []
    if layout.dense:
        parts.append(fc.input_layer(features, layout.dense))
    if layout.categories:
        # The weights of a flag are what the network learns for a missing value.
        parts += [_is_missing(column, features) for column in layout.categories]
    codes = []
    if layout.codes:
        codes = [_codes(features, layout.codes, code_units)]
    plain = jnp.concatenate(parts or codes, axis=-1)
    return plain, jnp.concatenate([*parts, *codes], axis=-1)


def _is_missing(column: Any, features: Any) -> jax.Array:
    ids = column.ids(features, "error").ids
    flag = jnp.all(ids < 0, axis=1, keepdims=True).astype(jnp.float32)
    known: jax.Array = staging.as_model_input(flag, features, [column], [1])
    return known


def _codes(features: Any, columns: Sequence[Any], units: int) -> jax.Array:
    """Return the codes of all numbers after their small layers, [B, F * units]."""
    numbers = jnp.concatenate([c.numbers(features) for c in columns], axis=1)  # [B, F]
    most = max(len(column.boundaries) for column in columns) - 1
    # One array for all columns, so that the program does not grow with their number.
    # Bins that a column does not have are masked.
    low = np.zeros((len(columns), most), np.float32)
    width, mask = np.ones_like(low), np.zeros_like(low)
    for row, column in enumerate(columns):
        edges = np.asarray(column.boundaries, np.float32)
        low[row, : len(edges) - 1] = edges[:-1]
        width[row, : len(edges) - 1] = np.diff(edges)
        mask[row, : len(edges) - 1] = 1.0
    missing = jnp.isnan(numbers)[..., None]
    share = jnp.clip((numbers[..., None] - low) / width, 0.0, 1.0) * mask
    share = jnp.where(missing, 0.0, share)
    codes = jnp.concatenate([share, missing.astype(jnp.float32)], axis=-1)
    codes = staging.as_model_input(codes, features, columns, [1] * len(columns))
    net: jax.Array = SmallLayers(units, name="codes")(codes)
    return net


def _default_optimizer(
    sizes: TabularSizes, train_steps: int | None
) -> optimizers.TrainOp:
    """Return AdamW with a warmup, and a decay to 0 if the steps are known."""

    def adamw(speed: float, decay: float) -> optimizers.Optimizer:
        rate = _schedule(speed * sizes.learning_rate, train_steps)
        decay *= sizes.weight_decay
        return optimizers.AdamW(rate, weight_decay=decay, global_clipnorm=1.0)

    linear = "tabular/linear/"
    return optimizers.group(
        optimizers.minimize(adamw(_LINEAR_RATE, _LINEAR_DECAY), var_list=linear),
        optimizers.minimize(adamw(1.0, 1.0), var_list=f"(?!{linear})"),
    )


def _schedule(peak: float, train_steps: int | None) -> Any:
    if train_steps is None:
        return optimizers.linear_warmup(peak, 100)
    warmup = max(1, min(100, train_steps // 20))
    return optimizers.cosine_decay(
        0.0, max(1, train_steps - warmup), warmup_target=peak, warmup_steps=warmup
    )


class TabularClassifier(TabularEstimator):
    """A network for tables that classifies into two or more classes.

    Use it for rows of numbers and categories, without tuning. `TabularEstimator`
    describes the network and its default sizes.

    Args:
      feature_columns: `tabular_columns` of the training rows, or columns of your own:
        categorical columns (not wrapped), `piecewise_linear_column`s, and any other
        dense columns.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      hidden_units: Width of each hidden layer, first to last. None: by `train_rows`.
      members: How many members are averaged. None: 8.
      dropout: Share of each hidden layer's outputs set to 0 in training; 0 for none.
        None: by `train_rows`.
      optimizer: An `ex.optimizers` optimizer, an optax transformation, a function that
        returns one, or a name. None: `AdamW` as described at `TabularEstimator`.
      train_rows: Number of training rows, from which the sizes are chosen. None: those
        for 10,000 rows.
      train_steps: Number of training steps, over which the learning rate decays to 0.
        None: it stays constant.
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.
      n_classes: Number of classes. 2 makes a binary classifier with one logit.
      label_vocabulary: The labels as strings, in the order of their class ids. None:
        labels are integers in [0, n_classes).
      weight_column: A feature name or `numeric_column` with the weight of each example
        in the loss and the metrics. None: all weigh 1.
      loss_reduction: "sum_over_batch_size" (the mean over examples) or "sum". None: the
        mean.

    Raises:
      SpecError: An argument has the wrong type or range, such as `hidden_units=8`.
      FeatureError: A value is no feature column, or two have the same name; or, at the
        first call, the features are not a dict.
      LabelError: At the first call: labels are outside the classes.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> x = np.linspace(-1, 1, 64, dtype=np.float32)
      >>> features = {"x": x, "sign": np.where(x > 0, "plus", "minus")}
      >>> rows = ex.input.Dataset.from_tensor_slices((features, (abs(x) < 0.5) * 1))
      >>> columns = ex.feature_columns.tabular_columns(features)
      >>> model = ex.TabularClassifier(columns, train_rows=64, train_steps=60)
      >>> model = model.train(lambda: rows.repeat().batch(64), steps=60)
      >>> bool(model.evaluate(lambda: rows.batch(64))["accuracy"] > 0.9)
      True
    """

    def __init__(
        self,
        feature_columns: Iterable[Any],
        model_dir: defaults.ModelPath | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        hidden_units: Sequence[int] | None = None,
        members: int | None = None,
        dropout: float | None = None,
        optimizer: Any = None,
        train_rows: int | None = None,
        train_steps: int | None = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        loss_reduction: str | None = None,
    ) -> None:
        super().__init__(
            defaults.classifier_head(
                n_classes, weight_column, label_vocabulary, loss_reduction
            ),
            feature_columns,
            model_dir,
            hidden_units,
            members,
            dropout,
            optimizer,
            train_rows,
            train_steps,
            config,
            warm_start_from,
        )


class TabularRegressor(TabularEstimator):
    """A network for tables that predicts one or more numbers, by squared error.

    Use it for rows of numbers and categories, without tuning. `TabularEstimator`
    describes the network and its default sizes. Set `label_mean` and `label_std`: the
    defaults are for labels of that scale.

    Args:
      feature_columns: `tabular_columns` of the training rows, or columns of your own:
        categorical columns (not wrapped), `piecewise_linear_column`s, and any other
        dense columns.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      hidden_units: Width of each hidden layer, first to last. None: by `train_rows`.
      members: How many members are averaged. None: 8.
      dropout: Share of each hidden layer's outputs set to 0 in training; 0 for none.
        None: by `train_rows`.
      optimizer: An `ex.optimizers` optimizer, an optax transformation, a function that
        returns one, or a name. None: `AdamW` as described at `TabularEstimator`.
      train_rows: Number of training rows, from which the sizes are chosen. None: those
        for 10,000 rows.
      train_steps: Number of training steps, over which the learning rate decays to 0.
        None: it stays constant.
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.
      label_dimension: How many numbers are predicted per example. Labels have shape [B]
        or [B, label_dimension].
      label_mean: The mean of the training labels, subtracted before the loss.
      label_std: Their standard deviation, by which the rest is divided. Predictions and
        metrics keep the unit of the labels.
      weight_column: A feature name or `numeric_column` with the weight of each example
        in the loss and the metrics. None: all weigh 1.
      loss_reduction: "sum_over_batch_size" (the mean over examples) or "sum". None: the
        mean.

    Raises:
      SpecError: An argument has the wrong type or range, such as `hidden_units=8`.
      FeatureError: A value is no feature column, or two have the same name; or, at the
        first call, the features are not a dict.

    Example:
      >>> import estimax as ex
      >>> columns = ex.feature_columns.tabular_columns({"x": [1.0, 2.0, 5.0]})
      >>> model = ex.TabularRegressor(columns, label_mean=180_000, label_std=80_000)
    """

    def __init__(
        self,
        feature_columns: Iterable[Any],
        model_dir: defaults.ModelPath | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        label_mean: float = 0.0,
        label_std: float = 1.0,
        hidden_units: Sequence[int] | None = None,
        members: int | None = None,
        dropout: float | None = None,
        optimizer: Any = None,
        train_rows: int | None = None,
        train_steps: int | None = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        loss_reduction: str | None = None,
    ) -> None:
        super().__init__(
            heads.RegressionHead(
                label_dimension,
                weight_column=weight_column,
                loss_reduction=loss_reduction or defaults.MEAN,
                label_mean=label_mean,
                label_std=label_std,
            ),
            feature_columns,
            model_dir,
            hidden_units,
            members,
            dropout,
            optimizer,
            train_rows,
            train_steps,
            config,
            warm_start_from,
        )
