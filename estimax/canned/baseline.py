"""Baselines that ignore their features and predict the average label.

A model that is no better than its baseline has learned nothing from the features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import heads, staging
from estimax.canned import defaults
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.spec import EstimatorSpec
from estimax.estimator import Estimator, RunConfig
from estimax.feature_columns import transforms
from estimax.staging.trace import HostOnly

NAMED_RATE = 0.3  # learning rate of an optimizer given by name


class BaselineEstimator(Estimator):
    """A model that consists of a bias only, trained for any head.

    Use it to measure other models against. For plain classification or regression,
    `BaselineClassifier` and `BaselineRegressor` are shorter.

    Args:
      head: What the model is trained for; sets the width of the logits, the loss and
        the metrics.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      optimizer: An `ex.optimizers` optimizer, an optax transformation, a function that
        returns one, or a name. A name uses a learning rate of 0.3.
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.
      compat: Whose defaults to use. "v2": tf.estimator. "v1": tf.compat.v1.estimator,
        which sums losses over the batch and has the optimizers of TensorFlow 1.

    Raises:
      SpecError: `compat` is neither "v1" nor "v2".
      FeatureError: At the first call: the features are not a dict.

    Example:
      >>> import estimax as ex
      >>> model = ex.BaselineEstimator(ex.heads.PoissonRegressionHead())
    """

    def __init__(
        self,
        head: heads.Head,
        model_dir: defaults.ModelPath | None = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        compat: defaults.Compat = "v2",
    ) -> None:
        defaults.check_compat(compat)

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            defaults.check_features(features, "Baseline")
            bias = Bias(head.logits_dimension, name="baseline")()
            logits = jnp.broadcast_to(bias, (_rows(features), bias.shape[0]))
            trained_by = defaults.train_op_of(optimizer, NAMED_RATE, compat)
            return head.create_estimator_spec(
                features, mode, logits, labels, optimizer=trained_by
            )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class BaselineClassifier(BaselineEstimator):
    """A classifier that predicts how frequent each class is, whatever the features.

    Use it to measure other classifiers against.

    Args:
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      n_classes: Number of classes. 2 makes a binary classifier with one logit.
      weight_column: A feature name or `numeric_column` with the weight of each example
        in the loss and the metrics. None: all weigh 1.
      label_vocabulary: The labels as strings, in the order of their class ids. None:
        labels are integers in [0, n_classes).
      optimizer: An `ex.optimizers` optimizer, an optax transformation, a function that
        returns one, or a name. A name uses a learning rate of 0.3.
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      loss_reduction: "sum_over_batch_size" (the mean over examples) or "sum". None: the
        mean, with `compat="v1"` the sum.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.
      compat: Whose defaults to use. "v2": tf.estimator. "v1": tf.compat.v1.estimator,
        which sums losses over the batch and has the optimizers of TensorFlow 1.

    Raises:
      SpecError: `compat` is neither "v1" nor "v2".
      FeatureError: At the first call: the features are not a dict.
      LabelError: At the first call: labels are outside the classes.

    Example:
      >>> import estimax as ex
      >>> model = ex.BaselineClassifier(n_classes=3)
    """

    def __init__(
        self,
        model_dir: defaults.ModelPath | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        loss_reduction: str | None = None,
        warm_start_from: WarmStart = None,
        compat: defaults.Compat = "v2",
    ) -> None:
        head = defaults.classifier_head(
            n_classes, weight_column, label_vocabulary, loss_reduction, compat
        )
        super().__init__(head, model_dir, optimizer, config, warm_start_from, compat)


class BaselineRegressor(BaselineEstimator):
    """A regressor that predicts the mean label, whatever the features.

    Use it to measure other regressors against.

    Args:
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      label_dimension: How many numbers are predicted per example. Labels have shape [B]
        or [B, label_dimension].
      weight_column: A feature name or `numeric_column` with the weight of each example
        in the loss and the metrics. None: all weigh 1.
      optimizer: An `ex.optimizers` optimizer, an optax transformation, a function that
        returns one, or a name. A name uses a learning rate of 0.3.
      config: How to run: seed, checkpoints, summaries, devices. None: `RunConfig()`.
      loss_reduction: "sum_over_batch_size" (the mean over examples) or "sum". None: the
        mean, with `compat="v1"` the sum.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.
      compat: Whose defaults to use. "v2": tf.estimator. "v1": tf.compat.v1.estimator,
        which sums losses over the batch and has the optimizers of TensorFlow 1.

    Raises:
      SpecError: `compat` is neither "v1" nor "v2".
      FeatureError: At the first call: the features are not a dict.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> features, labels = {"x": np.zeros(4)}, np.array([1.0, 2.0, 3.0, 4.0])
      >>> rows = ex.input.Dataset.from_tensor_slices((features, labels))
      >>> model = ex.BaselineRegressor(optimizer="SGD")
      >>> model = model.train(lambda: rows.repeat().batch(4), steps=50)
      >>> next(model.predict(lambda: rows.batch(4)))["predictions"].round(2).tolist()
      [2.5]
    """

    def __init__(
        self,
        model_dir: defaults.ModelPath | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        loss_reduction: str | None = None,
        warm_start_from: WarmStart = None,
        compat: defaults.Compat = "v2",
    ) -> None:
        head = defaults.regressor_head(
            label_dimension, weight_column, loss_reduction, compat
        )
        super().__init__(head, model_dir, optimizer, config, warm_start_from, compat)


class Bias(nn.Module):
    """A trainable vector that starts at 0."""

    size: int

    @nn.compact
    def __call__(self) -> jax.Array:
        """Return the vector [size]."""
        bias: jax.Array = self.param("bias", nn.initializers.zeros, (self.size,))
        return bias


def _rows(features: dict[str, Any]) -> Any:  # an int, or a symbolic dimension
    """Return the number of rows; a feature of strings is counted on the host."""
    for value in features.values():
        if not isinstance(value, HostOnly):
            return value.shape[0]
    count = transforms.RowCount(next(iter(features)))
    return staging.stage(count, features).shape[0]
