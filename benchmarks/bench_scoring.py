"""Batch scoring: 1 million rows by two processes beside one, then after a kill.

    python benchmarks/bench_scoring.py --rounds 5
    python benchmarks/bench_scoring.py --rows 100000 --rounds 1 --spark --ray

A row has 13 numbers and 26 words; the model has 26 embeddings of 16 and layers of 256
and 128. Each scoring is a process of its own, with an output folder of its own, and the
rounds alternate the order. "in all" runs from the launch to the end, with imports and
loading the bundle; "scoring" from the first shard on, with compiling. The bar is 1.6
times, for "scoring" with one thread per process, when two processors are free. "1, all
threads" is one process whose XLA and pyarrow use all processors, as they do by default:
it shows what a second process adds where one already uses more than one processor.

Then a scoring is killed half way and continued, and every key must be there exactly
once. `--spark` and `--ray` score the same rows on local Spark and Ray, with the same
check.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import machine
import pyarrow.dataset
from race import HERE, tell

BAR = 1.6
ALL_THREADS = "1, all threads"
RACERS = ("1", ALL_THREADS, "2")
ONE_THREAD = {"NPROC": "1", "OMP_NUM_THREADS": "1"}
Lap = dict[str, dict[str, float]]  # racer -> seconds


def main() -> None:
    options = _options()
    load = machine.load()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as name:
        folder = Path(name)
        _run("scoring_task.py", folder, options.rows, options.format)
        task = Task(folder, folder / f"rows.{options.format}", options.rows)
        task.score(2, ONE_THREAD)  # not counted: compiles programs and kernels
        laps = []
        for number in range(options.rounds):
            order = RACERS if number % 2 == 0 else RACERS[::-1]
            laps.append({name: task.score(*_racer(name)) for name in order})
            tell(f"round {number + 1} of {options.rounds}: {_line(laps[-1])}")
        result = {
            "load": {"before": load, "after": machine.load()},
            "rows": options.rows,
            "format": options.format,
            "scorings": {p: _summary([lap[p] for lap in laps]) for p in RACERS},
            "ratios": [
                _ratio(laps, "1", "scoring_seconds", "scoring"),
                _ratio(laps, "1", "seconds", "in all"),
                _ratio(laps, ALL_THREADS, "scoring_seconds", "scoring"),
                _ratio(laps, ALL_THREADS, "seconds", "in all"),
            ],
            "bar": BAR,
            "killed_and_continued": task.kill_and_continue(),
            "spark": _cluster("spark", task) if options.spark else None,
            "ray": _cluster("ray", task) if options.ray else None,
            "laps": laps,
        }
    result["within_bars"] = [result["ratios"][0]["median"] >= BAR]
    machine.write_result("scoring", result)


class Task:
    """A bundle and rows to score."""

    def __init__(self, folder: Path, given: Path, rows: int) -> None:
        self.folder = folder
        self.bundle = folder / "export"
        self.given = given
        self.rows = rows

    def score(self, processes: int, env: dict[str, str]) -> dict[str, float]:
        """Score all rows into a new folder, which is removed; return the seconds."""
        output = self.folder / "scores"
        began = time.monotonic()
        told = self._told(output, processes, env)
        seconds = time.monotonic() - began
        assert told["new_rows"] == self.rows, told
        shutil.rmtree(output)
        return {"seconds": seconds, **told}

    def kill_and_continue(self) -> dict[str, Any]:
        """Kill a scoring half way, continue it, and count the keys."""
        output = self.folder / "killed"
        shards = self._told(self.folder / "whole", 2)["shards"]
        arguments = (self.bundle, self.given, output, 2, int(shards) // 2)
        done = _run("scoring_estimax.py", *arguments, check=False)
        assert done.returncode == -signal.SIGKILL, done.returncode
        told = self._told(output, 2)
        self.check(output)
        before = self.rows - int(told["new_rows"])
        tell(f"killed with {before:,} rows complete, then continued: every key once")
        return {"rows_before": before, "shards": shards, "every_key_once": True}

    def check(self, output: Path) -> None:
        """Raise unless every key is in the output exactly once."""
        keys = pyarrow.dataset.dataset(output, format="parquet").to_table(["id"])["id"]
        assert len(keys) == self.rows, (len(keys), self.rows)
        found = sorted(keys.to_pylist())
        assert found == list(range(self.rows)), "a key is missing or there twice"

    def _told(
        self, output: Path, processes: int, env: dict[str, str] | None = None
    ) -> dict[str, float]:
        arguments = (self.bundle, self.given, output, processes)
        done = _run("scoring_estimax.py", *arguments, env=env)
        told: dict[str, float] = json.loads(done.stdout)
        return told


def _racer(name: str) -> tuple[int, dict[str, str]]:
    """Return the processes and the environment of a racer."""
    return int(name[0]), {} if name == ALL_THREADS else ONE_THREAD


def _cluster(name: str, task: Task) -> dict[str, Any]:
    """Score on local Spark or Ray; return the seconds."""
    output = task.folder / name
    began = time.monotonic()
    told = json.loads(
        _run(f"scoring_{name}.py", task.bundle, task.given, output).stdout
    )
    seconds = time.monotonic() - began
    task.check(output)
    tell(f"{name}: {told['seconds']:.1f} s, {seconds:.1f} s in all: every key once")
    return {**told, "seconds_in_all": seconds, "every_key_once": True}


def _run(
    script: str,
    *arguments: object,
    check: bool = True,
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(HERE / script), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        check=check,
        env={**os.environ, **(env or {})},
    )


def _summary(laps: list[dict[str, float]]) -> dict[str, Any]:
    def spread(key: str) -> dict[str, float]:
        values = [lap[key] for lap in laps]
        return {"median": statistics.median(values), "best": min(values)}

    rate = [lap["rows"] / lap["scoring_seconds"] for lap in laps]
    return {
        "seconds": spread("seconds"),
        "scoring_seconds": spread("scoring_seconds"),
        "cpu_seconds": spread("cpu_seconds"),
        "rows_per_second": statistics.median(rate),
    }


def _ratio(laps: list[Lap], slow: str, key: str, what: str) -> dict[str, Any]:
    values = [lap[slow][key] / lap["2"][key] for lap in laps]
    return {
        "what": f"{what}: seconds of processes {slow} / 2",
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
    }


def _line(lap: Lap) -> str:
    return ", ".join(
        f"processes {p}: {one['scoring_seconds']:.1f} s scoring, "
        f"{one['seconds']:.1f} s in all, {one['cpu_seconds']:.1f} s CPU"
        for p, one in sorted(lap.items())
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--format", choices=("parquet", "csv"), default="parquet")
    parser.add_argument(
        "--folder", help="where to write; by default that of the system"
    )
    parser.add_argument("--spark", action="store_true", help="score on local Spark too")
    parser.add_argument("--ray", action="store_true", help="score on local Ray too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
