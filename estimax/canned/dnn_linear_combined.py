"""Wide and deep: a linear model and a deep one, summed and trained together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from flax import linen as nn

from estimax import heads, optimizers, variables
from estimax.canned import parts
from estimax.canned.layers import Activation, dnn_logits, linear_logits, log_layer
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.errors import SpecError
from estimax.core.spec import EstimatorSpec
from estimax.estimator import Estimator, RunConfig

Path = str | os.PathLike[str]
DNN_RATE = 0.001


class DNNLinearCombinedEstimator(Estimator):
    """A wide and a deep part under any head, each with an optimizer of its own.

    Either part may be left out by giving it no columns. Optimizers given by name learn
    at 0.001 (deep) and min(0.005, 1/sqrt(number of linear columns)) (wide).
    """

    def __init__(
        self,
        head: heads.Head,
        model_dir: Path | None = None,
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
        compat: parts.Compat = "v2",
    ) -> None:
        parts.check_compat(compat)
        wide = tuple(linear_feature_columns or ())
        deep = tuple(dnn_feature_columns or ())
        _check_parts(wide, deep, dnn_hidden_units)

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            parts.check_features(features, "DNNLinearCombined")
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
                # With it goes a table at the top, which columns share.
                by = parts.train_op_of(dnn_optimizer, DNN_RATE, compat, "(?!linear/)")
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
                rate = parts.combined_linear_rate(wide)
                mine = "linear/" if deep else None
                by = parts.train_op_of(linear_optimizer, rate, compat, mine)
                train_ops.append(by)
            return head.create_estimator_spec(
                features,
                mode,
                sum(logits[1:], logits[0]),
                labels,
                train_op_fn=lambda loss: optimizers.group(*train_ops),
            )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class DNNLinearCombinedClassifier(DNNLinearCombinedEstimator):
    """A wide-and-deep classifier of two classes (one logit) or more.

    >>> import estimax as ex
    >>> age = ex.feature_columns.numeric_column("age")
    >>> model = ex.DNNLinearCombinedClassifier(
    ...     model_dir="/tmp/estimax-doc-combined",
    ...     linear_feature_columns=[age],
    ...     dnn_feature_columns=[age],
    ...     dnn_hidden_units=[8],
    ... )
    """

    def __init__(
        self,
        model_dir: Path | None = None,
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
        compat: parts.Compat = "v2",
    ) -> None:
        super().__init__(
            parts.classifier_head(
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
    """A wide-and-deep regressor of one number, or `label_dimension` of them.

    >>> import estimax as ex
    >>> age = ex.feature_columns.numeric_column("age")
    >>> model = ex.DNNLinearCombinedRegressor(
    ...     model_dir="/tmp/estimax-doc-combined",
    ...     dnn_feature_columns=[age],
    ...     dnn_hidden_units=[8],
    ... )
    """

    def __init__(
        self,
        model_dir: Path | None = None,
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
        compat: parts.Compat = "v2",
    ) -> None:
        super().__init__(
            parts.regressor_head(
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
