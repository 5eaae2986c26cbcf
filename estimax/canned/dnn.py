"""Fully connected networks: `DNNEstimator`, `DNNClassifier` and `DNNRegressor`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from flax import linen as nn

from estimax import heads
from estimax.canned import defaults
from estimax.canned.hints import python_hint
from estimax.canned.layers import Activation, dnn_logits
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.spec import EstimatorSpec
from estimax.estimator import Estimator, RunConfig
from estimax.staging import variables

# Learning rates of optimizers given by name. None: the default of the optimizer.
_NAMED_RATES = {"v1": 0.05, "v2": None}


class DNNEstimator(Estimator):
    """A fully connected network over feature columns, trained for any head.

    Use it when the task has no ready-made class (several heads, a custom loss). For
    plain classification or regression, `DNNClassifier` and `DNNRegressor` are shorter.

    Args:
      head: What the model is trained for; sets the width of the logits, the loss and
        the metrics.
      hidden_units: Width of each hidden layer, first to last, e.g. `[256, 128]`.
      feature_columns: Dense columns (`numeric_column`, `embedding_column`,
        `indicator_column` …). Wrap a categorical column first; it is an error
        otherwise.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      optimizer: An `ex.optimizers` optimizer, an optax transformation, a function that
        returns one, or a name. `"Adagrad"` alone uses tf.estimator's learning rate of
        0.001, which is slow; pass `Adagrad(0.05)`. With `compat="v1"` a name uses 0.05.
      activation_fn: Activation of the hidden layers. None: linear.
      dropout: Share of each hidden layer's outputs set to 0 in training. None: no
        dropout.
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.
      batch_norm: Whether to apply batch normalisation after each hidden layer.
      compat: Whose defaults to use. "v2": tf.estimator. "v1": tf.compat.v1.estimator,
        which sums losses over the batch and has the optimizers of TensorFlow 1.

    Raises:
      SpecError: An argument has the wrong type or range, such as `hidden_units=8`.
      FeatureError: A column is categorical and was not wrapped; or, at the first call,
        the features are not a dict.

    Example:
      >>> import estimax as ex
      >>> head = ex.heads.MultiLabelHead(3)
      >>> columns = [ex.feature_columns.numeric_column("x", shape=4)]
      >>> model = ex.DNNEstimator(head, [16], columns)
    """

    def __init__(
        self,
        head: heads.Head,
        hidden_units: Sequence[int],
        feature_columns: Iterable[Any],
        model_dir: defaults.ModelPath | None = None,
        optimizer: Any = "Adagrad",
        activation_fn: Activation | None = nn.relu,
        dropout: float | None = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        batch_norm: bool = False,
        compat: defaults.Compat = "v2",
    ) -> None:
        defaults.check_compat(compat)
        model = type(self).__name__
        defaults.check_head(head, model)
        hidden_units = defaults.validate_units(hidden_units, model)
        columns = defaults.validate_columns(feature_columns, model)
        defaults.check_activation(activation_fn, model)
        defaults.check_dropout(dropout, model)
        rate = _NAMED_RATES[compat]
        known = defaults.validate_optimizer(optimizer, rate, model, compat=compat)

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            defaults.check_features(features, "DNN")
            logits = variables.scoped("dnn", dnn_logits)(
                features,
                mode,
                columns=columns,
                hidden_units=hidden_units,
                units=head.logits_dimension,
                activation_fn=activation_fn,
                dropout=dropout,
                batch_norm=batch_norm,
            )
            trained_by = defaults.train_op_of(optimizer, rate, compat)
            return head.create_estimator_spec(
                features, mode, logits, labels, optimizer=trained_by
            )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)
        self.not_learning_hint = python_hint(head, optimizer=known)
        self._masks_padding = defaults.is_by_row(
            head, columns, activation=activation_fn
        )


class DNNClassifier(DNNEstimator):
    """A fully connected network that classifies into two or more classes.

    Use it for dense and embedded features whose interactions matter. Add a linear part
    over sparse crosses with `DNNLinearCombinedClassifier`.

    Args:
      hidden_units: Width of each hidden layer, first to last, e.g. `[256, 128]`.
      feature_columns: Dense columns (`numeric_column`, `embedding_column`,
        `indicator_column` …). Wrap a categorical column first; it is an error
        otherwise.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      n_classes: Number of classes. 2 makes a binary classifier with one logit.
      weight_column: A feature name or `numeric_column` with the weight of each example
        in the loss and the metrics. None: all weigh 1.
      label_vocabulary: The labels as strings, in the order of their class ids. None:
        labels are integers in [0, n_classes).
      optimizer: An `ex.optimizers` optimizer, an optax transformation, a function that
        returns one, or a name. `"Adagrad"` alone uses tf.estimator's learning rate of
        0.001, which is slow; pass `Adagrad(0.05)`. With `compat="v1"` a name uses 0.05.
      activation_fn: Activation of the hidden layers. None: linear.
      dropout: Share of each hidden layer's outputs set to 0 in training. None: no
        dropout.
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.
      loss_reduction: "sum_over_batch_size" (the mean over examples) or "sum". None: the
        mean, with `compat="v1"` the sum.
      batch_norm: Whether to apply batch normalisation after each hidden layer.
      compat: Whose defaults to use. "v2": tf.estimator. "v1": tf.compat.v1.estimator,
        which sums losses over the batch and has the optimizers of TensorFlow 1.

    Raises:
      SpecError: An argument has the wrong type or range, such as `hidden_units=8`.
      FeatureError: A column is categorical and was not wrapped; or, at the first call,
        the features are not a dict.
      LabelError: At the first call: labels are outside the classes.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> x = np.linspace(-1, 1, 64, dtype=np.float32)
      >>> rows = ex.input.Dataset.from_tensor_slices(({"x": x}, (x > 0).astype(int)))
      >>> column = ex.feature_columns.numeric_column("x")
      >>> model = ex.DNNClassifier([8], [column], optimizer=ex.optimizers.Adagrad(0.5))
      >>> model = model.train(lambda: rows.repeat().batch(64), steps=30)
      >>> bool(model.evaluate(lambda: rows.batch(64))["accuracy"] > 0.9)
      True
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Iterable[Any],
        model_dir: defaults.ModelPath | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: Any = "Adagrad",
        activation_fn: Activation | None = nn.relu,
        dropout: float | None = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        loss_reduction: str | None = None,
        batch_norm: bool = False,
        compat: defaults.Compat = "v2",
    ) -> None:
        super().__init__(
            defaults.classifier_head(
                n_classes, weight_column, label_vocabulary, loss_reduction, compat
            ),
            hidden_units,
            feature_columns,
            model_dir,
            optimizer,
            activation_fn,
            dropout,
            config,
            warm_start_from,
            batch_norm,
            compat=compat,
        )


