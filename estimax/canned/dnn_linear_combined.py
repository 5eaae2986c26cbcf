"""Wide and deep models: a linear and a fully connected part, trained together.

The logits of both parts are added. Each part has an optimizer of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from flax import linen as nn

from estimax import heads, optimizers
from estimax.canned import defaults
from estimax.canned.hints import python_hint
from estimax.canned.layers import Activation, dnn_logits, linear_logits, log_layer
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.errors import SpecError
from estimax.core.spec import EstimatorSpec
from estimax.estimator import Estimator, RunConfig
from estimax.feature_columns import LinearModel
from estimax.staging import variables

DNN_RATE = 0.001  # learning rate of a deep optimizer given by name


class DNNLinearCombinedEstimator(Estimator):
    """A linear and a fully connected part ("wide and deep"), trained for any head.

    Use it when the task has no ready-made class. For plain classification or
    regression, `DNNLinearCombinedClassifier` and `DNNLinearCombinedRegressor` are
    shorter. A part without columns is left out.

    Args:
      head: What the model is trained for; sets the width of the logits, the loss and
        the metrics.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      linear_feature_columns: Columns of the linear part: categorical ones and
        `numeric_column`s. None or empty: no linear part.
      linear_optimizer: Optimizer of the linear part. A name uses a learning rate of
        min(0.005, 1 / sqrt(number of linear columns)).
      dnn_feature_columns: Dense columns of the deep part (`numeric_column`,
        `embedding_column`, `indicator_column` …). None or empty: no deep part.
      dnn_optimizer: Optimizer of the deep part. A name uses a learning rate of 0.001.
      dnn_hidden_units: Width of each hidden layer, first to last, e.g. `[128, 64]`.
      dnn_activation_fn: Activation of the hidden layers. None: linear.
      dnn_dropout: Share of each hidden layer's outputs set to 0 in training. None: no
        dropout.
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      batch_norm: Whether to apply batch normalisation after each hidden layer.
      linear_sparse_combiner: How the linear part combines the weights of several ids in
        one example: "sum", "mean" or "sqrtn".
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.
      compat: Whose defaults to use. "v2": tf.estimator. "v1": tf.compat.v1.estimator,
        which sums losses over the batch and has the optimizers of TensorFlow 1.

    Raises:
      SpecError: There are no columns, deep columns lack `dnn_hidden_units`, or `compat`
        is neither "v1" nor "v2".
      FeatureError: At the first call: a column is categorical and was not wrapped, or
        the features are not a dict.

    Example:
      >>> import estimax as ex
      >>> age = ex.feature_columns.numeric_column("age")
      >>> model = ex.DNNLinearCombinedEstimator(
      ...     ex.heads.BinaryClassHead(),
      ...     linear_feature_columns=[age],
      ...     dnn_feature_columns=[age],
      ...     dnn_hidden_units=[8],
      ... )
    """

    def __init__(
        self,
        head: heads.Head,
        model_dir: defaults.ModelPath | None = None,
        linear_feature_columns: Iterable[Any] | None = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Iterable[Any] | None = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Activation | None = nn.relu,
        dnn_dropout: float | None = None,
        config: RunConfig | None = None,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
        warm_start_from: WarmStart = None,
        compat: defaults.Compat = "v2",
    ) -> None:
        defaults.check_compat(compat)
        model = type(self).__name__
        defaults.check_head(head, model)
        wide = _validate_wide(linear_feature_columns, linear_sparse_combiner, model)
        deep = _validate_deep(dnn_feature_columns, model)
        _check_parts(wide, deep, dnn_hidden_units)
        if dnn_hidden_units is not None:
            dnn_hidden_units = defaults.validate_units(
                dnn_hidden_units, model, "dnn_hidden_units"
            )
        defaults.check_activation(dnn_activation_fn, model)
        defaults.check_dropout(dnn_dropout, model, "dnn_dropout")
        known: dict[str, Any] = {}
        if deep:
            known["dnn_optimizer"] = defaults.validate_optimizer(
                dnn_optimizer, DNN_RATE, model, "dnn_optimizer", compat
            )
        if wide:
            rate = defaults.combined_linear_rate(wide)
            known["linear_optimizer"] = defaults.validate_optimizer(
                linear_optimizer, rate, model, "linear_optimizer", compat
            )

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            defaults.check_features(features, "DNNLinearCombined")
            units = head.logits_dimension
            logits = []
            train_ops = []
            if deep:
                dnn = variables.scoped("dnn", dnn_logits)
                logits.append(
                    dnn(
                        features,
                        mode,
                        columns=deep,
                        hidden_units=dnn_hidden_units,
                        units=units,
                        activation_fn=dnn_activation_fn,
                        dropout=dnn_dropout,
                        batch_norm=batch_norm,
                    )
                )
                # Not "dnn/": shared embedding tables have names at the top level, and
                # the deep part trains them.
                by = defaults.train_op_of(
                    dnn_optimizer, DNN_RATE, compat, "(?!linear/)"
                )
                train_ops.append(by)
            if wide:
                linear = variables.scoped("linear", linear_logits)
                logits.append(
                    linear(
                        features,
                        columns=wide,
                        units=units,
                        sparse_combiner=linear_sparse_combiner,
                    )
                )
                log_layer("linear", logits[-1])
                mine = "linear/" if deep else None
                by = defaults.train_op_of(linear_optimizer, rate, compat, mine)
                train_ops.append(by)
            return head.create_estimator_spec(
                features,
                mode,
                sum(logits[1:], logits[0]),
                labels,
                train_op_fn=lambda loss: optimizers.group(*train_ops),
            )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)
        self.not_learning_hint = python_hint(head, **known)
        self._masks_padding = defaults.is_by_row(
            head, wide, deep, activation=dnn_activation_fn
        )


class DNNLinearCombinedClassifier(DNNLinearCombinedEstimator):
    """A linear and a fully connected part ("wide and deep") that classify together.

    Use it when some rules are best remembered (the linear part over sparse crosses) and
    others generalised (the deep part over embeddings).

    Args:
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      linear_feature_columns: Columns of the linear part: categorical ones and
        `numeric_column`s. None or empty: no linear part.
      linear_optimizer: Optimizer of the linear part. A name uses a learning rate of
        min(0.005, 1 / sqrt(number of linear columns)).
      dnn_feature_columns: Dense columns of the deep part (`numeric_column`,
        `embedding_column`, `indicator_column` …). None or empty: no deep part.
      dnn_optimizer: Optimizer of the deep part. A name uses a learning rate of 0.001.
      dnn_hidden_units: Width of each hidden layer, first to last, e.g. `[128, 64]`.
      dnn_activation_fn: Activation of the hidden layers. None: linear.
      dnn_dropout: Share of each hidden layer's outputs set to 0 in training. None: no
        dropout.
      n_classes: Number of classes. 2 makes a binary classifier with one logit.
      weight_column: A feature name or `numeric_column` with the weight of each example
        in the loss and the metrics. None: all weigh 1.
      label_vocabulary: The labels as strings, in the order of their class ids. None:
        labels are integers in [0, n_classes).
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.
      loss_reduction: "sum_over_batch_size" (the mean over examples) or "sum". None: the
        mean, with `compat="v1"` the sum.
      batch_norm: Whether to apply batch normalisation after each hidden layer.
      linear_sparse_combiner: How the linear part combines the weights of several ids in
        one example: "sum", "mean" or "sqrtn".
      compat: Whose defaults to use. "v2": tf.estimator. "v1": tf.compat.v1.estimator,
        which sums losses over the batch and has the optimizers of TensorFlow 1.

    Raises:
      SpecError: There are no columns, deep columns lack `dnn_hidden_units`, or `compat`
        is neither "v1" nor "v2".
      FeatureError: At the first call: a column is categorical and was not wrapped, or
        the features are not a dict.
      LabelError: At the first call: labels are outside the classes.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> fc = ex.feature_columns
      >>> features = {"city": np.array(["Oslo", "Rome"] * 8)}
      >>> rows = ex.input.Dataset.from_tensor_slices((features, np.array([0, 1] * 8)))
      >>> city = fc.categorical_column_with_hash_bucket("city", 10)
      >>> model = ex.DNNLinearCombinedClassifier(
      ...     linear_feature_columns=[city],
      ...     dnn_feature_columns=[fc.embedding_column(city, 4)],
      ...     dnn_hidden_units=[8],
      ...     dnn_optimizer=ex.optimizers.Adagrad(0.5),
      ... )
      >>> model = model.train(lambda: rows.repeat().batch(16), steps=30)
      >>> float(model.evaluate(lambda: rows.batch(16))["accuracy"])
      1.0
    """

    def __init__(
        self,
        model_dir: defaults.ModelPath | None = None,
        linear_feature_columns: Iterable[Any] | None = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Iterable[Any] | None = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Activation | None = nn.relu,
        dnn_dropout: float | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        loss_reduction: str | None = None,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
        compat: defaults.Compat = "v2",
    ) -> None:
        super().__init__(
            defaults.classifier_head(
                n_classes, weight_column, label_vocabulary, loss_reduction, compat
            ),
            model_dir,
            linear_feature_columns,
            linear_optimizer,
            dnn_feature_columns,
            dnn_optimizer,
            dnn_hidden_units,
            dnn_activation_fn,
            dnn_dropout,
            config,
            batch_norm,
            linear_sparse_combiner,
            warm_start_from,
            compat=compat,
        )


class DNNLinearCombinedRegressor(DNNLinearCombinedEstimator):
    """A linear and a fully connected part ("wide and deep") that predict numbers.

    `DNNLinearCombinedClassifier` has an example of training; only the labels differ.

    Args:
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      linear_feature_columns: Columns of the linear part: categorical ones and
        `numeric_column`s. None or empty: no linear part.
      linear_optimizer: Optimizer of the linear part. A name uses a learning rate of
        min(0.005, 1 / sqrt(number of linear columns)).
      dnn_feature_columns: Dense columns of the deep part (`numeric_column`,
        `embedding_column`, `indicator_column` …). None or empty: no deep part.
      dnn_optimizer: Optimizer of the deep part. A name uses a learning rate of 0.001.
      dnn_hidden_units: Width of each hidden layer, first to last, e.g. `[128, 64]`.
      dnn_activation_fn: Activation of the hidden layers. None: linear.
      dnn_dropout: Share of each hidden layer's outputs set to 0 in training. None: no
        dropout.
      label_dimension: How many numbers are predicted per example. Labels have shape [B]
        or [B, label_dimension].
      weight_column: A feature name or `numeric_column` with the weight of each example
        in the loss and the metrics. None: all weigh 1.
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.
      loss_reduction: "sum_over_batch_size" (the mean over examples) or "sum". None: the
        mean, with `compat="v1"` the sum.
      batch_norm: Whether to apply batch normalisation after each hidden layer.
      linear_sparse_combiner: How the linear part combines the weights of several ids in
        one example: "sum", "mean" or "sqrtn".
      compat: Whose defaults to use. "v2": tf.estimator. "v1": tf.compat.v1.estimator,
        which sums losses over the batch and has the optimizers of TensorFlow 1.

    Raises:
      SpecError: There are no columns, deep columns lack `dnn_hidden_units`, or `compat`
        is neither "v1" nor "v2".
      FeatureError: At the first call: a column is categorical and was not wrapped, or
        the features are not a dict.

    Example:
      >>> import estimax as ex
      >>> age = ex.feature_columns.numeric_column("age")
      >>> model = ex.DNNLinearCombinedRegressor(
      ...     dnn_feature_columns=[age], dnn_hidden_units=[8]
      ... )
    """

    def __init__(
        self,
        model_dir: defaults.ModelPath | None = None,
        linear_feature_columns: Iterable[Any] | None = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Iterable[Any] | None = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Activation | None = nn.relu,
        dnn_dropout: float | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        loss_reduction: str | None = None,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
        compat: defaults.Compat = "v2",
    ) -> None:
        super().__init__(
            defaults.regressor_head(
                label_dimension, weight_column, loss_reduction, compat
            ),
            model_dir,
            linear_feature_columns,
            linear_optimizer,
            dnn_feature_columns,
            dnn_optimizer,
            dnn_hidden_units,
            dnn_activation_fn,
            dnn_dropout,
            config,
            batch_norm,
            linear_sparse_combiner,
            warm_start_from,
            compat=compat,
        )


def _validate_wide(given: Any, combiner: str, model: str) -> tuple[Any, ...]:
    if given is None or given in ([], ()):
        return ()
    layer = functools.partial(LinearModel, sparse_combiner=combiner)
    return defaults.validate_columns(given, model, "linear_feature_columns", layer)


def _validate_deep(given: Any, model: str) -> tuple[Any, ...]:
    if given is None or given in ([], ()):
        return ()
    return defaults.validate_columns(given, model, "dnn_feature_columns")


def _check_parts(
    wide: Sequence[Any], deep: Sequence[Any], hidden_units: Sequence[int] | None
) -> None:
    if not wide and not deep:
        raise SpecError(
            "DNNLinearCombined: give linear_feature_columns, dnn_feature_columns, or "
            "both."
        )
    if deep and not hidden_units:
        raise SpecError(
            "DNNLinearCombined: dnn_feature_columns need dnn_hidden_units, such as "
            "[128, 64]."
        )
