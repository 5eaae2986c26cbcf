"""`Classifier` and `Regressor`: estimators of scikit-learn that train a run of estimax.

model = Classifier(model="both", random_state=0).fit(frame, labels)
model.predict_proba(frame)        # [B, K]
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from estimax.config.infer import InferredTask
from estimax.config.model_choice import MODEL_CHOICES, ModelChoice, has_lightgbm
from estimax.core.errors import ConfigError, did_you_mean
from estimax.sklearn.tables import is_frame, table_of
from estimax.sklearn.training import FitOptions, Task, TrainedModel, train

_LEAST_HELD_OUT = 10  # rows, to choose a step by


class _TableModel(BaseEstimator):
    """What both estimators have in common: arguments, `fit` and the trained model."""

    def __init__(
        self,
        model: ModelChoice = "network",
        *,
        max_steps: int | None = None,
        validation_fraction: float | None = 0.15,
        model_dir: str | os.PathLike[str] | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.max_steps = max_steps
        self.validation_fraction = validation_fraction
        self.model_dir = model_dir
        self.random_state = random_state
        self.verbose = verbose

    def _train(
        self,
        features: Any,
        labels: Any,
        weights: Any,
        task: InferredTask,
        stratify: Any = None,
    ) -> None:
        if features.num_rows < 2:
            raise ValueError("X: expected at least 2 rows to train on, found 1 sample.")
        names = _unused("label", features), _unused("weight", features)
        table = features.append_column(names[0], labels)
        if weights is not None:
            table = table.append_column(names[1], pa.array(weights, pa.float64()))
        seed = self._seed()
        rows, held_out = self._split(table, seed, stratify)
        options = FitOptions(
            model=self.model,
            max_steps=self.max_steps,
            model_dir=None if self.model_dir is None else os.fspath(self.model_dir),
            seed=seed,
            verbose=bool(self.verbose),
        )
        columns = Task(names[0], None if weights is None else names[1], task)
        self.trained_: TrainedModel = train(rows, held_out, columns, options)
        self.n_iter_ = self.trained_.steps
        self.left_out_ = self.trained_.left_out

    def _split(self, table: Any, seed: int, stratify: Any) -> tuple[Any, Any]:
        """Return the rows to train on, and those that choose the step, if any."""
        share = self.validation_fraction
        held_out = int(table.num_rows * (share or 0.0))
        if held_out < _LEAST_HELD_OUT:
            return table, None
        classes, counts = np.unique(stratify, return_counts=True)
        if stratify is None or counts.min() < 2 or held_out < len(classes):
            stratify = None
        chosen = train_test_split(
            np.arange(table.num_rows),
            test_size=held_out,
            random_state=seed,
            stratify=stratify,
        )
        return table.take(np.sort(chosen[0])), table.take(np.sort(chosen[1]))

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _check_arguments(self) -> None:
        if self.model not in MODEL_CHOICES:
            raise ConfigError(
                f"model: expected one of {', '.join(MODEL_CHOICES)}, got "
                f"{self.model!r}{did_you_mean(str(self.model), MODEL_CHOICES)}"
            )
        if self.model in ("trees", "both") and not has_lightgbm():
            raise ConfigError(
                f"model={self.model!r}: LightGBM, which trains trees, is not "
                'installed. Install it with pip install "estimax[trees]", or choose '
                'model="network".'
            )
        share = self.validation_fraction
        if share is not None and not 0.0 < share < 1.0:
            raise ConfigError(
                f"validation_fraction: expected a share between 0 and 1, or None to "
                f"train on all rows, got {share!r}."
            )
        if self.max_steps is not None and self.max_steps < 1:
            raise ConfigError(
                f"max_steps: expected a number of at least 1, got {self.max_steps!r}."
            )

    def _table(self, X: Any, *, reset: bool) -> Any:  # noqa: N803 - scikit-learn's name
        """Check features as scikit-learn does; return them as a pyarrow table."""
        if isinstance(X, pa.Table) and hasattr(X, "to_pandas"):
            X = X.to_pandas()  # noqa: N806
        if is_frame(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if not len(X):
                raise ValueError(
                    f"Found array with 0 sample(s) (shape={X.shape}) while a minimum "
                    "of 1 is required."
                )
        else:
            X = validate_data(  # noqa: N806
                self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan"
            )
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            names = [f"x{i}" for i in range(self.n_features_in_)]
        return table_of(X, [str(name) for name in names])

    def _outputs(self, X: Any) -> Mapping[str, Any]:  # noqa: N803
        check_is_fitted(self)
        return self.trained_.predict(self._table(X, reset=False))

    def write_bundle(self, folder: str | os.PathLike[str]) -> str:
        """Write the trained model as a bundle, for `estimax serve` and `estimax run`.

        Args:
          folder: A folder, which is made; it must be empty or not exist.

        Returns:
          The folder.

        Raises:
          ConfigError: The folder has files.
        """
        check_is_fitted(self)
        path = Path(folder)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ConfigError(
                f"{path}: expected an empty folder, or none, found files."
            )
        self.trained_.write(path)
        return str(path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags


def _unused(name: str, table: Any) -> str:
    """Return the name, with a number if a column has it."""
    found, number = name, 2
    while found in table.column_names:
        found, number = f"{name}_{number}", number + 1
    return found


class Classifier(ClassifierMixin, _TableModel):
    """A classifier for scikit-learn: a network or trees on any table of columns.

    Use it where scikit-learn's tools are wanted: `Pipeline`, `cross_val_score`,
    `GridSearchCV`. Columns may be numbers, words, categories, dates and booleans, with
    missing values: features, model and training are chosen as `estimax init` does. For
    large files and everything that can be set, use a run file.

    Args:
      model: "network", "trees" (LightGBM), "both" (their average, with the weights that
        are best on held-out rows) or "linear".
      max_steps: Most training steps; for trees, most trees. None chooses by the number
        of rows.
      validation_fraction: The share of the rows that is held out to choose the step of
        the model, and the end of its training. None trains on all rows, to the end; so
        do tables from which fewer than 10 rows would be held out.
      model_dir: A folder for checkpoints, the run file, TensorBoard and the bundle. It
        is removed first if it holds an earlier run. None uses a temporary folder.
      random_state: The seed of initial weights, order of rows and held-out rows: a
        number, a `RandomState`, or None for another one in each `fit`.
      verbose: Whether to log the training as `Estimator.train` does.

    Attributes:
      classes_: The classes, sorted.
      n_features_in_: The number of columns of `fit`.
      feature_names_in_: Their names, if they were a data frame.
      left_out_: The columns that are not used, each with the reason.
      n_iter_: The number of steps that were trained.

    Example:
      >>> import numpy as np
      >>> rng = np.random.default_rng(0)
      >>> age = rng.uniform(18, 80, 60)
      >>> X = np.stack([age, rng.normal(size=60)], axis=1)
      >>> model = Classifier("linear", max_steps=60, random_state=0)
      >>> model.fit(X, np.where(age > 50, "yes", "no")).classes_
      array(['no', 'yes'], dtype='<U3')
      >>> model.predict([[75.0, 0.0], [20.0, 0.0]])
      array(['yes', 'no'], dtype='<U3')
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Classifier:  # noqa: N803
        """Train on a table.

        Args:
          X: A data frame (pandas, polars, pyarrow), or an array [B, D].
          y: The class of each row: numbers or text.
          sample_weight: The weight of each row in the loss; None weighs all alike.

        Returns:
          This estimator.

        Raises:
          ValueError: The rows do not fit together, there is one class only, or no
            column can be a feature.
        """
        self._check_arguments()
        features = self._table(X, reset=True)
        y = column_or_1d(_required(y, self), warn=True)
        check_consistent_length(features.column(0), y)
        _check_finite(y)  # scikit-learn's own check warns of a cast first
        check_classification_targets(y)
        weights = _weights(sample_weight, y)
        self.classes_, ids = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y: expected at least two classes, found one class: "
                f"{self.classes_.tolist()[0]!r}."
            )
        words = _words(self.classes_)
        head: dict[str, Any] = {"type": "binary"}
        if len(self.classes_) > 2:
            head = {"type": "multi_class", "classes": len(self.classes_)}
        labels = pa.array(ids, pa.int64())
        if words is not None:
            labels = pa.array(np.asarray(words, object)[ids], pa.string())
        self._train(features, labels, weights, InferredTask(head, words, ""), ids)
        return self

    def predict_proba(self, X: Any) -> np.ndarray[Any, Any]:  # noqa: N803
        """Return the probability of each class, in the order of `classes_`.

        Args:
          X: Rows with the columns of `fit`.

        Returns:
          An array [B, K].
        """
        return np.asarray(self._outputs(X)["probabilities"], np.float64)

    def predict(self, X: Any) -> np.ndarray[Any, Any]:  # noqa: N803
        """Return the most probable class of each row.

        Args:
          X: Rows with the columns of `fit`.

        Returns:
          An array [B] of the type of `classes_`.
        """
        probabilities = self.predict_proba(X)
        return np.asarray(self.classes_[probabilities.argmax(axis=1)])


