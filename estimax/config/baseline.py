"""What a constant answer scores on a source, and what to try if a model is no better.

    baseline(run, built.input_fn("test"))       # {"accuracy": 0.627, "auc": 0.5, …}

The constant is the best one for the labels of the source itself: their mean, or their
most frequent class. A model that is not better has learned nothing from the features.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from estimax.canned.hints import GOOD_RATES
from estimax.config.schema.features import NumericConfig
from estimax.config.schema.heads import RegressionHeadConfig
from estimax.config.schema.run import Run

_TASKS = ("binary", "multi_class", "regression")  # types of heads


def baseline(
    run: Run, input_fn: Callable[[], Iterable[Any]], steps: int | None = None
) -> Mapping[str, float]:
    """Return the metrics of the best constant answer by name.

    Args:
      run: The run. Its head says which metrics there are.
      input_fn: Returns the batches of the source, each of features and labels.
      steps: The number of batches; None for all.

    Returns:
      The metrics; none for a head of another kind, or if examples have weights.
    """
    task = getattr(getattr(run.model, "head", None), "type", None)
    if run.data.weight is not None or task not in _TASKS:
        return {}
    batches = itertools.islice(iter(input_fn()), steps)
    if task == "regression":
        return _of_numbers(np.asarray(labels, np.float64) for _, labels in batches)
    counts: Counter[Any] = Counter()
    for _, labels in batches:
        counts.update(np.asarray(labels).reshape(-1).tolist())
    found = _of_classes(counts, is_binary=task == "binary")
    head: Any = getattr(run.model, "head", None)
    options = (head.loss_fn, head.focal_gamma, head.class_weights)
    if options != (None, None, None):
        found.pop("average_loss", None)  # is not the entropy
    return found


def _of_numbers(batches: Iterable[Any]) -> dict[str, float]:
    values = np.concatenate([batch.reshape(-1) for batch in batches] or [np.zeros(0)])
    return {"average_loss": float(values.var())} if values.size else {}


def _of_classes(counts: Counter[Any], *, is_binary: bool) -> dict[str, float]:
    total = sum(counts.values())
    if not total:
        return {}
    shares = [count / total for count in counts.values()]
    entropy = -sum(share * math.log(share) for share in shares)
    found = {"accuracy": max(shares), "average_loss": entropy}
    return found | {"auc": 0.5} if is_binary else found


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
