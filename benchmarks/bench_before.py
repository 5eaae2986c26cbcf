"""This checkout beside an earlier one: has a change made estimax slower?

    git worktree add --detach ../before main
    python benchmarks/bench_before.py ../before --rounds 15

Training on the Criteo shape and a small network, reading CSV files, and parsing
TFRecords without and with hashing. Both trees run the same task with the same
libraries, each with its own copy of the racers.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import criteo
import csv_task
import machine
import parse_task
import small_dnn
from race import Race, Racer, ratios, summary, tell

HERE = Path(__file__).resolve().parent
TASKS = ("train", "small", "csv", "parse", "parse and hash")


def main() -> None:
    options = _options()
    before = Path(options.before).resolve()
    load = machine.load()
    found = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for task in options.tasks:
            tell(f"== {task}")
            found[task] = _race(task, before, Path(folder), options)
    machine.write_result(
        "before",
        {
            "before": machine.commit(before),
            "load": {"before": load, "after": machine.load()},
            "racers": {
                f"{task}, {name}": told
                for task, race in found.items()
                for name, told in race["racers"].items()
            },
            "ratios": [
                {**race["ratio"], "what": f"{task}: {race['ratio']['what']}"}
                for task, race in found.items()
            ],
            "laps": {task: race["laps"] for task, race in found.items()},
        },
    )


def _race(
    task: str, before: Path, folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    if task == "train":
        setup: Any = criteo.Setup()
        script, steps = "criteo_estimax.py", options.steps
    elif task == "small":
        setup = small_dnn.Setup()
        script, steps = "small_estimax.py", 50 * options.steps
    elif task == "csv":
        setup = _rows(folder)
        script, steps = "csv_estimax.py", 2 * options.steps
    else:
        buckets = 100_000 if task == "parse and hash" else 0
        setup = replace(_records(folder), buckets=buckets)
        script, steps = "parse_estimax.py", 10 * options.steps
    argument = setup.to_json()
    racers = [
        Racer("now", script, argument, tree=HERE.parent),
        Racer("before", str(before / "benchmarks" / script), argument, tree=before),
    ]
    with Race(racers, folder) as race:
        laps = race.run(rounds=options.rounds, steps=steps)
    return {
        "racers": summary(laps, batch_size=setup.batch_size),
        "ratio": ratios(laps, "now", "before"),
        "laps": laps,
    }


def _rows(folder: Path) -> csv_task.Setup:
    setup = csv_task.Setup(path=str(folder / "data.csv"))
    csv_task.write_files(setup)
    return setup


def _records(folder: Path) -> parse_task.Setup:
    setup = parse_task.Setup(path=str(folder / "criteo.tfrecord"))
    if not Path(setup.path).exists():
        from estimax import input as ex_input
        from estimax.formats import records

        examples = ex_input.serialize_examples(parse_task.columns(setup))
        records.write_records(setup.path, examples)
    return setup


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", help="the folder of the earlier checkout")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=100, help="steps in a lap")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
