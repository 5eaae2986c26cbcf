"""Complete programs, as written for tf.estimator and as ported: steps a second of both.

    python benchmarks/bench_ports.py --rounds 5
    python benchmarks/bench_ports.py --ports census tagger

The programs of examples/ports and examples/sequence_tagger, from reading the data to
the update, with every default of both libraries: a wide-and-deep model from CSV lines,
DeepFM with hand-made tables from libsvm lines (with Adam and an L2 penalty over whole
tables; "deepfm by row" has Adagrad and no penalty), and an LSTM-CRF tagger. The aim is
1.5 times TensorFlow's speed for each.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import machine
from environments import tf_python
from ports_task import BATCH_SIZES, Setup, write_data
from race import Race, Racer, ratios, summary, tell

BY_ROW = {"optimizer": "Adagrad", "learning_rate": 0.05, "l2_reg": 0.0}
# Name of the race: the port, its changed params, and the steps in a lap.
RACES: dict[str, tuple[str, dict[str, Any], int]] = {
    "census": ("census", {}, 1000),
    "deepfm": ("deepfm", {}, 200),
    "deepfm by row": ("deepfm", BY_ROW, 300),
    "tagger": ("tagger", {}, 200),
}


def main() -> None:
    options = _options()
    python = None if options.without_tf else tf_python(options.tf_python)
    load = machine.load()
    racers: dict[str, Any] = {}
    found, laps, versions = [], {}, {}
    for name in options.ports:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            laps[name], versions = _race(name, Path(folder), python, options)
        size = BATCH_SIZES[RACES[name][0]]
        racers |= summary(laps[name], batch_size=size)
        if python:
            pair = f"{name}, tf.estimator", f"{name}, estimax"
            found.append(ratios(laps[name], *pair))
    machine.write_result(
        "ports",
        {
            "load": {"before": load, "after": machine.load()},
            "versions": versions,
            "racers": racers,
            "ratios": found,
            "laps": laps,
        },
    )


def _race(
    name: str, folder: Path, python: str | None, options: argparse.Namespace
) -> tuple[Any, Any]:
    port, changes, steps = RACES[name]
    setup = Setup(port, str(folder / "data"), changes=changes)
    tell(f"{name}: writing the data")
    write_data(setup)
    argument = setup.to_json()
    racers = [Racer(f"{name}, estimax", "ports_estimax.py", argument)]
    if python:
        racers.append(Racer(f"{name}, tf.estimator", "ports_tf.py", argument, python))
    with Race(racers, folder) as race:
        steps = max(1, round(steps * options.scale))
        return race.run(rounds=options.rounds, steps=steps, settle=30), race.versions


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ports", nargs="+", choices=[*RACES], default=[*RACES])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the steps in a lap"
    )
    parser.add_argument("--tf-python", help="a Python with TensorFlow 2.15.1")
    parser.add_argument("--without-tf", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
