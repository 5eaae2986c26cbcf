"""Models that ignore their features: the mean label, to measure others against."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import heads, staging, transforms
from estimax.canned import parts
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.spec import EstimatorSpec
from estimax.estimator import Estimator, RunConfig
from estimax.staging.recording import HostOnly

Path = str | os.PathLike[str]
NAMED_RATE = 0.3


class BaselineEstimator(Estimator):
    """A bias under any head; an optimizer given by name learns at 0.3."""

    def __init__(
        self,
        head: heads.Head,
        model_dir: Path | None = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        compat: parts.Compat = "v2",
    ) -> None:
        parts.check_compat(compat)

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            parts.check_features(features, "Baseline")
            bias = Bias(head.logits_dimension, name="baseline")()
            logits = jnp.broadcast_to(bias, (_rows(features), bias.shape[0]))
            trained_by = parts.train_op_of(optimizer, NAMED_RATE, compat)
            return head.create_estimator_spec(
                features, mode, logits, labels, optimizer=trained_by
            )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class BaselineClassifier(BaselineEstimator):
    """Predicts how frequent each class is.

    >>> import estimax as ex
    >>> model = ex.BaselineClassifier(model_dir="/tmp/estimax-doc-baseline")
    """

    def __init__(
        self,
        model_dir: Path | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        loss_reduction: str | None = None,
        warm_start_from: WarmStart = None,
        compat: parts.Compat = "v2",
    ) -> None:
        head = parts.classifier_head(
            n_classes, weight_column, label_vocabulary, loss_reduction, compat
        )
        super().__init__(head, model_dir, optimizer, config, warm_start_from, compat)


class BaselineRegressor(BaselineEstimator):
    """Predicts the mean label.

    >>> import estimax as ex
    >>> model = ex.BaselineRegressor(model_dir="/tmp/estimax-doc-baseline")
    """

    def __init__(
        self,
        model_dir: Path | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        loss_reduction: str | None = None,
        warm_start_from: WarmStart = None,
        compat: parts.Compat = "v2",
    ) -> None:
        head = parts.regressor_head(
            label_dimension, weight_column, loss_reduction, compat
        )
        super().__init__(head, model_dir, optimizer, config, warm_start_from, compat)


class Bias(nn.Module):
    """A vector of zeros to be trained."""

    size: int

    @nn.compact
    def __call__(self) -> jax.Array:
        """The vector."""
        bias: jax.Array = self.param("bias", nn.initializers.zeros, (self.size,))
        return bias


def _rows(features: dict[str, Any]) -> Any:  # an int, or a symbolic dimension
    for value in features.values():
        if not isinstance(value, HostOnly):
            return value.shape[0]
    count = transforms.RowCount(next(iter(features)))
    return staging.stage(count, features).shape[0]
