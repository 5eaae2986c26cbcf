"""Run every benchmark and print one table.

    python benchmarks/run.py            # about 40 minutes on a quiet machine
    python benchmarks/run.py --quick    # a few rounds, to see that all of it works

Each benchmark is a program of its own, whose JSON also goes to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import machine
from race import tell

HERE = Path(__file__).resolve().parent
Row = tuple[str, str, str, str]


def main() -> None:
    options = _options()
    results = []
    for script, arguments in _programs(options).items():
        tell(f"== {script}")
        command = [sys.executable, str(HERE / script), *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            tell(f"{script} failed with {done.returncode}; the others go on")
            continue
        results.append(json.loads(done.stdout))
    about = machine.describe()
    print(f"{about['cpu']}, {about['cores']} cores, commit {about['commit']}, ", end="")
    print(f"load {machine.load()[0]} (numbers want a load near the racer's own)")
    _print_table([row for result in results for row in _rows(result)])
    if len(results) < len(_programs(options)):
        raise SystemExit(1)


def _programs(options: argparse.Namespace) -> dict[str, list[str]]:
    tf = ["--tf-python", options.tf_python] if options.tf_python else []
    if options.without_tf:
        tf = ["--without-tf"]
    keras = ["--keras-python", options.keras_python] if options.keras_python else []
    if options.without_keras:
        keras = ["--without-keras"]
    quick = options.quick
    few = ["--rounds", "2", "--steps", "30"] if quick else []
    sizes = ["--vocabularies", "10000", "100000"] if quick else []
    return {
        "bench_criteo.py": few + tf + keras,
        "bench_vocabulary.py": few + sizes,
        "bench_small_dnn.py": (["--rounds", "2", "--steps", "300"] if quick else [])
        + tf,
        "bench_shapes.py": (["--rounds", "2", "--steps", "10"] if quick else []) + tf,
        "bench_lookup.py": (["--rounds", "2", "--steps", "100"] if quick else []) + tf,
        "bench_parse.py": (["--rounds", "2", "--steps", "50"] if quick else []) + tf,
        "bench_row_map.py": few + tf,
        "bench_end_to_end.py": few + tf,
        "bench_csv.py": few + tf,
        "bench_ports.py": (["--rounds", "2", "--scale", "0.3"] if quick else []) + tf,
        "bench_predict.py": (["--rounds", "2"] if quick else []) + tf,
        "bench_scoring.py": ["--rounds", "1", "--rows", "200000"] if quick else [],
        "bench_parquet.py": ["--rounds", "2"] if quick else [],
        "bench_overlap.py": ["--steps", "50"] if quick else [],
        "bench_devices.py": ["--rounds", "2", "--steps", "20"] if quick else [],
        "bench_import.py": ["--rounds", "2"] if quick else [],
        "bench_numeric_columns.py": (["--rounds", "1"] if quick else []) + tf,
        "bench_columns.py": (["--rounds", "1"] if quick else []) + tf,
        "bench_start.py": (["--rounds", "2"] if quick else []) + tf,
        "bench_flights.py": (["--seeds", "1"] if quick else []) + tf,
    }


def _rows(result: dict[str, Any]) -> Iterator[Row]:
    name = result["benchmark"]
    for racer, told in result.get("racers", {}).items():
        step, cpu = told["ms_per_step"], told["cpu_ms_per_step"]
        rate = told["examples_per_second"]["median"]
        yield (
            name,
            racer,
            f"{step['median']:.3f} ms a step (best {step['best']:.3f})",
            f"{cpu['median']:.3f} ms CPU, {rate:,.0f} examples/s",
        )
    for processes, told in result.get("scorings", {}).items():
        wall, rate = told["scoring_seconds"], told["rows_per_second"]
        shown = f"{wall['median']:.2f} s scoring (best {wall['best']:.2f})"
        cpu = f"{told['cpu_seconds']['median']:.2f} s CPU, {rate:,.0f} rows/s"
        yield name, f"processes: {processes}", shown, cpu
    for model, told in result.get("auc", {}).items():
        yield name, model, f"AUC {told['mean']:.4f}", _seconds(told["seconds_in_all"])
    for start, told in result.get("starts", {}).items():
        cpu = told["cpu_seconds"]
        if "seconds" not in told:  # of bench_columns.py, which counts CPU time alone
            step = f"{told['cpu_ms_per_step']['median']:.2f} ms CPU a step"
            shown = f"{cpu['median']:.2f} s CPU to the first step"
            yield name, f"{start} columns", shown, step
            continue
        wall = told["seconds"]
        shown = f"{wall['median']:.2f} s (best {wall['best']:.2f})"
        yield name, start, shown, f"{cpu['median']:.2f} s CPU"
    for racer, told in result.get("first_steps", {}).items():
        step = f"{told['cpu_ms_a_step']:.2f} ms CPU a step"
        yield name, racer, f"{told['cpu_seconds']:.2f} s CPU to the first step", step
    for start, seconds in (result.get("demo") or {}).items():
        yield name, f"demo, {start} start", f"{seconds:.1f} s in all", ""
    for statement, told in result.get("imports", {}).items():
        shown = f"{told['ms_median']:.0f} ms (best {told['ms_best']:.0f})"
        yield name, statement, shown, f"{told['cpu_ms_median']:.0f} ms CPU"
    ratios = result["ratios"]
    if isinstance(ratios, dict):
        for statement, told in ratios.items():
            shown = f"{told['median']:.2f} of import jax, flax, optax"
            yield name, statement, shown, f"CPU {told['cpu_median']:.2f}"
        return
    for told in ratios:
        spread = f"median {told['median']:.2f} (min {told['min']:.2f})"
        cpu = f"CPU median {told['cpu']['median']:.2f}" if "cpu" in told else ""
        yield name, told["what"], spread, cpu


def _seconds(laps: list[float]) -> str:
    return f"{sum(laps) / len(laps):.0f} s, start to answers"


def _print_table(rows: list[Row]) -> None:
    header: Row = ("benchmark", "what", "wall", "beside")
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(4)]
    line = "  ".join("-" * width for width in widths)
    for row in (header, *rows):
        cells = zip(row, widths, strict=True)
        print("  ".join(cell.ljust(width) for cell, width in cells).rstrip())
        if row is header:
            print(line)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, small tables")
    parser.add_argument("--tf-python", help="a Python with TensorFlow 2.15.1")
    parser.add_argument("--without-tf", action="store_true")
    parser.add_argument("--keras-python", help="a Python with Keras 3 and JAX")
    parser.add_argument("--without-keras", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
