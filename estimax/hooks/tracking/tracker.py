"""What the hooks of trackers have in common: what is sent, when, and what may fail.

    with MLflowHook(model_dir) as tracker:
        ex.train_and_evaluate(model, ex.TrainSpec(input_fn, 1000, [tracker]), eval_spec)

Everything that talks to the tracker runs in a thread of its own, in order, so that a
slow server does not slow down training. The first call that fails is logged as one
warning, and the rest of the run is not tracked.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from estimax.core.errors import ConfigError
from estimax.formats.mlflow_models import check_installed
from estimax.hooks import summary
from estimax.hooks.hook import Hook, Requested, RunContext, Values, describe_hook
from estimax.storage import atomic

_log = logging.getLogger("estimax")
_MANIFEST = "manifest.json"  # of a bundle
_RESOLVED = "config/resolved.yaml"  # of a model directory


class TrackerHook(Hook):
    """The base of `MLflowHook` and `WandbHook`, which say how to reach the tracker."""

    package: str  # to import
    extra: str  # of estimax, which installs it
    title: str

    def __init__(
        self,
        model_dir: str | os.PathLike[str],
        params: Mapping[str, Any] | None,
        every_n_steps: int,
        wait_secs: float,
        log_model: bool = True,
    ) -> None:
        if every_n_steps < 1:
            raise ConfigError(
                f"{type(self).__name__}: every_n_steps must be at least 1, got "
                f"{every_n_steps}."
            )
        self.model_dir = Path(model_dir)
        self.every_n_steps = every_n_steps
        self.wait_secs = wait_secs
        self._log_model = log_model
        self.params = dict(params or {})
        self._is_in_block = False
        self._thread: _Thread | None = None
        self._sent: dict[str, int] = {}  # the last step of each evaluation
        self._last: tuple[float, int] | None = None  # time and step
        self._names: list[str] = []

    def __repr__(self) -> str:
        return describe_hook(
            self, str(self.model_dir), every_n_steps=self.every_n_steps
        )

    # ------------------------------------------------------- what a tracker implements
    def start(self, params: Mapping[str, str], run_id: str | None) -> str:
        """Begin a run, or continue one; return its id. Called in the thread."""
        raise NotImplementedError

    def send_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send numbers of a step. Called in the thread."""
        raise NotImplementedError

    def send_files(self, files: Mapping[str, Path], bundle: Path | None) -> None:
        """Send files by name, and the folder of a bundle. Called in the thread."""
        raise NotImplementedError

    def finish(self, status: Literal["finished", "failed"]) -> None:
        """End the run. Called in the thread."""
        raise NotImplementedError

    # ---------------------------------------------------------------------- as a block
    def __enter__(self) -> Self:
        self._is_in_block = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_in_block = False
        self.close("finished" if error is None else "failed")

    def close(self, status: Literal["finished", "failed"] = "finished") -> None:
        """Send the last evaluations, the report and the newest bundle; end the run.

        The end of a `with` block calls it, and without one the end of training.

        Args:
          status: Whether the run "finished" or "failed".
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.run(self._send_evaluations)
        thread.run(lambda: self.send_files(self._files(), self._bundle()))
        thread.run(lambda: self.finish(status))
        thread.close(self.wait_secs)

    # ----------------------------------------------------------------------- as a hook
    def begin(self, context: RunContext) -> None:
        if context.peers is not None and not context.peers.is_chief:
            return
        self._last = None
        self._names = ["loss"]
        self._names += [n for n, kind in context.logged.items() if kind == "value"]
        if self._thread is not None:
            return  # the next model of an average, or the next `train` of a block
        check_installed(type(self).__name__, self.package, self.extra)
        self._sent = dict.fromkeys(self._evaluations(), context.step)
        self._thread = _Thread(self.title)
        self._thread.run(self._start)

    def before_run(self, context: RunContext) -> Requested:
        return self._names

    def after_run(self, context: RunContext, values: Values) -> None:
        if self._thread is None:
            return
        metrics = {
            f"train/{name}": float(values[name])
            for name in self._names
            if values[name].size == 1
        }
        now, step = time.monotonic(), context.step
        if self._last is not None and now > self._last[0] and step > self._last[1]:
            since, before = self._last
            metrics["train/steps_per_sec"] = (step - before) / (now - since)
        self._last = now, step
        self._thread.run(lambda: self.send_metrics(step, metrics))
        self._thread.run(self._send_evaluations)

    def end(self, context: RunContext) -> None:
        if not self._is_in_block:
            self.close()

    def next_step(self, step: int) -> int:
        return (step // self.every_n_steps + 1) * self.every_n_steps

    # ------------------------------------------------------------------ in the thread
    def _start(self) -> None:
        path = self.model_dir / "config" / f"{self.extra}.json"
        known = json.loads(path.read_bytes())["run_id"] if path.is_file() else None
        run_id = self.start(self._parameters(), known)
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_json(path, {"run_id": run_id})

    def _send_evaluations(self) -> None:
        for name in self._evaluations():
            by_step: dict[int, dict[str, float]] = {}
            for metric, history in summary.read_scalars(self.model_dir / name).items():
                for step, value in history:
                    by_step.setdefault(step, {})[f"{name}/{metric}"] = value
            for step in sorted(by_step):
                if step > self._sent.get(name, -1):
                    self.send_metrics(step, by_step[step])
                    self._sent[name] = step

    def _evaluations(self) -> list[str]:
        """Return the names of the folders of evaluations, such as "eval"."""
        return sorted(p.name for p in self.model_dir.glob("eval*") if p.is_dir())

    def _parameters(self) -> dict[str, str]:
        """Return the values of the run file by address, and the parameters given."""
        path = self.model_dir / _RESOLVED
        found: dict[str, str] = {}
        if path.is_file():
            import yaml

            found = dict(_leaves(yaml.safe_load(path.read_text()), ""))
        return found | {name: str(value) for name, value in self.params.items()}

    def _files(self) -> dict[str, Path]:
        names = ("report.html", _RESOLVED, "config/source.yaml", "config/results.json")
        return {n: self.model_dir / n for n in names if (self.model_dir / n).is_file()}

    def _bundle(self) -> Path | None:
        """Return the newest bundle that was exported, if it is to be sent."""
        if not self._log_model:
            return None
        found = list((self.model_dir / "export").glob(f"*/*/{_MANIFEST}"))
        newest = max(found, key=lambda path: path.stat().st_mtime_ns, default=None)
        return None if newest is None else newest.parent


def _leaves(value: Any, address: str) -> Iterator[tuple[str, str]]:
    """Yield the scalars and lists of a run file with their addresses."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{address}.{key}" if address else str(key))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for i, item in enumerate(value):
            yield from _leaves(item, f"{address}.{i}")
    else:
        # The file writes "$${" for "${".
        yield address, str(value).replace("$${", "${")


class _Thread:
    """Runs functions in order; after one has failed, it runs no more.

    Args:
      title: The name of the tracker, for the warning.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._has_failed = False
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # A daemon: a process that ends must not wait for a server that is down.
        self._thread = threading.Thread(
            target=self._work, name=f"estimax-{title}", daemon=True
        )
        self._thread.start()

    def run(self, function: Callable[[], None]) -> None:
        """Run a function after those before it."""
        if not self._has_failed:
            self._queue.put(function)

    def close(self, wait_secs: float) -> None:
        """Wait until all is done, or until the time is over."""
        self._queue.put(None)
        self._thread.join(wait_secs)
        if self._thread.is_alive() and not self._has_failed:
            self._has_failed = True
            _log.warning(
                "%s: did not answer within %g seconds after the training; the run is "
                "not tracked completely.",
                self._title,
                wait_secs,
            )

    def _work(self) -> None:
        while (function := self._queue.get()) is not None:
            if self._has_failed:
                continue
            try:
                function()
            except Exception as error:  # whatever a tracker raises
                self._has_failed = True
                _log.warning(
                    "%s: the run is not tracked any more: %s: %s. The training goes "
                    "on.",
                    self._title,
                    type(error).__name__,
                    error,
                )
