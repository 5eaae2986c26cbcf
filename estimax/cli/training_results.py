"""What `estimax train` prints at the end: metrics, the best step, and a verdict.

    print_results(built, metrics, as_json=False)

The metrics are those of the step that was exported as the best, and the last table is
that of the test rows. Beside them stand those of a constant answer and, if the run has
`run.compare`, those of a linear model and of LightGBM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from estimax.cli.best_checkpoint import BestCheckpoint, best_checkpoint
from estimax.cli.console import emit, metrics_table, note, results

if TYPE_CHECKING:  # loads jax
    from estimax.config.build import Built

Metrics = Mapping[str, Any]


@dataclass(frozen=True)
class _Evaluated:
    """The metrics of a source, and those of other answers on the same rows."""

    metrics: dict[str, Any]
    baseline: dict[str, float]


def print_results(
    built: Built, evaluations: Mapping[str, Metrics], *, as_json: bool
) -> None:
    """Print the metrics of a run that has ended, those of the test rows last.

    Args:
      built: The run.
      evaluations: The metrics of the last evaluations by name, that of `eval` first.
      as_json: Whether standard output has events only.
    """
    run = built.run
    if (run.eval is None or not evaluations) and run.test is None:
        emit("end", metrics={})
        return
    best = best_checkpoint(run)
    found: dict[str, _Evaluated] = {}
    for i, (name, metrics) in enumerate(evaluations.items()):
        shown = dict(metrics)
        if i == 0 and best is not None:
            shown = {**best.metrics, "global_step": best.step}
        is_first = i == 0 and run.eval is not None
        beside = _constant(built, run.eval) if is_first else {}
        found[name] = _evaluated(
            built, shown, beside, run.eval if is_first else None, best
        )
    if run.test is not None:
        found[run.test.source] = _test(built, best)
    _emit_end(built, found, best)
    if as_json:
        return
    for name, one in found.items():
        title = f"{run.name} on {name}"
        results.print(metrics_table(one.metrics, title, one.baseline))
    _print_step(built, best)
    _print_verdict(built, found)


def _test(built: Built, best: BestCheckpoint | None) -> _Evaluated:
    section = built.run.test
    assert section is not None, "the caller has looked"
    metrics = built.estimator.evaluate(
        built.input_fn(section.source),
        steps=section.steps,
        checkpoint_path=None if best is None else best.checkpoint,
        name=section.source,
    )
    return _evaluated(built, metrics, _constant(built, section), section, best)


def _constant(built: Built, section: Any) -> dict[str, float]:
    from estimax.config.baseline import baseline

    return dict(baseline(built.run, built.input_fn(section.source), section.steps))


def _evaluated(
    built: Built,
    metrics: Metrics,
    constant: dict[str, float],
    section: Any,
    best: BestCheckpoint | None,
) -> _Evaluated:
    """Return metrics with those of numbers in the units of the label."""
    from estimax.config.verdict import label_units

    more = label_units(metrics, constant)
    return _Evaluated({**metrics, **more.of_model}, {**constant, **more.of_constant})


def _emit_end(
    built: Built, found: Mapping[str, _Evaluated], best: BestCheckpoint | None
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


def _print_verdict(built: Built, found: Mapping[str, _Evaluated]) -> None:
    from estimax.config.verdict import perfect_metric, verdict_of

    name, last = list(found.items())[-1]
    for remark in verdict_of(built.run, last.metrics, last.baseline):
        note(f"{remark.title}: {remark.text}", remark.style)
    perfect = perfect_metric(last.metrics, last.baseline)
    if perfect is not None:
        note(f"{perfect} on {name}: is the label among the features?", "yellow")