class Regressor(RegressorMixin, _TableModel):
    """A regressor for scikit-learn: a network or trees on any table of columns.

    It is `Classifier` for numbers. The label is scaled for the training, and
    predictions are scaled back.

    Args:
      model: "network", "trees" (LightGBM), "both" (their average, with the weights that
        are best on held-out rows) or "linear".
      max_steps: Most training steps; for trees, most trees. None chooses by the number
        of rows.
      validation_fraction: The share of the rows that is held out to choose the step of
        the model; None trains on all rows, to the end.
      model_dir: A folder for checkpoints, the run file, TensorBoard and the bundle. It
        is removed first if it holds an earlier run. None uses a temporary folder.
      random_state: The seed of initial weights, order of rows and held-out rows.
      verbose: Whether to log the training as `Estimator.train` does.

    Attributes:
      n_features_in_: The number of columns of `fit`.
      feature_names_in_: Their names, if they were a data frame.
      left_out_: The columns that are not used, each with the reason.
      n_iter_: The number of steps that were trained.

    Example:
      >>> import numpy as np
      >>> X = np.random.default_rng(0).uniform(size=(60, 2))
      >>> model = Regressor("linear", max_steps=60, random_state=0)
      >>> model.fit(X, 3 * X[:, 0]).predict(X).shape
      (60,)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Regressor:  # noqa: N803
        """Train on a table.

        Args:
          X: A data frame (pandas, polars, pyarrow), or an array [B, D].
          y: The number of each row.
          sample_weight: The weight of each row in the loss; None weighs all alike.

        Returns:
          This estimator.

        Raises:
          ValueError: The rows do not fit together, a label is no finite number, or no
            column can be a feature.
        """
        self._check_arguments()
        features = self._table(X, reset=True)
        y = column_or_1d(_required(y, self), warn=True, dtype=np.float64)
        check_consistent_length(features.column(0), y)
        _check_finite(y)
        weights = _weights(sample_weight, y)
        task = InferredTask({"type": "regression"}, None, "")
        self._train(features, pa.array(y), weights, task)
        return self

    def predict(self, X: Any) -> np.ndarray[Any, Any]:  # noqa: N803
        """Return the predicted number of each row.

        Args:
          X: Rows with the columns of `fit`.

        Returns:
          An array [B].
        """
        return np.asarray(self._outputs(X)["predictions"], np.float64).reshape(-1)


def _required(y: Any, estimator: BaseEstimator) -> Any:
    if y is None:
        # The words that scikit-learn's own checks expect.
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is "
            "None."
        )
    return y


def _check_finite(y: Any) -> None:
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError("Input y contains NaN or infinity; expected finite numbers.")


def _weights(given: Any, y: Any) -> Any:
    if given is None:
        return None
    return _check_sample_weight(given, y, dtype=np.float64, ensure_non_negative=True)


def _words(classes: Any) -> tuple[str, ...] | None:
    """Return classes that are words, which the bundle then answers; None for others."""
    words = [str(word) for word in classes]
    is_text = all(isinstance(word, str) for word in classes)
    return (
        tuple(words) if is_text and all(w and w == w.strip() for w in words) else None
    )
