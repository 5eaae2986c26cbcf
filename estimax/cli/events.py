"""Events as JSON lines on standard output, for `--json`.

    with output(quiet=False, as_json=True):
        emit("step", step=100, loss=0.31)     # {"event": "step", "step": 100, …}

With `--json`, standard output has nothing but events; remarks for people are left out,
and errors go to standard error as always. With `--quiet`, only results and errors are
printed.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from estimax.cli.console import notes

_enabled = False


@contextmanager
def output(*, quiet: bool, as_json: bool) -> Iterator[None]:
    """Print only what the options ask for, within the block."""
    global _enabled
    before = _enabled, notes.quiet
    _enabled, notes.quiet = as_json, quiet or as_json
    try:
        yield
    finally:
        _enabled, notes.quiet = before


def emit(event: str, **values: Any) -> None:
    """Print an event as one line of JSON, if the command was started with --json."""
    if _enabled:
        print(json.dumps({"event": event, **_plain(values)}), flush=True)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; numbers that JSON lacks become null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # arrays and scalars of NumPy
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return os.fspath(value) if isinstance(value, os.PathLike) else value


class EvaluationEvents:
    """An exporter that exports nothing, and emits the metrics of each evaluation."""

    name = "events/of/json"  # no name of an export has a slash

    def export(
        self,
        estimator: object,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> None:
        """Emit the event `evaluation`."""
        metrics = {k: v for k, v in eval_result.items() if k != "global_step"}
        emit("evaluation", step=eval_result["global_step"], metrics=metrics)


def with_exporter(spec: Any, exporter: object) -> Any:
    """Return an `EvalSpec`, or several, with one more exporter for the first."""
    first, *others = spec if isinstance(spec, list) else [spec]
    exporters = [*first.every_exporter, exporter]
    first = dataclasses.replace(first, exporters=exporters)
    return [first, *others] if others else first
