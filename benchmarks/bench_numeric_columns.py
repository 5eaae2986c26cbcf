"""What do more numeric columns cost before the first step, and in a step?

    python benchmarks/bench_numeric_columns.py --rounds 3

A `DNNClassifier` over 10, 100 and 1,000 columns of one number each, in batches of 128,
beside tf.estimator's. Every start is a process of its own that finds an empty
compilation cache and compiled host kernels. Its CPU seconds count from the call of the
constructor, after the imports, to the first step. The bars: 1,000 columns take at most
3 times the CPU time of 10, and at most TensorFlow's.
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

Start = dict[str, float]
COLUMNS = (10, 100, 1000)
ESTIMAX, TENSORFLOW = "estimax", "tf.estimator"


def main() -> None:
    options = _options()
    load = machine.load()
    starts: dict[str, list[Start]] = {}
    _start(sys.executable, "numeric_columns_estimax.py", 10)  # kernels are compiled
    for number in range(options.rounds):
        for name, start in _round(options).items():
            starts.setdefault(name, []).append(start)
        tell(f"round {number + 1} of {options.rounds}: {_line(starts)}")
    most, fewest = COLUMNS[-1], COLUMNS[0]
    ratios = [_ratio(starts, f"{ESTIMAX} {most}", f"{ESTIMAX} {fewest}")]
    if not options.without_tf:
        pairs = [(f"{ESTIMAX} {n}", f"{TENSORFLOW} {n}") for n in COLUMNS]
        ratios += [_ratio(starts, *pair) for pair in pairs]
    machine.write_result(
        "numeric_columns",
        {
            "load": {"before": load, "after": machine.load()},
            "first_steps": {name: _summary(found) for name, found in starts.items()},
            "ratios": ratios,
        },
    )


def _round(options: argparse.Namespace) -> dict[str, Start]:
    found = {}
    for columns in COLUMNS:
        found[f"{ESTIMAX} {columns}"] = _start(
            sys.executable, "numeric_columns_estimax.py", columns
        )
        if not options.without_tf:
            python = tf_python(options.tf_python)
            found[f"{TENSORFLOW} {columns}"] = _start(
                python, "numeric_columns_tf.py", columns
            )
    return found


def _start(python: str, script: str, columns: int) -> Start:
    given = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    with tempfile.TemporaryDirectory(prefix="bench-") as cache:
        given |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
        given |= {"XDG_CACHE_HOME": cache}
        command = [python, str(HERE / script), str(columns)]
        done = subprocess.run(command, env=given, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stderr[-3000:]}")
    told: Start = json.loads(done.stdout)
    return told


def _summary(found: list[Start]) -> dict[str, float]:
    return {key: statistics.median(start[key] for start in found) for key in found[0]}


def _ratio(starts: dict[str, list[Start]], name: str, base: str) -> dict[str, Any]:
    pairs = list(zip(starts[name], starts[base], strict=True))
    ratios = [a["cpu_seconds"] / b["cpu_seconds"] for a, b in pairs]
    return {
        "what": f"CPU time to the first step, {name} / {base}",
        "median": round(statistics.median(ratios), 3),
        "min": round(min(ratios), 3),
        "max": round(max(ratios), 3),
    }


def _line(starts: dict[str, list[Start]]) -> str:
    shown = (
        f"{name} {found[-1]['cpu_seconds']:.2f} s, "
        f"{found[-1]['cpu_ms_a_step']:.1f} ms a step"
        for name, found in starts.items()
    )
    return f"{'; '.join(shown)}; load {os.getloadavg()[0]:.1f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tf-python", help="a Python with TensorFlow 2.15.1")
    parser.add_argument("--without-tf", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
