"""A process that trains trials of a sweep: `python -m estimax.cli.sweep_worker`.

`sweep.py` starts it. Every line of standard input is a trial; answers go to
standard output, one JSON object per line:

    {"done": {"metric": 0.71, "step": 400, "state": "done", "metrics": {…}, …}}
    {"failed": {"error": "…"}}

The values of the metric so far are in `evals.json` of the trial's folder, where other
trials read them to decide whether to stop early. The process ends at once when standard
input is closed, so also if the sweep is killed; checkpoints are written so that a trial
continues where it was.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from estimax import config
from estimax.cli.console import with_exporter
from estimax.config.build import Built, build, evaluation_name
from estimax.config.saved import claim_model_dir
from estimax.config.sweep import SweepPlan, sweep_plan, sweep_section
from estimax.core.errors import EstimaxError
from estimax.estimator import train_and_evaluate
from estimax.hooks import make_early_stopping_hook
from estimax.storage import atomic
from estimax.storage.worker_pool import ParentPipe

EVALS = "evals.json"
_NEVER = 10.0**9  # seconds; the hook is called after evaluations of this process


class TrialRecord:
    """An exporter that exports nothing: it records the metric of each evaluation."""

    name = "record/of/sweep"  # no name of an export has a slash

    def __init__(self, folder: Path, plan: SweepPlan) -> None:
        self._folder = folder
        self._plan = plan
        self.history = read_history(folder)
        self.metrics: dict[str, float] = {}  # of the last evaluation
        self.is_pruned = False

    def export(
        self,
        estimator: object,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> None:
        """Add an evaluation to the record and write it."""
        step = int(eval_result["global_step"])
        value = float(eval_result[self._plan.metric])
        # A trial that was killed evaluates its last checkpoint again.
        kept = [(at, old) for at, old in self.history if at < step]
        self.history = [*kept, (step, value)]
        numbers = {k: v for k, v in eval_result.items() if isinstance(v, int | float)}
        self.metrics = numbers
        atomic.write_json(self._folder / EVALS, self.history)

    def should_stop(self) -> bool:
        """Return whether the trial is worse than the median of the others."""
        others = [
            read_history(path.parent)
            for path in sorted(self._folder.parent.glob(f"*/{EVALS}"))
            if path.parent != self._folder
        ]
        self.is_pruned = self._plan.should_prune(self.history, others)
        return self.is_pruned


def read_history(folder: Path) -> list[tuple[int, float]]:
    """Return step and metric of the evaluations of a trial; none if there are none."""
    try:
        saved = json.loads((folder / EVALS).read_bytes())
    except FileNotFoundError:
        return []
    return [(int(step), float(value)) for step, value in saved]


def run_trial(task: Mapping[str, Any]) -> dict[str, Any]:
    """Train one trial to its end; return what is known about it.

    Raises:
      EstimaxError: The trial cannot be trained.
    """
    started = time.monotonic()
    folder = Path(task["folder"])
    loaded = config.load(task["path"], task["overrides"], model_dir=str(folder))
    section = sweep_section(loaded.run, task["section"])
    plan = sweep_plan(loaded.run, section)
    claim_model_dir(loaded)
    built = build(loaded)
    record = TrialRecord(folder, plan)
    _train(built, record)
    values = [value for _, value in record.history]
    best = plan.best(values)
    step = next((at for at, value in record.history if value == best), 0)
    return {
        "state": "pruned" if record.is_pruned else "done",
        "metric": best,
        "step": step,
        "steps": record.history[-1][0] if record.history else 0,
        "seconds": round(time.monotonic() - started, 1),
        "metrics": record.metrics,
    }


def _train(built: Built, record: TrialRecord) -> None:
    stop = make_early_stopping_hook(
        built.estimator,
        record.should_stop,
        run_every_secs=_NEVER,
        # Of the first evaluation, to which the record belongs; one of several is named.
        eval_dir=built.estimator.eval_dir(evaluation_name(built.run)),
    )
    spec = with_exporter(built.eval_spec(), record)
    train_and_evaluate(built.estimator, built.train_spec([stop]), spec)


def main() -> None:
    """Train the trials on standard input until it is closed."""
    pipe = ParentPipe()
    logging.getLogger("estimax").setLevel(logging.ERROR)
    while True:
        task = pipe.receive()
        try:
            answer = {"done": run_trial(task)}
        except EstimaxError as error:
            answer = {"failed": {"error": str(error)}}
        except Exception as error:
            answer = {"failed": {"error": f"{type(error).__name__}: {error}"}}
        pipe.send(answer)


if __name__ == "__main__":
    main()
