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
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from estimax import config
from estimax.cli.console import note, number, results
from estimax.cli.events import emit, output
from estimax.cli.sweep_ask import Asking, ask_for
from estimax.cli.sweep_plot import plot
from estimax.cli.sweep_pool import TrialPool
from estimax.config.checks import sources_of
from estimax.config.data_report import check_files
from estimax.config.dump import dump_flow, to_plain
from estimax.config.nodes import Budget, MapNode, Problems, ValueOrigin, plain
from estimax.config.parse import parse_value
from estimax.config.schema.run import SweepSection
from estimax.config.sweep import (
    SweepPlan,
    extremes,
    overrides,
    sweep_plan,
    sweep_section,
)
from estimax.core.errors import ConfigError
from estimax.storage import atomic, locks

_SWEEPING = locks.Activity(
    "sweep.lock",
    "sweeping",
    "Two sweeps in one folder would train the same trials.",
    "use another --output",
)
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
            _run(folder / "trials", plan, section, task)
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
    folder: Path, plan: SweepPlan, section: SweepSection, task: Mapping[str, Any]
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    asking = ask_for(plan)
    todo = []
    for trial in range(plan.trials):
        result = _read(folder / f"{trial:04}.json")
        if result is None:
            todo.append(trial)
        else:
            asking.learn(trial, result["values"], result.get("metric"))
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
    with TrialPool(min(section.processes, max(1, len(todo)))) as pool:
        while todo or pool.is_busy:
            while todo and pool.has_room:
                trial = todo.pop(0)
                values = _values(folder, trial, asking)
                texts = [*task["overrides"], *overrides(values)]
                model_dir = str(folder / f"{trial:04}")
                pool.start(trial, {**task, "overrides": texts, "folder": model_dir})
            trial, kind, answer = pool.receive()
            values = _values(folder, trial, asking)
            result = {"trial": trial, "values": values, "state": kind, **answer}
            atomic.write_json(folder / f"{trial:04}.json", _plain(result))
            asking.learn(trial, values, result.get("metric"))
            done += 1
            _tell(result, plan, done)


def _values(folder: Path, trial: int, asking: Asking) -> dict[str, Any]:
    """Return the values of a trial: those it was started with, or new ones."""
    path = folder / f"{trial:04}.values.json"
    saved = _read(path)
    if saved is None:
        saved = asking.ask(trial)
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
