"""What `estimax train` prints at the end: metrics, the best step, and a verdict.

    print_results(built, metrics, process, as_json=False)

The metrics are those of the step that was exported as the best, and the last table is
that of the test rows. Beside them stand those of a constant answer and, if the run has
`run.compare`, those of a linear model and of LightGBM.
"""

from __future__ import annotations

import itertools
import math
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from estimax.cli.best_checkpoint import BestCheckpoint, best_checkpoint
from estimax.cli.console import emit, metrics_table, note, notes, results
from estimax.config import Run, references
from estimax.config.saved import config_dir
from estimax.config.verdict import Remark, label_units, perfect_metric, verdict_of
from estimax.storage import atomic

if TYPE_CHECKING:  # loads jax
    from estimax.config.build import Built

Metrics = Mapping[str, Any]
RESULTS_FILE = "results.json"  # beside the saved config
_MOST_SECS = 15.0  # to wait for the other models after the training has ended


@dataclass(frozen=True)
class _Evaluated:
    """The metrics of a source, and those of other answers on the same rows."""

    metrics: dict[str, Any]
    baseline: dict[str, float]


def print_results(
    built: Built,
    evaluations: Mapping[str, Metrics],
    comparison: subprocess.Popen[bytes] | None,
    *,
    as_json: bool,
) -> None:
    """Print the metrics of a run that has ended, those of the test rows last.

    Args:
      built: The run.
      evaluations: The metrics of the last evaluations by name, that of `eval` first.
      comparison: The process that trains the other models, if there is one.
      as_json: Whether standard output has events only.
    """
    run = built.run
    if (run.eval is None or not evaluations) and run.test is None:
        emit("end", metrics={})
        return
    best = best_checkpoint(run)
    found: dict[str, _Evaluated] = {}
    for i, (name, metrics) in enumerate(evaluations.items()):
        if i or run.eval is None:
            found[name] = _Evaluated(dict(metrics), {})
            continue
        shown = dict(metrics)
        if best is not None:
            shown = {**best.metrics, "global_step": best.step}
        found[name] = _with_label_units(shown, _constant(built, run.eval))
    if run.test is not None:
        found[run.test.source] = _test(built, run.test, best)
    others = _others(run, comparison)
    _emit_end(built, found, best, others)
    *_, last = found
    remarks = verdict_of(run, found[last].metrics, found[last].baseline, others)
    _save(run, last, found[last], remarks)
    if as_json:
        return
    for name, one in found.items():
        beside = others if name == last else {}
        table = metrics_table(
            one.metrics, f"{run.name} on {name}", one.baseline, beside
        )
        results.print(table)
    _print_step(built, best)
    for remark in remarks:
        note(f"{remark.title}: {remark.text}", remark.style)
    perfect = perfect_metric(found[last].metrics, found[last].baseline)
    if perfect is not None:
        note(f"{perfect} on {last}: is the label among the features?", "yellow")


def _others(
    run: Run, comparison: subprocess.Popen[bytes] | None
) -> dict[str, dict[str, float]]:
    """Return the metrics of other models, if they are ready in time."""
    if not run.run.compare:
        return {}
    with notes.status("comparing with a linear model and LightGBM"):
        in_time = references.finish(comparison, _MOST_SECS)
    found = references.read_references(run)
    if not in_time:
        note("the comparison with other models was not ready in time", "dim")
    elif not found and references.can_compare(run):
        again = f"python -m estimax.config.references {run.run.model_dir}"
        note(f"the comparison with other models failed; `{again}` says why", "dim")
    return found


def _save(run: Run, source: str, last: _Evaluated, remarks: Sequence[Remark]) -> None:
    """Save what the report shows first."""
    step = last.metrics.get("global_step")
    saved = {
        "source": source,
        "step": None if step is None else int(step),
        "metrics": _plain_numbers(last.metrics),
        "baseline": last.baseline,
        "remarks": [[remark.title, remark.text] for remark in remarks],
    }
    path = config_dir(run) / RESULTS_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_json(path, saved)


def _plain_numbers(metrics: Metrics) -> dict[str, float]:
    numbers = {k: v for k, v in metrics.items() if getattr(v, "ndim", 0) == 0}
    return {k: float(v) for k, v in numbers.items() if math.isfinite(float(v))}


def _test(built: Built, section: Any, best: BestCheckpoint | None) -> _Evaluated:
    checkpoint = None if best is None else best.checkpoint
    data = built.input_fn(section.source)
    metrics = built.estimator.evaluate(
        data, steps=section.steps, checkpoint_path=checkpoint, name=section.source
    )
    found = _with_label_units(metrics, _constant(built, section))
    if "rmse" in found.metrics:
        errors = _absolute_errors(built, section, checkpoint)
        found = _Evaluated(
            {**found.metrics, "mae": errors[0]}, {**found.baseline, "mae": errors[1]}
        )
    return found


def _absolute_errors(
    built: Built, section: Any, checkpoint: str | None
) -> tuple[float, float]:
    """Return the mean absolute error of a model of numbers, and of the mean label."""
    import numpy as np

    data = built.input_fn(section.source)
    batches = itertools.islice(iter(data()), section.steps)
    labels = np.concatenate([np.asarray(y, np.float64).reshape(-1) for _, y in batches])
    found = built.estimator.predict(
        data, checkpoint_path=checkpoint, yield_single_examples=False
    )
    some = itertools.islice(found, section.steps)
    predicted = np.concatenate([np.ravel(batch["predictions"]) for batch in some])
    predicted = predicted[: len(labels)]
    constant = np.abs(labels - labels.mean()).mean()
    return float(np.abs(labels - predicted).mean()), float(constant)


def _constant(built: Built, section: Any) -> dict[str, float]:
    from estimax.config.baseline import baseline

    return dict(baseline(built.run, built.input_fn(section.source), section.steps))


def _with_label_units(metrics: Metrics, constant: dict[str, float]) -> _Evaluated:
    more = label_units(metrics, constant)
    return _Evaluated({**metrics, **more.of_model}, {**constant, **more.of_constant})


def _emit_end(
    built: Built,
    found: Mapping[str, _Evaluated],
    best: BestCheckpoint | None,
    compared: Mapping[str, Any],
) -> None:
    run = built.run
    names = list(found)
    test = found[run.test.source] if run.test is not None else None
    others = names[1 : None if test is None else -1]
    first = found[names[0]]
    more: dict[str, Any] = {}
    if others:
        more["also"] = {name: found[name].metrics for name in others}
    if test is not None:
        more["test"] = {"metrics": test.metrics, "baseline": test.baseline}
    if compared:
        more["compared"] = compared
    if best is not None:
        more["best_step"] = best.step
    emit("end", metrics=first.metrics, baseline=first.baseline, **more)


def _print_step(built: Built, best: BestCheckpoint | None) -> None:
    """Say which step the metrics, reports and exports are of."""
    if best is None:
        return
    run = built.run
    last = built.estimator.latest_checkpoint()
    from estimax import checkpoints

    end = best.step if last is None else checkpoints.step_of(last)
    value = best.metrics.get(best.metric)
    on = "" if run.eval is None else f" on {run.eval.source}"
    shown = "" if value is None else f" ({best.metric} {float(value):.6g}{on})"
    note(f"best step: {best.step:,} of {end:,}{shown}")
