"""Evaluations that follow a training: after checkpoints, every few steps, or elsewhere.

An `Evaluator` holds one EvalSpec and its last results. It listens to saves in the
process that trains; `evaluate_continuously` watches the folder from another one.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from estimax import checkpoints, summary
from estimax import hooks as stock
from estimax.core.errors import CheckpointError, MissingFileError
from estimax.estimator.estimator import Estimator
from estimax.estimator.specs import EvalSpec
from estimax.hooks import Hook, RunContext

_log = logging.getLogger("estimax")
_WARN_EVERY_SECONDS = 600.0

Results = tuple[dict[str, Any], list[str | None]]


class Evaluator(stock.CheckpointSaverListener):
    """Evaluates a checkpoint when it has been saved, as often as the spec allows."""

    def __init__(
        self,
        estimator: Estimator,
        spec: EvalSpec,
        max_steps: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._estimator = estimator
        self.spec = spec
        self._max_steps = max_steps
        self._clock = clock
        self._first_save = True
        self._began: float | None = None
        self._step: int | None = None
        self._was_final = False
        self.results: Results = ({}, [])

    def after_save(self, step: int, path: str) -> None:
        """Evaluate, unless this is the starting checkpoint or it is too soon."""
        if self.spec.every_steps:
            return
        if self._first_save:
            self._first_save = False
            if not self.is_owed(step):
                return
        now = self._clock()
        if self._began is None or now - self._began >= self.spec.throttle_secs:
            self._began = now
            self.evaluate(path, is_final=self.is_last(step))

    def finish(self) -> Results:
        """Evaluate the last checkpoint, unless that is done; return the results.

        If it was done before anybody knew that it was the last, only exporters are
        told now.
        """
        path = self._estimator.latest_checkpoint()
        if path is not None and self._step != checkpoints.step_of(path):
            self.evaluate(path, is_final=True)
        elif path is not None and not self._was_final:
            metrics, before = self.results
            self._take(metrics, is_final=True)
            now = self.results[1]
            exports = [b if a is None else a for a, b in zip(now, before, strict=True)]
            self.results = (metrics, exports)
        return self.results

    def is_owed(self, step: int) -> bool:
        """Whether a run was killed between a save and its evaluation."""
        if step == 0:
            return False
        written = summary.read_scalars(self._estimator.eval_dir(self.spec.name))
        return step not in dict(written.get("loss", ()))

    def is_last(self, step: int) -> bool:
        """Whether training has come to its end with this step."""
        return self._max_steps is not None and step >= self._max_steps

    def evaluate(self, path: str, *, is_final: bool) -> None:
        """Evaluate a checkpoint and hand the results to the exporters.

        One that is damaged or already gone is passed over for the newest sound one.
        """
        spec = self.spec
        run: dict[str, Any] = {"steps": spec.steps, "name": spec.name}
        run |= {"input_fn": spec.input_fn, "hooks": spec.hooks}
        try:
            metrics = self._estimator.evaluate(**run, checkpoint_path=path)
        except (CheckpointError, MissingFileError) as error:
            _log.warning("cannot evaluate %s: %s", path, error)
            metrics = self._estimator.evaluate(**run)
        self._take(metrics, is_final=is_final)

    def evaluate_live(self, context: RunContext, saver: checkpoints.Saver) -> None:
        """Evaluate the training under way; exporters get a checkpoint of it."""
        spec, state, step = self.spec, context.state, context.step
        assert state is not None, "a training has a state"
        if spec.every_exporter:
            arrays = checkpoints.snapshot(checkpoints.flatten_state(state))
            bad = checkpoints.first_nan(arrays)
            if bad is not None:
                _log.warning("no evaluation at step %d: %s holds NaN", step, bad)
                return
            saver.save(step, arrays, {"input": context.input_state})
            saver.wait()
        metrics = self._estimator.evaluate_state(
            state, spec.input_fn, spec.steps, spec.hooks, spec.name
        )
        self._take(metrics, is_final=self.is_last(step))

    def _take(self, metrics: dict[str, Any], *, is_final: bool) -> None:
        self._step = int(metrics["global_step"])
        self._was_final = is_final
        model_dir = self._estimator.model_dir
        path = str(checkpoints.path_of(model_dir, self._step))
        exports = []
        for exporter in self.spec.every_exporter:
            folder = os.path.join(model_dir, "export", exporter.name)
            try:
                export = exporter.export(
                    self._estimator, folder, path, metrics, is_final
                )
            except MissingFileError:
                if os.path.exists(path):
                    raise
                # The training elsewhere is ahead of us; its next checkpoint will do.
                _log.warning(
                    "%r exports nothing of step %d: its checkpoint is gone. Save less "
                    "often, or raise keep_checkpoint_max",
                    exporter.name,
                    self._step,
                )
                export = None
            exports.append(export)
        self.results = (metrics, exports)


class EveryFewSteps(Hook):
    """Evaluates at every multiple of `spec.every_steps`, whatever is saved when."""

    def __init__(self, evaluator: Evaluator, config: Any) -> None:
        self._evaluator = evaluator
        self._every = int(evaluator.spec.every_steps or 1)
        self._config = config
        self._saver: checkpoints.Saver | None = None

    def begin(self, context: RunContext) -> None:
        """Be ready to save what is to be exported."""
        self._saver = checkpoints.Saver(
            self._config.model_dir,
            keep_max=self._config.keep_checkpoint_max,
            keep_every_n_hours=self._config.keep_checkpoint_every_n_hours,
        )

    def after_create_session(self, context: RunContext) -> None:
        """Evaluate what a killed run has not."""
        assert self._saver is not None, "a hook must begin first"
        if context.step % self._every == 0 and self._evaluator.is_owed(context.step):
            self._evaluator.evaluate_live(context, self._saver)

    def after_run(self, context: RunContext, values: Any) -> None:
        """Evaluate if it is time."""
        assert self._saver is not None, "a hook must begin before it runs"
        if context.step % self._every == 0:
            self._evaluator.evaluate_live(context, self._saver)

    def end(self, context: RunContext) -> None:
        """Let go of the saver's thread."""
        assert self._saver is not None, "end without begin"
        self._saver.close()

    def next_step(self, step: int) -> int:
        """The next multiple."""
        return (step // self._every + 1) * self._every


def evaluate_continuously(
    estimator: Estimator,
    evaluators: Sequence[Evaluator],
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Evaluate checkpoints that another process saves, until its training has ended."""
    specs = [evaluator.spec for evaluator in evaluators]
    throttle = min(spec.throttle_secs for spec in specs)
    sleep(min(spec.start_delay_secs for spec in specs))
    seen: str | None = None
    warned: float | None = None
    while True:
        began = clock()
        # Asked before the folder is listed: no checkpoint can follow the mark.
        end = stock.finished(estimator.model_dir)
        path = estimator.latest_checkpoint()
        if path is None and (warned is None or began - warned >= _WARN_EVERY_SECONDS):
            _log.warning("no checkpoint in %s yet", estimator.model_dir)
            warned = began
        if path is not None:
            step = checkpoints.step_of(path)
            is_last = evaluators[0].is_last(step) or end is not None
            if path != seen:
                for evaluator in evaluators:
                    evaluator.evaluate(path, is_final=is_last)
                seen = path
            if is_last:
                return
        sleep(max(0.0, throttle - (clock() - began)))
