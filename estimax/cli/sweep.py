"""`estimax sweep`: train a run with different values, and show which are best.

    FOLDER/sweep.json            what is tried; compared when the sweep is continued
    FOLDER/trials/0003/          the model directory of a trial
    FOLDER/trials/0003.values.json   its values, written before it starts
    FOLDER/trials/0003.json      its result, written once it has ended
    FOLDER/sweep.svg             the metric over each value

A trial whose result is there is never trained again. One that was interrupted continues
from its last checkpoint.
"""

from __future__ import annotations

import dataclasses
import html
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from estimax import config
from estimax.cli.console import emit, note, number, output, results
from estimax.config.checks import sources_of
from estimax.config.data_report import check_files
from estimax.config.dump import dump_flow, to_plain
from estimax.config.nodes import Budget, MapNode, Problems, ValueOrigin, plain
from estimax.config.parse import parse_value
from estimax.config.sweep import (
    SweepPlan,
    TrialValues,
    extremes,
    overrides,
    sweep_plan,
    sweep_section,
)
from estimax.core.errors import ConfigError
from estimax.storage import atomic, locks
from estimax.storage.worker_pool import WorkerEnd, WorkerPool

_SWEEPING = locks.Activity(
    "sweep.lock",
    "sweeping",
    "Two sweeps in one folder would train the same trials.",
    "use another --output",
)
_WORKER = "estimax.cli.sweep_worker"
Result = dict[str, Any]


def sweep(
    path: Path,
    given: Sequence[str],
    changes: Mapping[str, Any],
    folder: Path | None,
    *,
    quiet: bool = False,
    as_json: bool = False,
) -> None:
    """Train the trials that have no result yet, and print a table of all.

    Args:
      path: The run file.
      given: Values of --set, for all trials.
      changes: Options that replace values of the section `sweep`; `space` is added.
      folder: The folder of the sweep; by default beside the model directory.
      quiet: Print only the table and errors.
      as_json: Print events instead of the table.
    """
    with output(quiet=quiet, as_json=as_json):
        _sweep(path, given, changes, folder, as_json=as_json)


def _sweep(
    path: Path,
    given: Sequence[str],
    changes: Mapping[str, Any],
    folder: Path | None,
    *,
    as_json: bool,
) -> None:
    loaded = config.load(path, given)
    section = sweep_section(loaded.run, changes)
    plan = sweep_plan(loaded.run, section)
    _check_values(path, given, plan)
    suggestions = TrialValues(plan)
    check_files(loaded.run, sources_of(loaded.run))
    folder = folder or Path(f"{loaded.run.run.model_dir.rstrip('/')}-sweep")
    with locks.hold(folder, "sweep", _SWEEPING):
        _claim(folder, loaded, plan)
        task = {
            "path": str(path),
            "section": to_plain(section),
            # A trial that was interrupted continues, and only the best is exported.
            "overrides": [*given, "run.on_existing=resume", "export=[]"],
        }
        try:
            _run(folder / "trials", plan, suggestions, section.processes, task)
        except KeyboardInterrupt:
            note("interrupted; the same command continues with the other trials")
            raise
    _report(folder, plan, path, given, as_json=as_json)


def space_options(texts: Sequence[str]) -> dict[str, Any]:
    """Return the values of --space by address.

    Raises:
      ConfigError: A text is not PATH=VALUES, with a mapping of YAML as VALUES.
    """
    found = {}
    for text in texts:
        address, equals, values = text.partition("=")
        problems = Problems(f"--space {address}")
        origin = ValueOrigin(f"--space {address}")
        node = parse_value(values.strip(), origin, address, problems, Budget())
        problems.raise_if_any()
        if not equals or not isinstance(node, MapNode):
            raise ConfigError(
                f"--space: expected PATH={{choice: [VALUE, …]}} or PATH={{uniform: "
                f"[LOW, HIGH]}}, got {text!r}."
            )
        found[address.strip()] = plain(node)
    return found


def _check_values(path: Path, given: Sequence[str], plan: SweepPlan) -> None:
    """Load the run with the extreme values of each address, to find mistakes now."""
    for address, space in plan.space.items():
        for value in extremes(space):
            config.load(path, [*given, *overrides({address: value})])


def _claim(folder: Path, loaded: config.LoadedRun, plan: SweepPlan) -> None:
    """Save what the sweep tries; raise if the folder holds another sweep."""
    run = to_plain(dataclasses.replace(loaded.run, sweep=None))
    about = {
        "method": plan.method,
        "metric": plan.metric,
        "mode": plan.mode,
        "space": to_plain(plan.space),
        "run": run,
    }
    about = json.loads(json.dumps(about))
    saved = folder / "sweep.json"
    if saved.is_file():
        before = json.loads(saved.read_bytes())
        changed = [key for key in about if before.get(key) != about[key]]
        if changed:
            raise ConfigError(
                f"{folder} holds a sweep with another {' and '.join(changed)}. Undo "
                "the change to continue it, or use another --output."
            )
    atomic.write_json(saved, about)


