"""Random forests: `RandomForestEstimator`, `…Classifier` and `…Regressor`.

Each tree is grown on a sample of the rows, and each split on a sample of the columns.
The score of a row is the mean over the trees. LightGBM grows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from estimax import heads
from estimax.canned import defaults
from estimax.canned.trees import options
from estimax.canned.trees.estimator import TreesEstimator
from estimax.canned.trees.table import table_of
from estimax.checkpoints.warm_start import WarmStart
from estimax.estimator import RunConfig


class RandomForestEstimator(TreesEstimator):
    """A random forest over feature columns, trained by LightGBM for any head.

    Use it where the task has no ready-made class. For classification and regression,
    `RandomForestClassifier` and `RandomForestRegressor` are shorter. A forest needs
    less tuning than boosted trees, is seldom better, and is larger.

    Training needs LightGBM (`pip install "estimax[trees]"`); evaluation, prediction,
    export and serving do not. A step is an iteration: one tree, or one for each class.

    Args:
      feature_columns: Feature columns of any kind but sequences. Numbers and buckets
        are split by thresholds, categorical columns, wrapped or not, by sets of ids.
      head: What the model is trained for: `BinaryClassHead`, `MultiClassHead`,
        `RegressionHead`, `PoissonRegressionHead` or `LogisticRegressionHead`.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      n_trees: Number of iterations: a tree, or one for each class.
      max_depth: Most levels of a tree; -1 for no limit.
      num_leaves: Most leaves of a tree.
      min_data_in_leaf: Least rows in a leaf. None: 5.
      subsample: Share of the rows that each tree is grown on, drawn without
        replacement. 0.632 is the share of distinct rows in a bootstrap sample.
      feature_fraction: Share of the columns that are tried at each split. None: the
        square root of their number for classes, a third of them for numbers.
      l2_regularization: L2 penalty of leaf values, per row.
      config: How to run: seed, checkpoints, summaries. None: `RunConfig()`.
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
      >>> head = ex.heads.BinaryClassHead()
      >>> model = ex.RandomForestEstimator([column], head, n_trees=20)
      >>> model = model.train(lambda: ({"x": x}, x > 99))
      >>> model.latest_checkpoint()[-13:]
      'model.ckpt-20'
    """

    def __init__(
        self,
        feature_columns: Iterable[Any],
        head: heads.Head,
        model_dir: defaults.ModelPath | None = None,
        n_trees: int = 100,
        max_depth: int = -1,
        num_leaves: int = 1024,
        min_data_in_leaf: int | None = None,
        subsample: float = 0.632,
        feature_fraction: float | None = None,
        l2_regularization: float = 0.0,
        config: RunConfig | None = None,
        *,
        warm_start_from: WarmStart = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        model = type(self).__name__
        columns = len(table_of(feature_columns, model).names)
        grown = options.forest(
            model,
            columns=columns,
            is_regression=isinstance(head, heads.RegressionHead),
            max_depth=max_depth,
            num_leaves=num_leaves,
            min_data_in_leaf=min_data_in_leaf,
            subsample=subsample,
            feature_fraction=feature_fraction,
        )
        super().__init__(
            head,
            feature_columns,
            model_dir,
            config,
            warm_start_from,
            n_trees=n_trees,
            parameters={**grown, **(parameters or {})},
            per_row=options.per_row(model, l2_regularization=l2_regularization),
            is_forest=True,
        )


class RandomForestClassifier(RandomForestEstimator):
    """A random forest for two or more classes, trained by LightGBM.

    Use it as a model that needs little tuning. See `RandomForestEstimator`.

    Args:
      feature_columns: Feature columns of any kind but sequences. Numbers and buckets
        are split by thresholds, categorical columns, wrapped or not, by sets of ids.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      n_classes: Number of classes.
      weight_column: A feature name or `numeric_column` with the weight of each example
        in the loss and the metrics. None: all weigh 1.
      label_vocabulary: The labels as strings, in the order of their class ids. None:
        labels are integers in [0, n_classes).
      n_trees: Number of iterations: a tree, or one for each class.
      max_depth: Most levels of a tree; -1 for no limit.
      num_leaves: Most leaves of a tree.
      min_data_in_leaf: Least rows in a leaf. None: 5.
      subsample: Share of the rows that each tree is grown on, drawn without
        replacement. 0.632 is the share of distinct rows in a bootstrap sample.
      feature_fraction: Share of the columns that are tried at each split. None: the
        square root of their number for classes, a third of them for numbers.
      l2_regularization: L2 penalty of leaf values, per row.
      config: How to run: seed, checkpoints, summaries. None: `RunConfig()`.
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
      >>> model = ex.RandomForestClassifier([column], n_trees=20)
      >>> model = model.train(lambda: ({"x": x}, x > 99))
      >>> rows = model.predict(lambda: iter([{"x": x[[0, 199]]}]))
      >>> [int(row["class_ids"][0]) for row in rows]
      [0, 1]
    """

    def __init__(
        self,
        feature_columns: Iterable[Any],
        model_dir: defaults.ModelPath | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        n_trees: int = 100,
        max_depth: int = -1,
        num_leaves: int = 1024,
        min_data_in_leaf: int | None = None,
        subsample: float = 0.632,
        feature_fraction: float | None = None,
        l2_regularization: float = 0.0,
        config: RunConfig | None = None,
        *,
        warm_start_from: WarmStart = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        head = defaults.classifier_head(
            n_classes, weight_column, label_vocabulary, None
        )
        super().__init__(
            feature_columns,
            head,
            model_dir,
            n_trees=n_trees,
            max_depth=max_depth,
            num_leaves=num_leaves,
            min_data_in_leaf=min_data_in_leaf,
            subsample=subsample,
            feature_fraction=feature_fraction,
            l2_regularization=l2_regularization,
            config=config,
            warm_start_from=warm_start_from,
            parameters=parameters,
        )


class RandomForestRegressor(RandomForestEstimator):
    """A random forest for a number, trained by LightGBM.

    Use it as a model that needs little tuning. See `RandomForestEstimator`.

    Args:
      feature_columns: Feature columns of any kind but sequences. Numbers and buckets
        are split by thresholds, categorical columns, wrapped or not, by sets of ids.
      model_dir: Folder for checkpoints and summaries. None: that of `config`, or a new
        temporary folder.
      label_dimension: Must be 1.
      weight_column: A feature name or `numeric_column` with the weight of each example
        in the loss and the metrics. None: all weigh 1.
      n_trees: Number of iterations: a tree, or one for each class.
      max_depth: Most levels of a tree; -1 for no limit.
      num_leaves: Most leaves of a tree.
      min_data_in_leaf: Least rows in a leaf. None: 5.
      subsample: Share of the rows that each tree is grown on, drawn without
        replacement. 0.632 is the share of distinct rows in a bootstrap sample.
      feature_fraction: Share of the columns that are tried at each split. None: the
        square root of their number for classes, a third of them for numbers.
      l2_regularization: L2 penalty of leaf values, per row.
      config: How to run: seed, checkpoints, summaries. None: `RunConfig()`.
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
      >>> model = ex.RandomForestRegressor([column], n_trees=20)
      >>> model = model.train(lambda: ({"x": x}, np.where(x > 99, 8.0, 2.0)))
      >>> rows = model.predict(lambda: iter([{"x": x[[0, 199]]}]))
      >>> [round(float(row["predictions"][0]), 1) for row in rows]
      [2.0, 8.0]
    """

    def __init__(
        self,
        feature_columns: Iterable[Any],
        model_dir: defaults.ModelPath | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        n_trees: int = 100,
        max_depth: int = -1,
        num_leaves: int = 1024,
        min_data_in_leaf: int | None = None,
        subsample: float = 0.632,
        feature_fraction: float | None = None,
        l2_regularization: float = 0.0,
        config: RunConfig | None = None,
        *,
        warm_start_from: WarmStart = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        head = defaults.regressor_head(label_dimension, weight_column, None)
        super().__init__(
            feature_columns,
            head,
            model_dir,
            n_trees=n_trees,
            max_depth=max_depth,
            num_leaves=num_leaves,
            min_data_in_leaf=min_data_in_leaf,
            subsample=subsample,
            feature_fraction=feature_fraction,
            l2_regularization=l2_regularization,
            config=config,
            warm_start_from=warm_start_from,
            parameters=parameters,
        )
