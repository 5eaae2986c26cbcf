"""Which models `estimax init` writes for a table, and how long they train.

    choice = choose_models(None)            # trees and a network, with LightGBM
    training_of(rows=30_000)                # batch size, epochs and steps

The numbers were chosen by `benchmarks/quality.py` on tables of 400 to 200,000 rows.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from estimax.config.infer_features import InferredFeature
from estimax.core.errors import ConfigError, did_you_mean

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
    limits = (
        (5_000, (64, 40)),
        (20_000, (128, 20)),
        (40_000, (256, 20)),
        (100_000, (256, 12)),
    )
    batch, epochs = next((t for most, t in limits if rows < most), (256, 8))
    epochs = max(epochs, math.ceil(_LEAST_STEPS * batch / rows))
    steps = math.ceil(epochs * rows / batch)
    return TableTraining(batch, epochs, steps, max(20, steps // _EVALUATIONS))


def choose_models(given: str | None) -> tuple[str, ...]:
    """Return the models to write: those asked for, or the best that can be trained.

    Raises:
      ConfigError: There is no such choice, or LightGBM is not installed for trees.

    >>> choose_models("network")
    ('network',)
    """
    if given is not None and given not in MODEL_CHOICES:
        raise ConfigError(
            f"--model: expected one of {', '.join(MODEL_CHOICES)}, got {given!r}"
            f"{did_you_mean(given, MODEL_CHOICES)}."
        )
    if given in ("trees", "both") and not has_lightgbm():
        raise ConfigError(
            f"--model {given}: LightGBM, which trains trees, is not installed. Install "
            'it with pip install "estimax[trees]", or choose --model network.'
        )
    if given is None:
        given = "both" if has_lightgbm() else "network"
    return ("trees", "network") if given == "both" else (given,)


def features_for(
    models: tuple[str, ...], features: tuple[InferredFeature, ...]
) -> tuple[InferredFeature, ...]:
    """Return the features as the models read them.

    Trees and the network read numbers as they are, also missing ones: a fill or a scale
    would hide what they learn by themselves. A linear model reads cut numbers.
    """
    if models == ("linear",):
        wide = [f for f in features if f.is_wide]
        cut = {f.section.get("source") for f in wide}
        return tuple(f for f in features if f.is_wide or f.name in cut)
    return tuple(
        replace(f, section=_raw(f.section))
        for f in features
        if f.section["type"] != "bucketized"
    )


def _raw(section: Mapping[str, Any]) -> dict[str, Any]:
    if section["type"] != "numeric":
        return dict(section)
    scaling = ("default", "transform", "normalize")
    return {key: value for key, value in section.items() if key not in scaling}


def model_section(
    models: tuple[str, ...],
    features: tuple[InferredFeature, ...],
    head: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the section `model` of a run file.

    A network is an average of one, so that the checkpoint that is best on the held-out
    rows is what is evaluated and exported.
    """
    if models == ("linear",):
        wide = [f.name for f in features if f.is_wide]
        return {"type": "linear", "linear": {"features": wide}, "head": dict(head)}
    if models == ("trees",):
        return {"type": "boosted_trees", **TREES, "head": dict(head)}
    sections = {
        "trees": {"type": "boosted_trees", **TREES},
        "network": {"type": "tabular"},
    }
    chosen = {name: sections[name] for name in models}
    return {"type": "average", "models": chosen, "head": dict(head)}


def has_lightgbm() -> bool:
    """Return whether LightGBM is installed, without importing it."""
    return importlib.util.find_spec("lightgbm") is not None
