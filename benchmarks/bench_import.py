"""What `import estimax` costs above the libraries it stands on.

    python benchmarks/bench_import.py --rounds 7

Every measurement is a fresh process; the statements take turns. Modules are compiled
and in the page cache after a first round, which is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import machine
from race import tell

STATEMENTS = {
    "import estimax": "import estimax",
    "ex.Estimator": "import estimax as ex; ex.Estimator",
    "ex.DNNClassifier": "import estimax as ex; ex.DNNClassifier",
    "import jax": "import jax",
    "import jax, flax, optax": "import jax, flax, optax",
}
_PROGRAM = """
import json, time
wall, cpu = time.perf_counter(), time.process_time()
{statement}
print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]))
"""


def main() -> None:
    options = _options()
    load = machine.load()
    times: dict[str, list[list[float]]] = {name: [] for name in STATEMENTS}
    with tempfile.TemporaryDirectory(prefix="bench-") as cache:
        # Compiled modules of all libraries alike go here, whatever the environment
        # says about writing them: installed ones must not have an advantage.
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = cache
        for number in range(options.rounds + 1):
            tell(f"round {number} of {options.rounds}")
            for name, statement in STATEMENTS.items():
                taken = _measure(statement, env)
                if number:
                    times[name].append(taken)
    base = "import jax, flax, optax"
    machine.write_result(
        "import",
        {
            "load": {"before": load, "after": machine.load()},
            "imports": {name: _summary(taken) for name, taken in times.items()},
            "ratios": {
                name: _ratio(times[name], times[base])
                for name in STATEMENTS
                if name != base
            },
        },
    )


def _measure(statement: str, env: dict[str, str]) -> list[float]:
    program = _PROGRAM.format(statement=statement)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    taken: list[float] = json.loads(done.stdout)
    return taken


def _summary(taken: list[list[float]]) -> dict[str, float]:
    wall, cpu = zip(*taken, strict=True)
    return {
        "ms_best": 1000 * min(wall),
        "ms_median": 1000 * statistics.median(wall),
        "cpu_ms_best": 1000 * min(cpu),
        "cpu_ms_median": 1000 * statistics.median(cpu),
    }


def _ratio(taken: list[list[float]], base: list[list[float]]) -> dict[str, float]:
    pairs = list(zip(taken, base, strict=True))
    return {
        "median": round(statistics.median(a[0] / b[0] for a, b in pairs), 3),
        "cpu_median": round(statistics.median(a[1] / b[1] for a, b in pairs), 3),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    return parser.parse_args()


if __name__ == "__main__":
    main()