class DNNRegressor(DNNEstimator):
    """A fully connected network that predicts one or more numbers, by squared error.

    `DNNClassifier` has an example of training; only the labels differ.

    Args:
      hidden_units: Width of each hidden layer, first to last, e.g. `[256, 128]`.
      feature_columns: Dense columns (`numeric_column`, `embedding_column`,
        `indicator_column` …). Wrap a categorical column first; it is an error
        otherwise.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      label_dimension: How many numbers are predicted per example. Labels have shape [B]
        or [B, label_dimension].
      weight_column: A feature name or `numeric_column` with the weight of each example
        in the loss and the metrics. None: all weigh 1.
      optimizer: An `ex.optimizers` optimizer, an optax transformation, a function that
        returns one, or a name. `"Adagrad"` alone uses tf.estimator's learning rate of
        0.001, which is slow; pass `Adagrad(0.05)`. With `compat="v1"` a name uses 0.05.
      activation_fn: Activation of the hidden layers. None: linear.
      dropout: Share of each hidden layer's outputs set to 0 in training. None: no
        dropout.
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.
      loss_reduction: "sum_over_batch_size" (the mean over examples) or "sum". None: the
        mean, with `compat="v1"` the sum.
      batch_norm: Whether to apply batch normalisation after each hidden layer.
      compat: Whose defaults to use. "v2": tf.estimator. "v1": tf.compat.v1.estimator,
        which sums losses over the batch and has the optimizers of TensorFlow 1.

    Raises:
      SpecError: An argument has the wrong type or range, such as `hidden_units=8`.
      FeatureError: A column is categorical and was not wrapped; or, at the first call,
        the features are not a dict.

    Example:
      >>> import estimax as ex
      >>> column = ex.feature_columns.numeric_column("x")
      >>> model = ex.DNNRegressor([64, 32], [column], dropout=0.1)
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Iterable[Any],
        model_dir: defaults.ModelPath | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Adagrad",
        activation_fn: Activation | None = nn.relu,
        dropout: float | None = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        loss_reduction: str | None = None,
        batch_norm: bool = False,
        compat: defaults.Compat = "v2",
    ) -> None:
        super().__init__(
            defaults.regressor_head(
                label_dimension, weight_column, loss_reduction, compat
            ),
            hidden_units,
            feature_columns,
            model_dir,
            optimizer,
            activation_fn,
            dropout,
            config,
            warm_start_from,
            batch_norm,
            compat=compat,
        )
