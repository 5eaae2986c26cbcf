"""Which features a model lives on: how much worse it gets when one is shuffled.

    print(ex.inspection.permutation_importance(model, eval_input_fn, metric="auc"))

A feature's values are dealt out anew among the examples: each is still likely, but
tells nothing of its example. Features that say the same thing share their importance,
and each may look small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from estimax import input as inputs
from estimax.core.errors import FeatureError, SpecError, did_you_mean
from estimax.core.sparse import Sparse
from estimax.core.spec import ModeKeys
from estimax.estimator import Estimator
from estimax.estimator.calling import call_input_fn
from estimax.input.streams import columns
from estimax.inspection.variables import as_text

_LOWER_IS_BETTER = ("loss", "error", "regret")


@dataclass(frozen=True)
class FeatureImportance:
    """How much worse the metric gets without what this feature tells."""

    feature: str  # "ids + weights": several that were dealt out together
    mean: float  # over the repetitions; positive: the model needs the feature
    std: float


@dataclass(frozen=True)
class Importances:
    """Features by importance, the metric they were measured by, and its value."""

    metric: str
    baseline: float
    examples: int
    features: tuple[FeatureImportance, ...]

    def __str__(self) -> str:
        rows = [[f.feature, f"{f.mean:+.5f}", f"{f.std:.5f}"] for f in self.features]
        table = as_text(["feature", f"{self.metric} lost", "±"], rows)
        return (
            f"{table}\n{self.metric} {self.baseline:.5f} on {self.examples:,} examples"
        )


def permutation_importance(
    estimator: Estimator,
    input_fn: Callable[..., Any],
    *,
    metric: str = "loss",
    features: Sequence[str | Sequence[str]] | None = None,
    repeats: int = 3,
    max_examples: int = 100_000,
    higher_is_better: bool | None = None,
    seed: int = 0,
) -> Importances:
    """Evaluate a trained model once as it is, then with each feature shuffled.

    Reads up to `max_examples` of `input_fn` into memory. `features` limits which are
    looked at; in it, a tuple of names is shuffled as one. Without it, features whose
    rows are as long as one another's, such as ids and their weights, are. Whether more
    of a metric is better is told from its name (a loss or an error is not) unless
    `higher_is_better` says so.
    """
    found, labels, batch_size = _read(estimator, input_fn, max_examples)
    groups = _groups(found) if features is None else list(map(_as_group, features))
    for name in (name for group in groups for name in group):
        if name not in found:
            near = did_you_mean(name, found)
            raise FeatureError(f"permutation_importance: no feature {name!r}{near}")
    if higher_is_better is None:
        higher_is_better = not any(word in metric for word in _LOWER_IS_BETTER)
    sign = 1.0 if higher_is_better else -1.0

    def measured(some: Mapping[str, Any]) -> float:
        rows = inputs.Dataset.from_tensor_slices((dict(some), labels))
        results = estimator.evaluate(lambda: rows.batch(batch_size), report=False)
        if metric not in results:
            near = did_you_mean(metric, results)
            raise SpecError(f"permutation_importance: no metric {metric!r}{near}")
        return float(results[metric])

    baseline = measured(found)
    rng = np.random.default_rng(seed)
    examples = len(next(iter(found.values())))
    importances = []
    for group in groups:
        lost = []
        for _ in range(repeats):
            order = rng.permutation(examples)
            moved = {name: columns.take_rows(found[name], order) for name in group}
            lost.append(sign * (baseline - measured({**found, **moved})))
        together = " + ".join(group)
        importances.append(
            FeatureImportance(together, float(np.mean(lost)), float(np.std(lost)))
        )
    importances.sort(key=lambda importance: -importance.mean)
    return Importances(metric, baseline, examples, tuple(importances))


def _as_group(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _groups(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Features to shuffle together: values that a column pairs would not fit apart."""
    groups: list[list[str]] = []
    for name in sorted(found):
        mates = (g for g in groups if _are_paired(found[g[0]], found[name]))
        group = next(mates, None)
        if group is None:
            groups.append([name])
        else:
            group.append(name)
    return [tuple(group) for group in groups]


def _are_paired(one: Any, other: Any) -> bool:
    if not (isinstance(one, Sparse) and isinstance(other, Sparse)):
        return False
    lengths, others = np.diff(one.starts), np.diff(other.starts)
    # Rows that are all as long fit in any order, and say nothing about pairs.
    return len(np.unique(lengths)) > 1 and np.array_equal(lengths, others)


def _read(
    estimator: Estimator, input_fn: Callable[..., Any], max_examples: int
) -> tuple[dict[str, Any], Any, int]:
    """The examples of an input as columns, and how many a batch has."""
    given = call_input_fn(
        input_fn,
        mode=ModeKeys.EVAL,
        params=estimator.params,
        config=estimator.config,
    )
    batches = inputs.as_batches(given)
    parts: list[tuple[Any, Any]] = []
    rows = 0
    try:
        for features, labels in batches:
            if not isinstance(features, Mapping):
                raise FeatureError(
                    "permutation_importance: features must be a dict by name, got "
                    f"{type(features).__name__}."
                )
            parts.append((features, labels))
            rows += len(next(iter(features.values())))
            if rows >= max_examples:
                break
    finally:
        batches.close()
    if not parts:
        raise SpecError("permutation_importance: the input_fn gave no data.")
    first, first_labels = parts[0]
    found = {name: columns.join([f[name] for f, _ in parts]) for name in first}
    size = len(next(iter(first.values())))
    if isinstance(first_labels, Mapping):
        together = {
            k: columns.join([part[k] for _, part in parts]) for k in first_labels
        }
        return found, together, size
    return found, columns.join([labels for _, labels in parts]), size
