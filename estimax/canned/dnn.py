"""Deep models: feature columns, hidden layers, a head."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from flax import linen as nn

from estimax import heads, variables
from estimax.canned import parts
from estimax.canned.layers import Activation, dnn_logits
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.spec import EstimatorSpec
from estimax.estimator import Estimator, RunConfig

Path = str | os.PathLike[str]
_NAMED_RATES = {"v1": 0.05, "v2": None}  # None: the optimizer's own


class DNNEstimator(Estimator):
    """A deep network under any head.

    `optimizer` is an `ex.optimizers` optimizer, an optax transformation, a name (with
    tf.estimator's default learning rate for it), or a function that makes one.
    `compat="v1"` takes the defaults of tf.compat.v1.estimator, here and in all canned
    models: losses are summed, and optimizers given by name are the older ones, which in
    a deep network learn at 0.05.
    """

    def __init__(
        self,
        head: heads.Head,
        hidden_units: Sequence[int],
        feature_columns: Iterable[Any],
        model_dir: Path | None = None,
        optimizer: Any = "Adagrad",
        activation_fn: Activation | None = nn.relu,
        dropout: float | None = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        batch_norm: bool = False,
        compat: parts.Compat = "v2",
    ) -> None:
        parts.check_compat(compat)
        columns = tuple(feature_columns)

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            parts.check_features(features, "DNN")
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
            trained_by = parts.train_op_of(optimizer, _NAMED_RATES[compat], compat)
            return head.create_estimator_spec(
                features, mode, logits, labels, optimizer=trained_by
            )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class DNNClassifier(DNNEstimator):
    """A deep classifier of two classes (one logit) or more.

    >>> import estimax as ex
    >>> columns = [ex.feature_columns.numeric_column("x")]
    >>> model = ex.DNNClassifier([8], columns, model_dir="/tmp/estimax-doc-dnn")
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Iterable[Any],
        model_dir: Path | None = None,
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
        compat: parts.Compat = "v2",
    ) -> None:
        super().__init__(
            parts.classifier_head(
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
    """A deep regressor of one number, or `label_dimension` of them.

    >>> import estimax as ex
    >>> columns = [ex.feature_columns.numeric_column("x")]
    >>> model = ex.DNNRegressor([8], columns, model_dir="/tmp/estimax-doc-dnn")
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Iterable[Any],
        model_dir: Path | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Adagrad",
        activation_fn: Activation | None = nn.relu,
        dropout: float | None = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        loss_reduction: str | None = None,
        batch_norm: bool = False,
        compat: parts.Compat = "v2",
    ) -> None:
        super().__init__(
            parts.regressor_head(
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
