"""How long does a user wait for the first step? A small wide-and-deep, and the demo.

    python examples/flights/prepare.py        # once, for the demo: data/flights/*.csv
    python benchmarks/bench_start.py --rounds 5

Every start is a process of its own; the clock runs from its launch, imports included.
"cold" finds an empty compilation cache, "warm" what the cold start before it has left.
The native kernels are compiled already, as after the first use of an installation;
"first" finds no cache at all, and a child process compiles the kernels beside it. Its
CPU time is not in `cpu_seconds`, which end at the first step, but in
`cpu_seconds_of_all`: of the process and its children, to the end of the training. The
bars: first and cold at most 1.0 of tf.estimator's time and warm at most 0.5; the second
start of the demo at most 7 s.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import machine
from environments import tf_python
from race import HERE, tell

Start = dict[str, float]  # seconds and cpu_seconds up to the first step, and of all
CONFIG = machine.REPOSITORY / "configs" / "flights_wide_deep.yaml"


def main() -> None:
    options = _options()
    load = machine.load()
    starts: dict[str, list[Start]] = {}
    _round(options)  # not counted: Python compiles modules when it first imports them
    for number in range(options.rounds):
        for name, start in _round(options).items():
            starts.setdefault(name, []).append(start)
        tell(f"round {number + 1} of {options.rounds}: {_line(starts)}")
    machine.write_result(
        "start",
        {
            "load": {"before": load, "after": machine.load()},
            "starts": {name: _summary(found) for name, found in starts.items()},
            "demo": _demo(Path(options.data)),
            "ratios": [
                _ratio(starts, name, "tf.estimator")
                for name in ("first", "cold", "warm")
                if not options.without_tf
            ],
        },
    )


def _round(options: argparse.Namespace) -> dict[str, Start]:
    """Start each once; the cold start fills the cache of the warm one."""
    with tempfile.TemporaryDirectory(prefix="bench-") as cache:
        env = {"XDG_CACHE_HOME": cache}
        found = {
            "first": _first(),
            "cold": _start(sys.executable, "start_estimax.py", env),
            "warm": _start(sys.executable, "start_estimax.py", env),
        }
    if not options.without_tf:
        python = tf_python(options.tf_python)
        found["tf.estimator"] = _start(python, "start_tf.py", {})
    return found


def _first() -> Start:
    """Start once with nothing compiled, not even the native kernels."""
    with tempfile.TemporaryDirectory(prefix="bench-") as cache:
        env = {"XDG_CACHE_HOME": cache, "NUMBA_CACHE_DIR": cache}
        return _start(sys.executable, "start_estimax.py", env)


def _start(python: str, script: str, env: dict[str, str]) -> Start:
    began = time.monotonic()
    used = _cpu_seconds_of_children()
    done = _run([python, str(HERE / script)], env)
    told = json.loads(done.stdout)
    return {
        "seconds": told["at"] - began,
        "cpu_seconds": told["cpu_seconds"],
        "cpu_seconds_of_all": _cpu_seconds_of_children() - used,
    }


def _cpu_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _demo(data: Path) -> dict[str, Any] | None:
    """Seconds of `estimax train` on the flights, in all: first and second start."""
    if not (data / "train.csv").is_file():
        tell(f"no {data}/train.csv: without the demo")
        return None
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        seconds = {}
        for name in ("first", "second"):
            command = [sys.executable, "-m", "estimax", "train", str(CONFIG)]
            command += ["--set", f"vars.data={data.resolve()}"]
            command += ["--model-dir", f"{folder}/{name}"]
            began = time.monotonic()
            done = _run(command, {"XDG_CACHE_HOME": folder})
            seconds[name] = time.monotonic() - began
            steps = next(line for line in done.stderr.splitlines() if "trained" in line)
            tell(f"demo, {name} start: {seconds[name]:.1f} s in all; {steps}")
    return seconds


def _run(command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    # Compiled modules are written, whatever the environment says: installed libraries
    # have theirs, and so has estimax where it is installed.
    given = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    given.pop("PYTHONDONTWRITEBYTECODE", None)
    given |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", **env}
    done = subprocess.run(command, env=given, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stderr[-3000:]}")
    return done


def _summary(found: list[Start]) -> dict[str, Any]:
    return {
        clock: {"best": min(values), "median": statistics.median(values)}
        for clock in found[0]
        for values in [[start[clock] for start in found]]
    }


def _ratio(starts: dict[str, list[Start]], name: str, base: str) -> dict[str, Any]:
    pairs = list(zip(starts[name], starts[base], strict=True))
    ratios = {
        clock: [a[clock] / b[clock] for a, b in pairs]
        for clock in ("seconds", "cpu_seconds")
    }
    return {
        "what": f"time to the first step, {name} / {base}",
        "median": round(statistics.median(ratios["seconds"]), 3),
        "min": round(min(ratios["seconds"]), 3),
        "max": round(max(ratios["seconds"]), 3),
        "cpu": {"median": round(statistics.median(ratios["cpu_seconds"]), 3)},
    }


def _line(starts: dict[str, list[Start]]) -> str:
    shown = (
        f"{name} {found[-1]['seconds']:.2f} s ({found[-1]['cpu_seconds']:.2f} CPU, "
        f"{found[-1]['cpu_seconds_of_all']:.2f} in all)"
        for name, found in starts.items()
    )
    return f"{', '.join(shown)}; load {os.getloadavg()[0]:.1f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", default="data/flights", help="of the demo")
    parser.add_argument("--tf-python", help="a Python with TensorFlow 2.15.1")
    parser.add_argument("--without-tf", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
