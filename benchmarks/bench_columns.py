"""Does the wait for the first step grow with the columns? 10 to 1,000 embeddings.

    python benchmarks/bench_columns.py --rounds 3 --tf-python ../tf/bin/python

Each column is an embedding of 50 rows of 4, below layers of 64 and 32; batches of 256
from memory, Adagrad. Every start is a process of its own that finds an empty
compilation cache and compiled native kernels; its CPU time is counted, so that other
programs on the machine matter little. Then 32 steps are timed, after 32 that are not.
The bars: the first step after at most the CPU time of tf.estimator with 100, 400 and
1,000 columns, and with 1,000 columns after at most 3 times that of 10.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from typing import Any

import machine
from environments import tf_python
from race import HERE, tell

Start = dict[str, float]  # what `columns_task.Clock` prints
FIRST = "cpu_seconds"


def main() -> None:
    options = _options()
    load = machine.load()
    starts: dict[str, list[Start]] = {}
    # Not counted: the first import compiles Python modules, the first step kernels.
    _start(sys.executable, "columns_estimax.py", 10)
    for number in range(options.rounds):
        for count in options.columns:
            _add(
                starts, f"estimax, {count}", sys.executable, "columns_estimax.py", count
            )
            if not options.without_tf and count in options.tf_columns:
                python = tf_python(options.tf_python)
                _add(starts, f"tf.estimator, {count}", python, "columns_tf.py", count)
        tell(f"round {number + 1} of {options.rounds}")
    ratios = [
        _ratio(starts, f"tf.estimator, {count}", f"estimax, {count}", what)
        for count in options.columns
        if f"tf.estimator, {count}" in starts
        for what in (FIRST, "cpu_ms_per_step")
    ]
    low, high = min(options.columns), max(options.columns)
    ratios.append(_ratio(starts, f"estimax, {high}", f"estimax, {low}", FIRST))
    machine.write_result(
        "columns",
        {
            "load": {"before": load, "after": machine.load()},
            "starts": {name: _summary(found) for name, found in starts.items()},
            "ratios": ratios,
        },
    )


def _add(
    starts: dict[str, list[Start]], name: str, python: str, script: str, count: int
) -> None:
    found = _start(python, script, count)
    starts.setdefault(name, []).append(found)
    shown = ", ".join(f"{what} {value:.2f}" for what, value in found.items())
    tell(f"{name} columns: {shown}; load {os.getloadavg()[0]:.1f}")


def _start(python: str, script: str, count: int) -> Start:
    with tempfile.TemporaryDirectory(prefix="bench-") as cache:
        given = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
        given.pop("PYTHONDONTWRITEBYTECODE", None)
        given |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
        # The programs alone: kernels are compiled once for an installation.
        given["JAX_COMPILATION_CACHE_DIR"] = cache
        command = [python, str(HERE / script), str(count)]
        done = subprocess.run(command, env=given, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stderr[-3000:]}")
    told: Start = json.loads(done.stdout.strip().splitlines()[-1])
    return told


def _summary(found: list[Start]) -> dict[str, Any]:
    return {
        what: {
            "best": round(min(start[what] for start in found), 3),
            "median": round(statistics.median(start[what] for start in found), 3),
        }
        for what in found[0]
    }


def _ratio(
    starts: dict[str, list[Start]], name: str, base: str, what: str
) -> dict[str, Any]:
    pairs = zip(starts[name], starts[base], strict=True)
    ratios = [a[what] / b[what] for a, b in pairs]
    return {
        "what": f"{what}, {name} columns / {base} columns",
        "median": round(statistics.median(ratios), 3),
        "min": round(min(ratios), 3),
        "max": round(max(ratios), 3),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--columns", type=int, nargs="+", default=[10, 100, 400, 1000])
    parser.add_argument(
        "--tf-columns", type=int, nargs="+", default=[100, 400, 1000], help="of TF"
    )
    parser.add_argument("--tf-python", help="a Python with TensorFlow 2.15.1")
    parser.add_argument("--without-tf", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
