"""Requests a second: `bundle.predict` beside the signature of a SavedModel.

    python benchmarks/bench_predict.py --rounds 5

The same model, exported by estimax and by tf.estimator, answers requests of one row and
of 1,024 rows with ten words and ten numbers. Conversion of the words, host transforms
and conversion of the answers to NumPy are included. The bar is 3 times, for both.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import machine
from environments import tf_python
from predict_task import Setup
from race import Race, Racer, ratios, summary

BAR = 3.0
_STEPS = {1: 1000, 1024: 200}


def main() -> None:
    options = _options()
    load = machine.load()
    with tempfile.TemporaryDirectory(prefix="bench-") as logs:
        races = {
            f"{rows} rows": _race(Setup(rows), steps, Path(logs), options)
            for rows, steps in _STEPS.items()
        }
    found = [told["ratio"] for told in races.values() if "ratio" in told]
    machine.write_result(
        "predict",
        {
            "load": {"before": load, "after": machine.load()},
            "versions": next(iter(races.values()))["versions"],
            "racers": {
                f"{name}, {what}": told
                for what, race in races.items()
                for name, told in race["racers"].items()
            },
            "ratios": found,
            "bar": BAR,
            "within_bars": [told["median"] >= BAR for told in found],
            "laps": {what: race["laps"] for what, race in races.items()},
        },
    )


def _race(
    setup: Setup, steps: int, logs: Path, options: argparse.Namespace
) -> dict[str, Any]:
    racers = [Racer("estimax", "predict_estimax.py", setup.to_json())]
    if not options.without_tf:
        python = tf_python(options.tf_python)
        racers.append(Racer("SavedModel", "predict_tf.py", setup.to_json(), python))
    with Race(racers, logs) as race:
        laps = race.run(rounds=options.rounds, steps=steps, settle=20)
        told = {
            "racers": summary(laps, batch_size=setup.rows),
            "versions": race.versions,
            "laps": laps,
        }
    if not options.without_tf:
        told["ratio"] = ratios(laps, "SavedModel", "estimax")
    return told


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tf-python", help="a Python with TensorFlow 2.15.1")
    parser.add_argument("--without-tf", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
