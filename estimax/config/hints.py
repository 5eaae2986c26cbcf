"""What to try if the model of a run file is no better than the mean of the labels."""

from __future__ import annotations

from typing import Any

from estimax.canned.hints import GOOD_RATES
from estimax.config.schema.features import NumericConfig
from estimax.config.schema.heads import RegressionHeadConfig
from estimax.config.schema.run import Run

_GOOD = {name.lower(): rate for name, rate in GOOD_RATES.items()}


def yaml_hint(run: Run) -> str:
    """Return what to try, as keys of the run file."""
    advice = []
    for part in ("dnn", "linear", "rnn"):
        optimizer: Any = getattr(run.optimizers, part)
        rate = getattr(optimizer, "learning_rate", None)
        if isinstance(rate, float) and hasattr(optimizer, "type"):
            good = _GOOD.get(optimizer.type, 0.0)
            if rate < good:
                key = f"optimizers.{part}.learning_rate"
                advice.append(f"set {key} to {good:g} (it is {rate:g})")
    head = getattr(run.model, "head", None)
    if isinstance(head, RegressionHeadConfig) and not head.normalize_label:
        advice.append("remove model.head.normalize_label: false")
    raw = [
        name
        for name, feature in run.features.items()
        if isinstance(feature, NumericConfig) and feature.normalize is None
    ]
    if raw:
        advice.append(f"set features.{raw[0]}.normalize to zscore")
    advice.append("train for more steps (train.max_steps)")
    return f"Try one of these: {'; '.join(advice)}."
