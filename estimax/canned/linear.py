"""Linear models: `LinearEstimator`, `LinearClassifier` and `LinearRegressor`.

The logits are a bias plus a weight for every number and every id of every column.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from estimax import heads, optimizers
from estimax.canned import defaults
from estimax.canned.hints import python_hint
from estimax.canned.layers import linear_logits
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.spec import EstimatorSpec
from estimax.estimator import Estimator, RunConfig
from estimax.feature_columns import LinearModel
from estimax.staging import variables

NAMED_RATE = 0.2  # learning rate of an optimizer given by name


class LinearEstimator(Estimator):
    """A linear model over feature columns, trained for any head.

    Use it when the task has no ready-made class. For plain classification or
    regression, `LinearClassifier` and `LinearRegressor` are shorter.

    Args:
      head: What the model is trained for; sets the width of the logits, the loss and
        the metrics.
      feature_columns: Categorical columns and `numeric_column`s. Do not wrap
        categorical columns: each of their ids has a weight.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      optimizer: An `ex.optimizers` optimizer, an optax transformation, a function that
        returns one, or a name. A name uses a learning rate of 0.2. None: Ftrl with
        min(0.2, 1 / sqrt(number of columns)).
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      sparse_combiner: How the weights of several ids in one example are combined:
        "sum", "mean" or "sqrtn".
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.
      compat: Whose defaults to use. "v2": tf.estimator. "v1": tf.compat.v1.estimator,
        which sums losses over the batch and has the optimizers of TensorFlow 1.

    Raises:
      SpecError: `compat` is neither "v1" nor "v2".
      FeatureError: At the first call: the features are not a dict.

    Example:
      >>> import estimax as ex
      >>> column = ex.feature_columns.numeric_column("visits")
      >>> model = ex.LinearEstimator(ex.heads.PoissonRegressionHead(), [column])
    """

    def __init__(
        self,
        head: heads.Head,
        feature_columns: Iterable[Any],
        model_dir: defaults.ModelPath | None = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        sparse_combiner: str = "sum",
        warm_start_from: WarmStart = None,
        compat: defaults.Compat = "v2",
    ) -> None:
        defaults.check_compat(compat)
        model = type(self).__name__
        defaults.check_head(head, model)
        columns = defaults.validate_columns(
            feature_columns,
            model,
            layer=functools.partial(LinearModel, sparse_combiner=sparse_combiner),
        )
        known = None
        if optimizer is not None:
            known = defaults.validate_optimizer(
                optimizer, NAMED_RATE, model, compat=compat
            )

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            defaults.check_features(features, "Linear")
            logits = variables.scoped("linear", linear_logits)(
                features,
                columns=columns,
                units=head.logits_dimension,
                sparse_combiner=sparse_combiner,
            )
            trained_by = _train_op(optimizer, columns, compat)
            return head.create_estimator_spec(
                features, mode, logits, labels, optimizer=trained_by
            )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)
        self.not_learning_hint = python_hint(head, optimizer=known)
        self._masks_padding = defaults.is_by_row(head, columns)


class LinearClassifier(LinearEstimator):
    """Logistic regression over feature columns, for two or more classes.

    Use it as a strong and fast baseline for sparse features; crosses
    (`crossed_column`) add interactions. With `Ftrl(l1_regularization_strength=...)`
    weights that do not help become 0.

    Args:
      feature_columns: Categorical columns and `numeric_column`s. Do not wrap
        categorical columns: each of their ids has a weight.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      n_classes: Number of classes. 2 makes a binary classifier with one logit.
      weight_column: A feature name or `numeric_column` with the weight of each example
        in the loss and the metrics. None: all weigh 1.
      label_vocabulary: The labels as strings, in the order of their class ids. None:
        labels are integers in [0, n_classes).
      optimizer: An `ex.optimizers` optimizer, an optax transformation, a function that
        returns one, or a name. A name uses a learning rate of 0.2. None: Ftrl with
        min(0.2, 1 / sqrt(number of columns)).
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.
      loss_reduction: "sum_over_batch_size" (the mean over examples) or "sum". None: the
        mean, with `compat="v1"` the sum.
      sparse_combiner: How the weights of several ids in one example are combined:
        "sum", "mean" or "sqrtn".
      compat: Whose defaults to use. "v2": tf.estimator. "v1": tf.compat.v1.estimator,
        which sums losses over the batch and has the optimizers of TensorFlow 1.

    Raises:
      SpecError: `compat` is neither "v1" nor "v2".
      FeatureError: At the first call: the features are not a dict.
      LabelError: At the first call: labels are outside the classes.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> features = {"city": np.array(["Oslo", "Rome"] * 8)}
      >>> rows = ex.input.Dataset.from_tensor_slices((features, np.array([0, 1] * 8)))
      >>> city = ex.feature_columns.categorical_column_with_vocabulary_list(
      ...     "city", ["Oslo", "Rome"])
      >>> model = ex.LinearClassifier([city])
      >>> model = model.train(lambda: rows.repeat().batch(16), steps=20)
      >>> answers = model.predict(lambda: rows.take(2).batch(2))
      >>> [int(row["class_ids"][0]) for row in answers]
      [0, 1]
    """

    def __init__(
        self,
        feature_columns: Iterable[Any],
        model_dir: defaults.ModelPath | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        loss_reduction: str | None = None,
        sparse_combiner: str = "sum",
        compat: defaults.Compat = "v2",
    ) -> None:
        head = defaults.classifier_head(
            n_classes, weight_column, label_vocabulary, loss_reduction, compat
        )
        super().__init__(
            head,
            feature_columns,
            model_dir,
            optimizer,
            config,
            sparse_combiner,
            warm_start_from,
            compat=compat,
        )


class LinearRegressor(LinearEstimator):
    """Linear regression over feature columns, of one or more numbers.

    `LinearClassifier` has an example of training; only the labels differ.

    Args:
      feature_columns: Categorical columns and `numeric_column`s. Do not wrap
        categorical columns: each of their ids has a weight.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      label_dimension: How many numbers are predicted per example. Labels have shape [B]
        or [B, label_dimension].
      weight_column: A feature name or `numeric_column` with the weight of each example
        in the loss and the metrics. None: all weigh 1.
      optimizer: An `ex.optimizers` optimizer, an optax transformation, a function that
        returns one, or a name. A name uses a learning rate of 0.2. None: Ftrl with
        min(0.2, 1 / sqrt(number of columns)).
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.
      loss_reduction: "sum_over_batch_size" (the mean over examples) or "sum". None: the
        mean, with `compat="v1"` the sum.
      sparse_combiner: How the weights of several ids in one example are combined:
        "sum", "mean" or "sqrtn".
      compat: Whose defaults to use. "v2": tf.estimator. "v1": tf.compat.v1.estimator,
        which sums losses over the batch and has the optimizers of TensorFlow 1.

    Raises:
      SpecError: `compat` is neither "v1" nor "v2".
      FeatureError: At the first call: the features are not a dict.

    Example:
      >>> import estimax as ex
      >>> column = ex.feature_columns.numeric_column("x")
      >>> model = ex.LinearRegressor([column], label_dimension=2)
    """

    def __init__(
        self,
        feature_columns: Iterable[Any],
        model_dir: defaults.ModelPath | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        loss_reduction: str | None = None,
        sparse_combiner: str = "sum",
        compat: defaults.Compat = "v2",
    ) -> None:
        head = defaults.regressor_head(
            label_dimension, weight_column, loss_reduction, compat
        )
        super().__init__(
            head,
            feature_columns,
            model_dir,
            optimizer,
            config,
            sparse_combiner,
            warm_start_from,
            compat=compat,
        )


def _train_op(
    given: Any, columns: Sequence[Any], compat: defaults.Compat = "v2"
) -> optimizers.TrainOp:
    if given is None:
        rate = min(NAMED_RATE, 1.0 / math.sqrt(len(columns)))
        return defaults.train_op_of("Ftrl", rate, compat)
    return defaults.train_op_of(given, NAMED_RATE, compat)
