"""What the metrics and the curves of a trained model say about the run.

perfect_metric({"accuracy": 1.0}, {"accuracy": 0.6})     # "accuracy is 1"
for remark in verdict_of(run, metrics, baseline):
    print(remark.title, remark.text)                     # "overfitting", "after …"
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from estimax.config.schema.model import TREES, AverageModelConfig
from estimax.config.schema.run import Run

_ALMOST_ONE = 1 - 1e-6
_ALMOST_ZERO = 1e-4  # a cross entropy that only a leak reaches on unseen rows
_PERFECT_R2 = 0.9999


def perfect_metric(
    metrics: Mapping[str, Any], baseline: Mapping[str, float]
) -> str | None:
    """Return which metric is too good to be true; None if none is.

    Args:
      metrics: The metrics of an evaluation.
      baseline: The metrics of a constant answer on the same rows, as `baseline` returns
        them; empty if they are not known.

    >>> perfect_metric({"average_loss": 0.001}, {"average_loss": 400.0})
    'R² is 0.9999975'
    """
    is_class = "accuracy" in metrics
    if is_class and baseline.get("accuracy", 0.0) >= _ALMOST_ONE:
        return None  # all rows are of one class
    for name in ("accuracy", "auc"):
        if name in metrics and float(metrics[name]) >= _ALMOST_ONE:
            return f"{name} is 1"
    if "average_loss" not in metrics:
        return None
    loss = float(metrics["average_loss"])
    if is_class:
        return f"average_loss is {loss:.2g}" if loss < _ALMOST_ZERO else None
    variance = baseline.get("average_loss", 0.0)
    if not variance or not 1 - loss / variance > _PERFECT_R2:
        return None
    return f"R² is {1 - loss / variance:.7f}"


@dataclass(frozen=True)
class LabelUnits:
    """Errors in the units of the label, of a model and of a constant answer."""

    of_model: Mapping[str, float]
    of_constant: Mapping[str, float]


def label_units(
    metrics: Mapping[str, Any], baseline: Mapping[str, float]
) -> LabelUnits:
    """Return RMSE and R² of a regression; nothing for classes.

    Args:
      metrics: The metrics of the model. `average_loss` is the mean squared error.
      baseline: The metrics of a constant answer on the same rows.

    >>> label_units({"average_loss": 4.0}, {"average_loss": 16.0}).of_model
    {'rmse': 2.0, 'r2': 0.75}
    """
    if "accuracy" in metrics or "average_loss" not in baseline:
        return LabelUnits({}, {})
    if "average_loss" not in metrics:
        return LabelUnits({}, {})
    loss, variance = float(metrics["average_loss"]), float(baseline["average_loss"])
    found = {"rmse": math.sqrt(max(loss, 0.0))}
    if variance > 0:
        found["r2"] = 1 - loss / variance
    return LabelUnits(found, {"rmse": math.sqrt(variance), "r2": 0.0})


@dataclass(frozen=True)
class Remark:
    """A sentence about a run that has ended, for the terminal and the report."""

    title: str
    text: str
    style: str  # of the terminal: red, yellow, green or ""


_NO_GAIN = 0.002  # a smaller share of the loss is no improvement
_OVERFIT = 0.02  # growth of the evaluation's loss after its minimum
_LEAST_EVALUATIONS = 3


def verdict_of(
    run: Run,
    metrics: Mapping[str, Any],
    baseline: Mapping[str, float],
    others: Mapping[str, Mapping[str, float]] | None = None,
) -> list[Remark]:
    """Return what to say about a run that has ended, the most important first.

    Args:
      run: The run. The curves of its model directory are read.
      metrics: The metrics of the last evaluation, of rows that decided nothing.
      baseline: Those of a constant answer on the same rows; may be empty.
      others: Those of other models on the same rows, by name.
    """
    found = []
    if is_worse_than(metrics, baseline):
        found.append(
            Remark(
                "worse than a constant",
                f"average_loss is {float(metrics['average_loss']):.4g}, that of a "
                f"constant answer is {baseline['average_loss']:.4g}. The features may "
                "not tell the label, or there are too few rows for this model: try "
                "`estimax init --model linear`, or fewer features.",
                "red",
            )
        )
    for name, (trained, evaluated) in loss_curves(run).items():
        found += _of_curves(trained, evaluated, _against_overfitting(run, name))
    return found + _of_others(metrics, others or {})


def _of_others(
    metrics: Mapping[str, Any], others: Mapping[str, Mapping[str, float]]
) -> list[Remark]:
    """Return what the loss of other models on the same rows says.

    >>> _of_others({"average_loss": 0.5}, {"linear": {"average_loss": 0.4}})[0].title
    'underfitting'
    """
    if "average_loss" not in metrics:
        return []
    loss = float(metrics["average_loss"])
    names = {"linear": "a linear model", "lightgbm": "LightGBM with its defaults"}
    better = {
        name: found["average_loss"]
        for name, found in others.items()
        if name in names and found["average_loss"] < (1 - _BEHIND) * loss
    }
    if not better:
        return []
    name = min(better, key=lambda one: better[one])
    text = (
        f"{names[name]} has average_loss {better[name]:.4g} on the same rows, this "
        f"model {loss:.4g}"
    )
    if name == "linear":
        advice = "more steps, a larger learning rate or more units may help"
        return [Remark("underfitting", f"{text}; {advice}.", "yellow")]
    return [Remark("behind trees", f"{text}; trees suit this table.", "yellow")]


_BEHIND = 0.02  # the share of the loss by which another model is better


def is_worse_than(metrics: Mapping[str, Any], baseline: Mapping[str, float]) -> bool:
    """Return whether a model is worse than a constant answer on the same rows."""
    loss, constant = metrics.get("average_loss"), baseline.get("average_loss")
    return loss is not None and constant is not None and float(loss) > constant


Curve = Sequence[tuple[int, float]]


def loss_curves(run: Run) -> dict[str, tuple[Curve, Curve]]:
    """Return the losses of the training and of the first evaluation, by step.

    An average has those of each model by its name (of the first seed), without trees,
    which stop by themselves; any other model has one entry, named "".
    """
    from estimax.config.build import evaluation_name

    if run.eval is None:
        return {}
    folder = Path(run.run.model_dir)
    if isinstance(run.model, AverageModelConfig):
        average = run.model
        networks = (n for n, m in average.models.items() if not isinstance(m, TREES))
        return {
            name: _curves_in(folder / "members" / average.member(name), None)
            for name in networks
        }
    return {"": _curves_in(folder, evaluation_name(run))}


def _curves_in(folder: Path, evaluation: str | None) -> tuple[Curve, Curve]:
    from estimax.hooks.summary import read_scalars

    evaluated = read_scalars(folder / (f"eval_{evaluation}" if evaluation else "eval"))
    losses = evaluated.get("average_loss") or evaluated.get("loss") or []
    trained = read_scalars(folder).get("loss") or []
    return sorted(dict(trained).items()), sorted(dict(losses).items())


def _against_overfitting(run: Run, member: str = "") -> str:
    """Return what to change, as keys of the run file."""
    members: Any = getattr(run.model, "models", {})
    model: Any = members[member] if member else run.model
    key = f"model.models.{member}.dnn" if member else "model.dnn"
    part: Any = getattr(model, "dnn", None)
    if not hasattr(part, "dropout"):
        return "a smaller model or more rows would move it"
    dropout = part.dropout
    now = f" (now {dropout:g})" if isinstance(dropout, float) else ""
    return (
        f"a higher {key}.dropout{now}, a smaller {key}.hidden_units or more rows would "
        "move it"
    )


def _of_curves(
    trained: Curve, evaluated: Curve, advice: str = "a smaller model would move it"
) -> list[Remark]:
    """Return what two curves of losses say.

    >>> _of_curves([], [(10, 0.9), (20, 0.5), (30, 0.6)])[0].title
    'overfitting'
    >>> _of_curves([], [(10, 0.9), (20, 0.7), (30, 0.5)])[0].title
    'still improving'
    """
    if len(evaluated) < _LEAST_EVALUATIONS:
        return []
    step, least = min(evaluated, key=lambda pair: pair[1])
    end, last = evaluated[-1]
    if step == end:
        before = min(value for _, value in evaluated[:-1])
        if before - least > _NO_GAIN * abs(before):
            text = f"the last evaluation, at step {end:,}, is the best: raise "
            return [
                Remark(
                    "still improving", f"{text}train.max_steps (now {end:,}).", "yellow"
                )
            ]
        return [Remark("converged", "more steps would change little.", "green")]
    if last > least + _OVERFIT * abs(least):
        text = (
            f"after step {step:,} the loss of the evaluation rose from {least:.4g} to "
            f"{last:.4g}{_falling(trained, step)}. The best step is what is exported; "
            f"{advice}."
        )
        return [Remark("overfitting", text, "yellow")]
    text = f"the evaluation was best at step {step:,} and has hardly changed since."
    return [Remark("converged", text, "green")]


def _falling(trained: Curve, step: int) -> str:
    """Return how the loss of the training went on after a step."""
    before = [value for at, value in trained if at <= step]
    after = [value for at, value in trained if at > step]
    if not before or not after or after[-1] >= before[-1]:
        return ""
    return f" while that of the training fell from {before[-1]:.4g} to {after[-1]:.4g}"
