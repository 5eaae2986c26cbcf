"""Which models `estimax init` writes for a table, and how long they train.

    choice = choose_models(None)            # trees and a network, with LightGBM
    training_of(rows=30_000)                # batch size, epochs and steps

The numbers were chosen by `benchmarks/quality.py` on tables of 400 to 200,000 rows.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

ModelChoice = Literal["trees", "network", "linear", "both"]
MODEL_CHOICES: tuple[ModelChoice, ...] = ("trees", "network", "linear", "both")

# LightGBM's own defaults, with smaller steps and early stopping.
TREES: dict[str, Any] = {
    "n_trees": 500,
    "max_depth": -1,
    "num_leaves": 31,
    "min_data_in_leaf": 20,
    "learning_rate": 0.05,
    "early_stopping_rounds": 50,
}
_LEAST_STEPS = 400
_EVALUATIONS = 25


class TableTraining(NamedTuple):
    """How a network is trained on a table; see `training_of`."""

    batch_size: int
    epochs: int
    steps: int
    evaluate_every: int


def training_of(rows: int) -> TableTraining:
    """Return how a network is trained on a table with so many training rows.

    >>> training_of(1_000)
    TableTraining(batch_size=64, epochs=40, steps=625, evaluate_every=25)
    """
    limits = ((5_000, (64, 40)), (20_000, (128, 20)), (100_000, (256, 15)))
    batch, epochs = next((t for most, t in limits if rows < most), (256, 8))
    epochs = max(epochs, math.ceil(_LEAST_STEPS * batch / rows))
    steps = math.ceil(epochs * rows / batch)
    return TableTraining(batch, epochs, steps, max(20, steps // _EVALUATIONS))


def choose_models(given: ModelChoice | None) -> Sequence[ModelChoice]:
    """Return the models to write: what was asked for, or what is best here.

    >>> choose_models("both")
    ('trees', 'network')
    """
    if given is None:
        given = "both" if has_lightgbm() else "network"
    return ("trees", "network") if given == "both" else (given,)


def has_lightgbm() -> bool:
    """Return whether LightGBM is installed, without importing it."""
    return importlib.util.find_spec("lightgbm") is not None
