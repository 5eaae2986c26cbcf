"""Linear models: a weight for every value of every column, a bias, a head."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from typing import Any

from estimax import heads, optimizers, variables
from estimax.canned import parts
from estimax.canned.layers import linear_logits
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.spec import EstimatorSpec
from estimax.estimator import Estimator, RunConfig

Path = str | os.PathLike[str]
NAMED_RATE = 0.2


class LinearEstimator(Estimator):
    """A linear model under any head.

    An optimizer given by name learns at 0.2; None is Ftrl at
    min(0.2, 1/sqrt(number of columns)).
    """

    def __init__(
        self,
        head: heads.Head,
        feature_columns: Iterable[Any],
        model_dir: Path | None = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        sparse_combiner: str = "sum",
        warm_start_from: WarmStart = None,
        compat: parts.Compat = "v2",
    ) -> None:
        parts.check_compat(compat)
        columns = tuple(feature_columns)

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            parts.check_features(features, "Linear")
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


class LinearClassifier(LinearEstimator):
    """Logistic regression, of two classes (one logit) or more.

    >>> import estimax as ex
    >>> columns = [ex.feature_columns.numeric_column("x")]
    >>> model = ex.LinearClassifier(columns, model_dir="/tmp/estimax-doc-linear")
    """

    def __init__(
        self,
        feature_columns: Iterable[Any],
        model_dir: Path | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        loss_reduction: str | None = None,
        sparse_combiner: str = "sum",
        compat: parts.Compat = "v2",
    ) -> None:
        head = parts.classifier_head(
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
    """Linear regression of one number, or `label_dimension` of them.

    >>> import estimax as ex
    >>> columns = [ex.feature_columns.numeric_column("x")]
    >>> model = ex.LinearRegressor(columns, model_dir="/tmp/estimax-doc-linear")
    """

    def __init__(
        self,
        feature_columns: Iterable[Any],
        model_dir: Path | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
        loss_reduction: str | None = None,
        sparse_combiner: str = "sum",
        compat: parts.Compat = "v2",
    ) -> None:
        head = parts.regressor_head(
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
    given: Any, columns: Sequence[Any], compat: parts.Compat = "v2"
) -> optimizers.TrainOp:
    if given is None:
        rate = min(NAMED_RATE, 1.0 / math.sqrt(len(columns)))
        return parts.train_op_of("Ftrl", rate, compat)
    return parts.train_op_of(given, NAMED_RATE, compat)
