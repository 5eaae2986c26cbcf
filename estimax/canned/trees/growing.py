"""LightGBM: grow one iteration of trees at a time, so that any can be continued.

    grower = Grower(settings, rows, table, text="")
    grower.grow(step=0)
    grower.text                    # the model so far, in LightGBM's format

Continuing a model is exact. LightGBM adds the leaves of a row in float64, tree by tree;
the raw score that it predicts is the same sum, bit by bit. Its random numbers are not
continued, so every iteration gets seeds of its own.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from estimax.canned.trees.reading import TreeRows
from estimax.core.errors import SpecError
from estimax.formats import lightgbm_models

_SEEDS = ("bagging_seed", "feature_fraction_seed", "extra_seed")


def import_lightgbm(model: str) -> Any:
    """Return the package; raise ImportError that names the extra if it is missing."""
    try:
        import lightgbm
    except ImportError as error:
        raise ImportError(
            f"{model}: training trees needs LightGBM, which cannot be imported "
            f'({error}). Install it: pip install "estimax[trees]". To evaluate, '
            "predict, export and serve, it is not needed."
        ) from error
    return lightgbm


@dataclass(frozen=True)
class Settings:
    """How trees are grown; `parameters` are LightGBM's.

    Attributes:
      model: The name of the model, for messages.
      objective: LightGBM's objective.
      outputs: The number of scores of a row.
      parameters: Parameters that do not depend on the data.
      per_row: Parameters that are multiplied by the sum of the weights.
      is_forest: Whether trees are independent of each other.
      seed: The seed of all random numbers.
    """

    model: str
    objective: str
    outputs: int
    parameters: Mapping[str, Any]
    per_row: Mapping[str, float] = field(default_factory=dict)
    is_forest: bool = False
    seed: int = 0


class Grower:
    """Trees that grow on rows.

    Args:
      settings: How they are grown.
      rows: The training rows.
      names: The names of the columns of the rows.
      categories: How many of the columns, the last ones, are ids.
      text: The model to continue; "" starts a new one.
      validation: Rows on which the loss is measured after every iteration.

    Attributes:
      validates: Whether there are validation rows.
    """

    def __init__(
        self,
        settings: Settings,
        rows: TreeRows,
        names: tuple[str, ...],
        categories: int,
        text: str = "",
        validation: TreeRows | None = None,
    ) -> None:
        self._lightgbm = import_lightgbm(settings.model)
        self._settings = settings
        self._base = text
        self._base_count = lightgbm_models.parse(text).iterations if text else 0
        self._parameters = _parameters(settings, rows)
        self._samples = _samples(self._parameters)
        categorical = list(range(len(names) - categories, len(names)))
        self._train = self._dataset(rows, categorical)
        self._booster = self._lightgbm.Booster(self._parameters, self._train)
        self.validates = validation is not None
        if validation is not None:
            held_out = self._dataset(validation, categorical, self._train)
            self._booster.add_valid(held_out, "validation")
        self._text = text
        self._text_count = self._base_count
        self._own = 0  # iterations of the booster that count
        self._is_constant = False

    @property
    def iterations(self) -> int:
        """The number of iterations of the model so far."""
        return self._base_count + self._own

    @property
    def text(self) -> str:
        """The model so far, "" if it has no tree."""
        if self._text_count != self.iterations:
            own = self._booster.model_to_string(num_iteration=self._own)
            self._text = lightgbm_models.join(
                [self._base, own] if self._base else [own]
            )
            self._text_count = self.iterations
        return self._text

    def grow(self, step: int) -> bool:
        """Grow the trees of an iteration; return False if no further one can be.

        The trees depend on the step and on the trees so far, not on how often training
        was interrupted.
        """
        if self._is_constant:
            return False
        self._booster.reset_parameter(self._seeds(step))
        before = self._booster.current_iteration()
        is_stuck = self._booster.update()
        grew = self._booster.current_iteration() > before
        if not is_stuck:
            self._own += 1
            return True
        if grew and not self.iterations:
            # No split helps: LightGBM has made a tree of one leaf, the constant answer.
            self._own, self._is_constant = 1, True
            return False
        # Other rows or columns may have a split; without samples, none ever will.
        return self._samples

    def loss(self) -> float:
        """Return the loss of the training rows."""
        return float(self._booster.eval_train()[0][2])

    def validation_loss(self) -> float:
        """Return the loss of the validation rows, rounded to 10 digits.

        It is summed by several threads, in an order that may vary.
        """
        assert self.validates, "no validation rows were given"
        return float(f"{self._booster.eval_valid()[0][2]:.10g}")

    def _seeds(self, step: int) -> dict[str, Any]:
        drawn = np.random.SeedSequence([self._settings.seed, step]).generate_state(3)
        seeds = {name: int(seed) >> 1 for name, seed in zip(_SEEDS, drawn, strict=True)}
        fraction = self._parameters.get("bagging_fraction", 1.0)
        if fraction >= 1:
            return seeds
        # LightGBM seeds its samples of rows again only if their share changes: it is
        # set to one of two neighbouring numbers, neither of which it has before.
        share = math.nextafter(fraction, 1.0)
        share = share if step % 2 else math.nextafter(share, 1.0)
        return {**seeds, "bagging_fraction": share}

    def _dataset(
        self, rows: TreeRows, categorical: list[int], reference: Any = None
    ) -> Any:
        start = None
        if self._base and not self._settings.is_forest:
            booster = self._lightgbm.Booster(model_str=self._base)
            # By output, then by row, as LightGBM expects it.
            start = booster.predict(rows.matrix, raw_score=True).ravel(order="F")
        # Nothing is validated against names: LightGBM does not accept all of them.
        return self._lightgbm.Dataset(
            rows.matrix,
            rows.labels,
            weight=rows.weights,
            init_score=start,
            reference=reference,
            categorical_feature=categorical,
            params=self._parameters,
            free_raw_data=True,
        )


def _parameters(settings: Settings, rows: TreeRows) -> dict[str, Any]:
    weight = len(rows.labels) if rows.weights is None else float(rows.weights.sum())
    given = {
        "objective": settings.objective,
        "verbosity": -1,
        # The same trees for any number of threads.
        "deterministic": True,
        "force_row_wise": True,
        "feature_pre_filter": False,
        "num_threads": _threads(rows.matrix.size),
        "seed": settings.seed,
        **settings.parameters,
    }
    for name, value in settings.per_row.items():
        given[name] = max(value * weight, given.get(name, 0.0))
    if settings.outputs > 1:
        given["num_class"] = settings.outputs
    fraction = given.get("bagging_fraction", 1.0)
    if fraction < 1:
        # Neither of the shares of `_seeds`, so that the first iteration is seeded.
        given["bagging_fraction"] = math.nextafter(fraction, 0.0)
        given["bagging_freq"] = 1
    return given


def _threads(cells: int) -> int:
    """Return how many threads to use: the trees are the same for any number.

    Threads of OpenMP spin while they wait. On a small table (200,000 cells) two of them
    took seven times the CPU of one, and longer.
    """
    return max(1, min(os.cpu_count() or 1, cells // 500_000))


def _samples(parameters: Mapping[str, Any]) -> bool:
    names = ("bagging_fraction", "feature_fraction", "feature_fraction_bynode")
    return any(parameters.get(name, 1.0) < 1 for name in names)


def objective_of(head: Any, model: str) -> str:
    """Return LightGBM's objective for a head.

    Raises:
      SpecError: LightGBM has no objective for the head.
    """
    name = type(head).__name__
    found = _OBJECTIVES.get(name)
    for option in ("loss_fn", "inverse_link_fn", "focal_gamma"):
        if getattr(head, option, None) is not None:
            raise SpecError(
                f"{model}: {name}({option}=…) is not possible: LightGBM trains trees "
                "with its own losses. Leave it out, or use a network."
            )
    if found is None:
        raise SpecError(
            f"{model}: trees cannot be trained for {name}; expected one of "
            f"{', '.join(_OBJECTIVES)}."
        )
    if head.label_dimension != 1:
        raise SpecError(
            f"{model}: label_dimension must be 1, got {head.label_dimension}. Train a "
            "model for each label."
        )
    return found


_OBJECTIVES = {
    "BinaryClassHead": "binary",
    "MultiClassHead": "multiclass",
    "RegressionHead": "regression",
    "PoissonRegressionHead": "poisson",
    "LogisticRegressionHead": "cross_entropy",
}
