"""`estimax diff` and `estimax compare`: trained runs side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from estimax.cli.console import note, number, results, say
from estimax.cli.past_runs import (
    ABSENT,
    PastRun,
    differing,
    expand_runs,
    read_run,
    values_to_compare,
)
from estimax.config.checks import better
from estimax.config.dump import dump_flow
from estimax.core.errors import ConfigError, did_you_mean

_MOST_COLUMNS = 8  # of values that differ; more are only counted
_HIDDEN_METRICS = ("label/mean", "prediction/mean", "accuracy_baseline")


def diff(first: Path, second: Path, *, as_json: bool) -> None:
    """Print what differs between two runs: config, data, metrics and packages."""
    a, b = read_run(first), read_run(second)
    parts = {
        "config": _pairs(values_to_compare(a.config), values_to_compare(b.config)),
        "data": _pairs(a.data, b.data),
        "packages": _pairs(a.environment, b.environment),
    }
    metrics = {
        name: (a.metrics.get(name), b.metrics.get(name))
        for name in sorted(a.metrics.keys() | b.metrics.keys())
    }
    if as_json:
        found: dict[str, Any] = {**parts, "metrics": metrics}
        found["steps"] = (a.step, b.step)
        print(json.dumps(found, default=str))
        return
    say(f"A: {first}, step {a.step:,}")
    say(f"B: {second}, step {b.step:,}")
    for title, pairs in parts.items():
        if pairs:
            results.print(_pairs_table(title, pairs))
        else:
            say(f"{title}: no difference")
    results.print(_metrics_table(metrics))


def _pairs(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    absent = None
    return {key: (a.get(key, absent), b.get(key, absent)) for key in differing([a, b])}


def _pairs_table(title: str, pairs: Mapping[str, tuple[Any, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in ("", "A", "B"):
        table.add_column(heading, overflow="fold")
    for key, (a, b) in pairs.items():
        table.add_row(key, _format_value(a), _format_value(b))
    return table


def _metrics_table(metrics: Mapping[str, tuple[float | None, float | None]]) -> Table:
    table = Table(title="metrics of the last evaluation", title_justify="left")
    table.add_column("metric", overflow="fold")
    for heading in ("A", "B", "B - A"):
        table.add_column(heading, justify="right")
    for name, (a, b) in metrics.items():
        values = ["" if value is None else number(value) for value in (a, b)]
        gap = "" if a is None or b is None else f"{b - a:+.4g}"
        table.add_row(name, *values, gap)
    return table


def _format_value(value: Any) -> str:
    if value is None or value is ABSENT:
        return "-"
    text = dump_flow(value) if isinstance(value, list | dict) else str(value)
    return text if len(text) <= 120 else f"{text[:119]}…"


def compare(paths: Sequence[Path], metric: str | None, *, as_json: bool) -> None:
    """Print a table of runs: their metrics and the values that differ."""
    runs = [read_run(path) for path in expand_runs(paths)]
    if not runs:
        raise ConfigError("compare: the folder of the sweep holds no trials.")
    names = _metric_names(runs, metric)
    if metric is not None:
        runs = _sort_runs(runs, names[0])
    configs = [values_to_compare(run.config) for run in runs]
    keys = differing(configs)
    if as_json:
        for run, config in zip(runs, configs, strict=True):
            line = {"run": str(run.path), "step": run.step, "metrics": run.metrics}
            different = {key: config.get(key) for key in keys}
            print(json.dumps({**line, "config": different}, default=str))
        return
    table = Table(title=f"{len(runs)} runs", title_justify="left")
    table.add_column("run", overflow="fold")
    for heading in ("step", *(name.removeprefix("eval/") for name in names)):
        table.add_column(heading, justify="right")
    for key in keys[:_MOST_COLUMNS]:
        table.add_column(key, overflow="fold")
    for run, config in zip(runs, configs, strict=True):
        values = [run.metrics.get(name) for name in names]
        table.add_row(
            str(run.path),
            f"{run.step:,}",
            *("" if value is None else number(value) for value in values),
            *(_format_value(config.get(key)) for key in keys[:_MOST_COLUMNS]),
        )
    results.print(table)
    if len(keys) > _MOST_COLUMNS:
        more = ", ".join(keys[_MOST_COLUMNS : _MOST_COLUMNS + 10])
        note(f"{len(keys) - _MOST_COLUMNS} more values differ: {more} …")


def _metric_names(runs: Sequence[PastRun], wanted: str | None) -> list[str]:
    """Return the metrics to show; the wanted one first, and it alone if given."""
    known = sorted({name for run in runs for name in run.metrics})
    if wanted is None:
        hidden = tuple(f"/{name}" for name in _HIDDEN_METRICS)
        return [name for name in known if not name.endswith(hidden)]
    for name in (wanted, f"eval/{wanted}"):
        if name in known:
            return [name, *(k for k in known if k.endswith("/loss") and k != name)]
    plain = [name.removeprefix("eval/") for name in known]
    hint = did_you_mean(wanted, plain)
    raise ConfigError(f"--metric: no run has a metric {wanted!r}{hint}")


def _sort_runs(runs: Sequence[PastRun], metric: str) -> list[PastRun]:
    """Return the runs with the best first, and runs without the metric last."""
    sign = -1 if better(metric.rpartition("/")[2]) == "max" else 1
    infinite = float("inf")
    return sorted(runs, key=lambda run: sign * run.metrics.get(metric, sign * infinite))