def _run(
    folder: Path,
    plan: SweepPlan,
    suggestions: TrialValues,
    processes: int,
    task: Mapping[str, Any],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    todo = []
    for trial in range(plan.trials):
        result = _read(folder / f"{trial:04}.json")
        if result is None:
            todo.append(trial)
        else:
            suggestions.learn(result["values"], result.get("metric"))
    done = plan.trials - len(todo)
    emit(
        "start",
        output=str(folder.parent),
        method=plan.method,
        metric=plan.metric,
        mode=plan.mode,
        trials=plan.trials,
        complete=done,
    )
    if done:
        note(f"{done} of {plan.trials} trials were complete before")
    processes = min(processes, max(1, len(todo)))
    trained: dict[int, int] = {}  # number of a process -> its trial
    # A custom model may be a module of the working directory.
    with WorkerPool(_WORKER, processes, finds_local_modules=True) as pool:
        while todo or trained:
            for number in range(pool.size):
                if not todo or number in trained:
                    continue
                trial = trained[number] = todo.pop(0)
                values = _values(folder, trial, suggestions)
                texts = [*task["overrides"], *overrides(values)]
                model_dir = str(folder / f"{trial:04}")
                message = {**task, "overrides": texts, "folder": model_dir}
                pool.send(number, message)
            number, answer = pool.receive()
            if number not in trained:
                continue  # a process without a trial has ended; a new one will start
            trial = trained.pop(number)
            kind, answer = _outcome(answer)
            values = _values(folder, trial, suggestions)
            result = {"trial": trial, "values": values, "state": kind, **answer}
            atomic.write_json(folder / f"{trial:04}.json", _plain(result))
            suggestions.learn(values, result.get("metric"))
            done += 1
            _tell(result, plan, done)


def _outcome(answer: dict[str, Any] | WorkerEnd) -> tuple[str, dict[str, Any]]:
    """Return "done" or "failed", and what is known about the trial."""
    if isinstance(answer, WorkerEnd):
        how = "ended" if answer.signal is None else f"was killed by {answer.signal}"
        text = f"the process of the trial {how} ({answer.status})"
        return "failed", {"error": text}
    ((kind, value),) = answer.items()
    return kind, value


def _values(folder: Path, trial: int, suggestions: TrialValues) -> dict[str, Any]:
    """Return the values of a trial: those it was started with, or new ones."""
    path = folder / f"{trial:04}.values.json"
    saved = _read(path)
    if saved is None:
        saved = suggestions.suggest(trial)
        atomic.write_json(path, saved)
    return saved


def _read(path: Path) -> dict[str, Any] | None:
    try:
        saved = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ConfigError(
            f"{path}: expected what the sweep saved, found a damaged file ({error}). "
            "Remove it to run the trial again."
        ) from None
    return dict(saved)


def _plain(result: Result) -> Result:
    """Return a result as JSON has it: NaN becomes null."""
    value = result.get("metric")
    is_nan = isinstance(value, float) and math.isnan(value)
    return {**result, "metric": None} if is_nan else result


def _tell(result: Result, plan: SweepPlan, done: int) -> None:
    emit("trial", complete=done, **_plain(result))
    shown = ", ".join(f"{k} = {dump_flow(v)}" for k, v in result["values"].items())
    if result["state"] == "failed":
        first = str(result["error"]).partition("\n")[0]
        note(f"[{done}/{plan.trials}] trial {result['trial']} failed: {first}", "red")
        return
    value = f"{plan.metric} {number(result['metric'])}"
    pruned = f", stopped at step {result['steps']:,}"
    end = pruned if result["state"] == "pruned" else ""
    note(f"[{done}/{plan.trials}] trial {result['trial']}: {value}{end}  ({shown})")


def _report(
    folder: Path,
    plan: SweepPlan,
    path: Path,
    given: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Print a table of all trials, best first, and write the plot."""
    found = [_read(folder / "trials" / f"{n:04}.json") for n in range(plan.trials)]
    trials = [result for result in found if result is not None]
    sign = -1 if plan.mode == "max" else 1
    good = [t for t in trials if t.get("metric") is not None]
    good.sort(key=lambda t: (sign * t["metric"], t["trial"]))
    bad = [t for t in trials if t.get("metric") is None]
    if not as_json:
        _print_table(plan, [*good, *bad])
    if not good:
        raise ConfigError(f"sweep: every trial failed; the first: {bad[0]['error']}")
    picture = folder / "sweep.svg"
    atomic.write_bytes(picture, plot(plan, good).encode())
    emit("end", best=good[0], plot=str(picture), failed=len(bad))
    note(f"plot: {picture}")
    best = good[0]
    texts = [*given, *overrides(best["values"])]
    options = " ".join(f"--set {shlex.quote(text)}" for text in texts)
    note("to train the best one with its exports:")
    note(f"  estimax train {shlex.quote(str(path))} {options}", "cyan")
    note("to export its last checkpoint:")
    note(f"  estimax export {folder / 'trials' / format(best['trial'], '04')}", "cyan")


def _print_table(plan: SweepPlan, trials: Sequence[Result]) -> None:
    title = f"{len(trials)} trials by {plan.metric}, best first"
    table = Table(title=title, title_justify="left")
    for heading in ("trial", "state", plan.metric, "step", *plan.space):
        table.add_column(heading, overflow="fold")
    for t in trials:
        metric = "" if t.get("metric") is None else number(t["metric"])
        values = [dump_flow(t["values"][key]) for key in plan.space]
        step = str(t.get("step", ""))
        table.add_row(str(t["trial"]), t["state"], metric, step, *values)
    results.print(table)


_WIDTH, _HEIGHT, _MARGIN = 300, 220, 50
_STYLE = "font-family:sans-serif;font-size:11px;fill:#333"


def plot(plan: SweepPlan, trials: Sequence[Mapping[str, Any]]) -> str:
    """Return an SVG with the metric of the trials over each value.

    Args:
      plan: The sweep, for the names and scales of the axes.
      trials: Trials with a metric, the best first; the best one is drawn in red.
    """
    metrics = [float(trial["metric"]) for trial in trials]
    panels = [_order_panel(plan, trials, metrics)]
    panels += [_panel(plan, key, trials, metrics) for key in plan.space]
    width = len(panels) * (_WIDTH + _MARGIN) + _MARGIN
    height = _HEIGHT + 2 * _MARGIN
    body = "".join(
        f'<g transform="translate({_MARGIN + i * (_WIDTH + _MARGIN)},{_MARGIN})">'
        f"{panel}</g>"
        for i, panel in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'style="background:white">{body}</svg>\n'
    )


def _order_panel(
    plan: SweepPlan, trials: Sequence[Mapping[str, Any]], metrics: Sequence[float]
) -> str:
    places = [float(trial["trial"]) for trial in trials]
    ticks = [(min(places), f"{min(places):g}"), (max(places), f"{max(places):g}")]
    return _draw_plot("trial", plan.metric, places, metrics, ticks)


def _panel(
    plan: SweepPlan,
    key: str,
    trials: Sequence[Mapping[str, Any]],
    metrics: Sequence[float],
) -> str:
    space = plan.space[key]
    values = [trial["values"][key] for trial in trials]
    if space.choice is not None:
        choices = [dump_flow(_convert_to_lists(choice)) for choice in space.choice]
        places = [float(choices.index(dump_flow(value))) for value in values]
        ticks = [(float(i), choice) for i, choice in enumerate(choices)]
        return _draw_plot(key, plan.metric, places, metrics, ticks)
    limits = space.uniform or space.log_uniform or space.int_uniform or ()
    if space.log_uniform is not None:
        places = [math.log(value) for value in values]
        ticks = [(math.log(limit), f"{limit:g}") for limit in limits]
    else:
        places = [float(value) for value in values]
        ticks = [(float(limit), f"{limit:g}") for limit in limits]
    return _draw_plot(key, plan.metric, places, metrics, ticks)


def _convert_to_lists(value: Any) -> Any:
    return (
        [_convert_to_lists(item) for item in value]
        if isinstance(value, tuple)
        else value
    )


def _draw_plot(
    title: str,
    metric: str,
    places: Sequence[float],
    metrics: Sequence[float],
    ticks: Sequence[tuple[float, str]],
) -> str:
    left = min([*places, *(at for at, _ in ticks)])
    right = max([*places, *(at for at, _ in ticks)])
    low, high = min(metrics), max(metrics)

    def x(place: float) -> float:
        return (place - left) / ((right - left) or 1.0) * _WIDTH

    def y(value: float) -> float:
        return _HEIGHT - (value - low) / ((high - low) or 1.0) * _HEIGHT

    parts = [
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#ccc"/>',
        _text(0, -10, f"{metric} by {title}"),
        _text(2, 12, f"{high:.5g}"),
        _text(2, _HEIGHT - 4, f"{low:.5g}"),
    ]
    parts += [_text(x(at), _HEIGHT + 16, text, "middle") for at, text in ticks[:8]]
    points = [(x(p), y(m)) for p, m in zip(places, metrics, strict=True)]
    # The best is the first; it is drawn last, above the others.
    for i, (across, down) in reversed(list(enumerate(points))):
        colour, size = ("#c00", 5) if i == 0 else ("#369", 3)
        parts.append(
            f'<circle cx="{across:.1f}" cy="{down:.1f}" r="{size}" fill="{colour}"/>'
        )
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    short = text if len(text) <= 40 else f"{text[:39]}…"
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" style="{_STYLE}">'
        f"{html.escape(short)}</text>"
    )
