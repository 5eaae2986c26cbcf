"""Integrated gradients: the part of each feature in the output for a row.

    found = ex.inspection.integrated_gradients(model, eval_input_fn)
    print(found)                         # the mean size of the part of each feature
    found.contributions["city"]          # its part for each row, [N]

The parts of a row sum to the difference between its output and the output of the
baseline. `training/explaining.py` computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.display import html_table
from estimax.core.explanation import (
    BASELINE,
    CLASS_ID,
    CONTRIBUTIONS,
    OUTPUT,
    RESIDUAL,
)
from estimax.estimator import Estimator
from estimax.inspection.importance import read_rows, take_rows
from estimax.inspection.variables import as_text
from estimax.training import Explained, explaining


@dataclass(frozen=True, eq=False)
class Explanations:
    """The result of `integrated_gradients`; print it for a table.

    Attributes:
      contributions: The part of each feature in the output, by name: [N] numbers.
      baseline: The output of the baseline, [N]. It is the same for all rows, except for
        models of sequences, whose baseline has the lengths of the row.
      output: The output that is explained, [N]: a logit, or the predicted value.
      residual: What the parts lack: `output - baseline` minus the sum of all parts,
        [N]. More `steps` make it smaller.
      class_id: For a model with several classes, the class whose logit is explained,
        [N]; else None.
    """

    contributions: Mapping[str, NDArray[Any]]
    baseline: NDArray[Any]
    output: NDArray[Any]
    residual: NDArray[Any]
    class_id: NDArray[Any] | None = None

    @property
    def mean_absolute(self) -> dict[str, float]:
        """The mean size of the part of each feature, largest first."""
        means = {n: float(np.mean(np.abs(v))) for n, v in self.contributions.items()}
        return dict(sorted(means.items(), key=lambda item: -item[1]))

    def __str__(self) -> str:
        return f"{as_text(*self._table())}\n{self._summary()}"

    def __repr__(self) -> str:
        return f"Explanations({self._summary()})"

    def _repr_html_(self) -> str:
        return html_table(*self._table(), title=self._summary())

    def _table(self) -> tuple[list[str], list[list[str]]]:
        rows = [[name, f"{size:.5f}"] for name, size in self.mean_absolute.items()]
        return ["feature", "mean absolute part"], rows

    def _summary(self) -> str:
        worst = float(np.max(np.abs(self.residual)))
        return (
            f"{len(self.contributions)} features, {len(self.output):,} rows, largest "
            f"residual {worst:.2g}"
        )


def integrated_gradients(
    estimator: Estimator,
    input_fn: Callable[..., Any],
    *,
    output: str | None = None,
    output_index: int | None = None,
    steps: int = explaining.STEPS,
    max_examples: int = 10_000,
    checkpoint_path: str | None = None,
) -> Explanations:
    """Explain the output for each row by the part of each feature in it.

    Use it to see what moved one prediction, or all of them. The parts of a row sum to
    the difference between its output and the output of the baseline, where every
    numeric column is zero after its normalization and no category is given. They say
    what the model computes, not what causes what.

    It is offered for models whose features enter through layers of feature columns:
    `DNN*`, `Linear*`, `DNNLinearCombined*`, `Tabular*` and such `model_fn`s of your
    own. Trees have no gradients and are refused.

    Args:
      estimator: A trained Estimator.
      input_fn: Function that returns the rows; features must be a dict. Labels are
        ignored.
      output: The name of the prediction to explain. None: "logits" if the model
        predicts them, else "predictions".
      output_index: Which of several outputs, such as the logit of a class. None: the
        predicted class of each row.
      steps: The number of points on the path from the baseline at which the gradient is
        computed. More steps cost more time and leave a smaller residual.
      max_examples: Number of examples after which no further batch is read.
      checkpoint_path: The checkpoint to explain; None is the latest.

    Returns:
      The parts of all rows, with the residual that the integral leaves.

    Raises:
      FeatureError: The features are no dict.
      SpecError: The input has no data; `output`, `output_index` or `steps` is wrong; or
        the output depends on a feature other than through feature columns.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> x, noise = np.random.default_rng(0).normal(size=(2, 64)).astype(np.float32)
      >>> def input_fn():
      ...     data = {"x": x, "noise": noise}, 3 * x
      ...     return ex.input.Dataset.from_tensor_slices(data).batch(16)
      >>> columns = [ex.feature_columns.numeric_column(name) for name in ("x", "noise")]
      >>> model = ex.LinearRegressor(columns, optimizer=ex.optimizers.SGD(0.1))
      >>> model = model.train(lambda: input_fn().repeat(), steps=100)
      >>> found = ex.inspection.integrated_gradients(model, input_fn)
      >>> bool(np.allclose(found.contributions["x"], 3 * x, atol=0.01))
      True
    """
    explained = Explained(steps, output, output_index)
    _, features, _, size = read_rows(
        estimator, input_fn, max_examples, where="integrated_gradients"
    )
    explain = estimator.explainer(
        take_rows(features, np.arange(1)),
        explained=explained,
        checkpoint_path=checkpoint_path,
    )
    count = len(next(iter(features.values())))
    parts = []
    for start in range(0, count, size):
        # Padded with the last row: a smaller last batch would compile once more.
        rows = np.minimum(np.arange(start, start + size), count - 1)
        answer = explain(take_rows(features, rows))
        parts.append({n: v[: count - start] for n, v in answer.items()})
    found = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    return Explanations(
        {
            n.removeprefix(CONTRIBUTIONS): v
            for n, v in found.items()
            if n.startswith(CONTRIBUTIONS)
        },
        *(found[BASELINE], found[OUTPUT]),
        found[RESIDUAL],
        found.get(CLASS_ID),
    )
