"""Boosted trees: `BoostedTreesEstimator`, `…Classifier` and `…Regressor`.

The names and the meaning of tf.estimator's arguments; LightGBM grows the trees.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from estimax import heads
from estimax.canned import defaults
from estimax.canned.trees import options
from estimax.canned.trees.estimator import TreesEstimator
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.errors import SpecError
from estimax.estimator import RunConfig

_log = logging.getLogger("estimax")


class BoostedTreesEstimator(TreesEstimator):
    """Gradient boosted trees over feature columns, trained by LightGBM for any head.

    Use it where the task has no ready-made class, such as counts. For classification
    and regression, `BoostedTreesClassifier` and `BoostedTreesRegressor` are shorter.
    The defaults are tf.estimator's: trees of 6 levels, without a smallest number of
    rows in a leaf. LightGBM's own are `max_depth=-1, num_leaves=31,
    min_data_in_leaf=20, center_bias=True, quantile_sketch_epsilon=1 / 255`.

    Training needs LightGBM (`pip install "estimax[trees]"`); evaluation, prediction,
    export and serving do not. A step is an iteration: one tree, or one for each class.

    Args:
      feature_columns: Feature columns of any kind but sequences. Numbers and buckets
        are split by thresholds, categorical columns, wrapped or not, by sets of ids.
      n_batches_per_layer: Ignored: every tree is grown on all rows. tf.estimator needs
        it to know when it has seen all of them.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      head: What the model is trained for: `BinaryClassHead`, `MultiClassHead`,
        `RegressionHead`, `PoissonRegressionHead` or `LogisticRegressionHead`.
      weight_column: Must be None: give it to the head.
      n_trees: Number of iterations, at most.
      max_depth: Most levels of a tree; -1 for no limit.
      learning_rate: What the values of new leaves are multiplied by.
      l1_regularization: L1 penalty of leaf values, per row: it is multiplied by the sum
        of the weights, as in tf.estimator.
      l2_regularization: L2 penalty of leaf values, per row.
      tree_complexity: Least gain of a split, per row.
      min_node_weight: Least share of the sum of hessians in a leaf, per row.
      center_bias: Whether the first tree starts at the best constant answer.
      pruning_mode: "none" or "pre": a split with a gain below `tree_complexity` is not
        made. "post" is accepted and the same as "pre".
      quantile_sketch_epsilon: Numbers are divided into 1 / epsilon bins.
      config: How to run: seed, checkpoints, summaries. None: `RunConfig()`.
      num_leaves: Most leaves of a tree. None: 2 ** max_depth, or 31 without a limit.
      min_data_in_leaf: Least rows in a leaf.
      subsample: Share of the rows that each tree is grown on.
      feature_fraction: Share of the columns that each tree is grown on.
      early_stopping_rounds: In `train_and_evaluate`, stop if the loss of the evaluation
        data was not better for so many iterations; the trees up to the best one are
        used. None does not stop.
      warm_start_from: A checkpoint or model directory of such a model, to whose trees
        new ones are added. None: start without trees.
      parameters: Further parameters of LightGBM by name, which replace all others.

    Raises:
      FeatureError: A column cannot be given to trees, such as a sequence.
      SpecError: An argument has the wrong type or range, or the head has no objective
        in LightGBM.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> x = np.arange(200, dtype=np.float32)
      >>> column = ex.feature_columns.numeric_column("x")
      >>> head = ex.heads.PoissonRegressionHead()
      >>> model = ex.BoostedTreesEstimator([column], head=head, n_trees=20)
      >>> model = model.train(lambda: ({"x": x}, (x > 99).astype(np.float32)))
      >>> model.latest_checkpoint()[-13:]
      'model.ckpt-20'
    """

    def __init__(
        self,
        feature_columns: Iterable[Any],
        n_batches_per_layer: int | None = None,
        head: heads.Head | None = None,
        model_dir: defaults.ModelPath | None = None,
        weight_column: Any = None,
        n_trees: int = 100,
        max_depth: int = 6,
        learning_rate: float = 0.1,
        l1_regularization: float = 0.0,
        l2_regularization: float = 0.0,
        tree_complexity: float = 0.0,
        min_node_weight: float = 0.0,
        config: RunConfig | None = None,
        center_bias: bool = False,
        pruning_mode: str = "none",
        quantile_sketch_epsilon: float = 0.01,
        *,
        num_leaves: int | None = None,
        min_data_in_leaf: int = 1,
        subsample: float = 1.0,
        feature_fraction: float = 1.0,
        early_stopping_rounds: int | None = None,
        warm_start_from: WarmStart = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        model = type(self).__name__
        if weight_column is not None:
            raise SpecError(
                f"{model}: pass weight_column to the head, such as "
                'BinaryClassHead(weight_column="weight").'
            )
        if n_batches_per_layer is not None:
            _log.info(
                "%s: n_batches_per_layer=%s is not needed: every tree is grown on all "
                "rows of the input",
                model,
                n_batches_per_layer,
            )
        grown = options.boosting(
            model,
            max_depth=max_depth,
            learning_rate=learning_rate,
            center_bias=center_bias,
            pruning_mode=pruning_mode,
            quantile_sketch_epsilon=quantile_sketch_epsilon,
            num_leaves=num_leaves,
            min_data_in_leaf=min_data_in_leaf,
            subsample=subsample,
            feature_fraction=feature_fraction,
        )
        per_row = options.per_row(
            model,
            l1_regularization=l1_regularization,
            l2_regularization=l2_regularization,
            tree_complexity=tree_complexity,
            min_node_weight=min_node_weight,
        )
        super().__init__(
            heads.BinaryClassHead() if head is None else head,
            feature_columns,
            model_dir,
            config,
            warm_start_from,
            n_trees=n_trees,
            parameters={**grown, **(parameters or {})},
            per_row=per_row,
            early_stopping_rounds=early_stopping_rounds,
        )


class BoostedTreesClassifier(BoostedTreesEstimator):
    """Gradient boosted trees for two or more classes, trained by LightGBM.

    Use it for tables: on many of them nothing is better. See `BoostedTreesEstimator`
    for what a step is, and for LightGBM's own defaults.

    Args:
      feature_columns: Feature columns of any kind but sequences. Numbers and buckets
        are split by thresholds, categorical columns, wrapped or not, by sets of ids.
      n_batches_per_layer: Ignored: every tree is grown on all rows.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      n_classes: Number of classes.
      weight_column: A feature name or `numeric_column` with the weight of each example
        in the loss and the metrics. None: all weigh 1.
      label_vocabulary: The labels as strings, in the order of their class ids. None:
        labels are integers in [0, n_classes).
      n_trees: Number of iterations, at most.
      max_depth: Most levels of a tree; -1 for no limit.
      learning_rate: What the values of new leaves are multiplied by.
      l1_regularization: L1 penalty of leaf values, per row: it is multiplied by the sum
        of the weights, as in tf.estimator.
      l2_regularization: L2 penalty of leaf values, per row.
      tree_complexity: Least gain of a split, per row.
      min_node_weight: Least share of the sum of hessians in a leaf, per row.
      center_bias: Whether the first tree starts at the best constant answer.
      pruning_mode: "none" or "pre": a split with a gain below `tree_complexity` is not
        made. "post" is accepted and the same as "pre".
      quantile_sketch_epsilon: Numbers are divided into 1 / epsilon bins.
      config: How to run: seed, checkpoints, summaries. None: `RunConfig()`.
      num_leaves: Most leaves of a tree. None: 2 ** max_depth, or 31 without a limit.
      min_data_in_leaf: Least rows in a leaf.
      subsample: Share of the rows that each tree is grown on.
      feature_fraction: Share of the columns that each tree is grown on.
      early_stopping_rounds: In `train_and_evaluate`, stop if the loss of the evaluation
        data was not better for so many iterations; the trees up to the best one are
        used. None does not stop.
      warm_start_from: A checkpoint or model directory of such a model, to whose trees
        new ones are added. None: start without trees.
      parameters: Further parameters of LightGBM by name, which replace all others.

    Raises:
      FeatureError: A column cannot be given to trees, such as a sequence.
      SpecError: An argument has the wrong type or range, or the head has no objective
        in LightGBM.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> x = np.arange(200, dtype=np.float32)
      >>> column = ex.feature_columns.numeric_column("x")
      >>> model = ex.BoostedTreesClassifier([column], n_trees=20)
      >>> model = model.train(lambda: ({"x": x}, x > 99))
      >>> rows = model.predict(lambda: iter([{"x": x[[0, 199]]}]))
      >>> [int(row["class_ids"][0]) for row in rows]
      [0, 1]
    """

    def __init__(
        self,
        feature_columns: Iterable[Any],
        n_batches_per_layer: int | None = None,
        model_dir: defaults.ModelPath | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        n_trees: int = 100,
        max_depth: int = 6,
        learning_rate: float = 0.1,
        l1_regularization: float = 0.0,
        l2_regularization: float = 0.0,
        tree_complexity: float = 0.0,
        min_node_weight: float = 0.0,
        config: RunConfig | None = None,
        center_bias: bool = False,
        pruning_mode: str = "none",
        quantile_sketch_epsilon: float = 0.01,
        *,
        num_leaves: int | None = None,
        min_data_in_leaf: int = 1,
        subsample: float = 1.0,
        feature_fraction: float = 1.0,
        early_stopping_rounds: int | None = None,
        warm_start_from: WarmStart = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        head = defaults.classifier_head(
            n_classes, weight_column, label_vocabulary, None
        )
        super().__init__(
            feature_columns,
            n_batches_per_layer,
            head,
            model_dir,
            n_trees=n_trees,
            max_depth=max_depth,
            learning_rate=learning_rate,
            l1_regularization=l1_regularization,
            l2_regularization=l2_regularization,
            tree_complexity=tree_complexity,
            min_node_weight=min_node_weight,
            config=config,
            center_bias=center_bias,
            pruning_mode=pruning_mode,
            quantile_sketch_epsilon=quantile_sketch_epsilon,
            num_leaves=num_leaves,
            min_data_in_leaf=min_data_in_leaf,
            subsample=subsample,
            feature_fraction=feature_fraction,
            early_stopping_rounds=early_stopping_rounds,
            warm_start_from=warm_start_from,
            parameters=parameters,
        )


class BoostedTreesRegressor(BoostedTreesEstimator):
    """Gradient boosted trees for a number, trained by LightGBM.

    Use it for tables: on many of them nothing is better. See `BoostedTreesEstimator`
    for what a step is, and for LightGBM's own defaults. `center_bias=True` needs
    fewer trees if the labels are far from 0.

    Args:
      feature_columns: Feature columns of any kind but sequences. Numbers and buckets
        are split by thresholds, categorical columns, wrapped or not, by sets of ids.
      n_batches_per_layer: Ignored: every tree is grown on all rows.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      label_dimension: Must be 1.
      weight_column: A feature name or `numeric_column` with the weight of each example
        in the loss and the metrics. None: all weigh 1.
      n_trees: Number of iterations, at most.
      max_depth: Most levels of a tree; -1 for no limit.
      learning_rate: What the values of new leaves are multiplied by.
      l1_regularization: L1 penalty of leaf values, per row: it is multiplied by the sum
        of the weights, as in tf.estimator.
      l2_regularization: L2 penalty of leaf values, per row.
      tree_complexity: Least gain of a split, per row.
      min_node_weight: Least share of the sum of hessians in a leaf, per row.
      center_bias: Whether the first tree starts at the best constant answer.
      pruning_mode: "none" or "pre": a split with a gain below `tree_complexity` is not
        made. "post" is accepted and the same as "pre".
      quantile_sketch_epsilon: Numbers are divided into 1 / epsilon bins.
      config: How to run: seed, checkpoints, summaries. None: `RunConfig()`.
      num_leaves: Most leaves of a tree. None: 2 ** max_depth, or 31 without a limit.
      min_data_in_leaf: Least rows in a leaf.
      subsample: Share of the rows that each tree is grown on.
      feature_fraction: Share of the columns that each tree is grown on.
      early_stopping_rounds: In `train_and_evaluate`, stop if the loss of the evaluation
        data was not better for so many iterations; the trees up to the best one are
        used. None does not stop.
      warm_start_from: A checkpoint or model directory of such a model, to whose trees
        new ones are added. None: start without trees.
      parameters: Further parameters of LightGBM by name, which replace all others.

    Raises:
      FeatureError: A column cannot be given to trees, such as a sequence.
      SpecError: An argument has the wrong type or range, or the head has no objective
        in LightGBM.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> x = np.arange(200, dtype=np.float32)
      >>> column = ex.feature_columns.numeric_column("x")
      >>> model = ex.BoostedTreesRegressor([column], n_trees=20)
      >>> model = model.train(lambda: ({"x": x}, np.where(x > 99, 8.0, 2.0)))
      >>> rows = model.predict(lambda: iter([{"x": x[[0, 199]]}]))
      >>> [round(float(row["predictions"][0]), 1) for row in rows]
      [1.8, 7.0]
    """

    def __init__(
        self,
        feature_columns: Iterable[Any],
        n_batches_per_layer: int | None = None,
        model_dir: defaults.ModelPath | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        n_trees: int = 100,
        max_depth: int = 6,
        learning_rate: float = 0.1,
        l1_regularization: float = 0.0,
        l2_regularization: float = 0.0,
        tree_complexity: float = 0.0,
        min_node_weight: float = 0.0,
        config: RunConfig | None = None,
        center_bias: bool = False,
        pruning_mode: str = "none",
        quantile_sketch_epsilon: float = 0.01,
        *,
        num_leaves: int | None = None,
        min_data_in_leaf: int = 1,
        subsample: float = 1.0,
        feature_fraction: float = 1.0,
        early_stopping_rounds: int | None = None,
        warm_start_from: WarmStart = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        head = defaults.regressor_head(label_dimension, weight_column, None)
        super().__init__(
            feature_columns,
            n_batches_per_layer,
            head,
            model_dir,
            n_trees=n_trees,
            max_depth=max_depth,
            learning_rate=learning_rate,
            l1_regularization=l1_regularization,
            l2_regularization=l2_regularization,
            tree_complexity=tree_complexity,
            min_node_weight=min_node_weight,
            config=config,
            center_bias=center_bias,
            pruning_mode=pruning_mode,
            quantile_sketch_epsilon=quantile_sketch_epsilon,
            num_leaves=num_leaves,
            min_data_in_leaf=min_data_in_leaf,
            subsample=subsample,
            feature_fraction=feature_fraction,
            early_stopping_rounds=early_stopping_rounds,
            warm_start_from=warm_start_from,
            parameters=parameters,
        )
