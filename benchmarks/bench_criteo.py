"""Criteo-shaped training: estimax beside tf.estimator, Keras 3, and the limit.

    python benchmarks/bench_criteo.py --rounds 5 --steps 100

26 categorical features embedded in tables of [vocabulary, 16], 13 numbers, hidden
layers of 256 and 128, batches of 1024, Adagrad, input from memory.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import machine
from criteo import Setup
from environments import keras_python, tf_python
from race import Race, Racer, ratios, summary


def main() -> None:
    options = _options()
    setup = replace(Setup(), vocabulary=options.vocabulary)
    argument = setup.to_json()
    racers = [Racer("estimax", "criteo_estimax.py", argument)]
    if not options.without_tf:
        python = tf_python(options.tf_python)
        racers += [
            Racer("tf.estimator", "criteo_tf.py", f"v2:rows:{argument}", python),
            Racer("tf.estimator, cut", "criteo_tf.py", f"v2:cut:{argument}", python),
            Racer("tf.estimator v1, cut", "criteo_tf.py", f"v1:cut:{argument}", python),
        ]
    racers.append(Racer("dense layers", "criteo_jax.py", f"dense_layers:{argument}"))
    if not options.without_keras:
        python = keras_python(options.keras_python)
        racers.append(Racer("keras", "criteo_keras.py", argument, python, steps=30))
    if not options.without_naive:
        # A handful of its steps is enough: one takes as long as ten of the others.
        slow = replace(setup, warmup=3).to_json()
        racers.append(
            Racer("naive", "criteo_jax.py", f"naive:{slow}", steps=10, rounds=1)
        )
    load = machine.load()
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as logs,
        Race(racers, Path(logs)) as race,
    ):
        laps = race.run(rounds=options.rounds, steps=options.steps)
        versions = race.versions
    found = {
        "setup": asdict(setup),
        "load": {"before": load, "after": machine.load()},
        "versions": versions,
        "racers": summary(laps, batch_size=setup.batch_size),
        "ratios": [ratios(laps, "estimax", "dense layers")],
        "laps": laps,
    }
    if not options.without_tf:
        against_tf = [
            ratios(laps, "tf.estimator", "estimax"),
            ratios(laps, "tf.estimator, cut", "estimax"),
            ratios(laps, "tf.estimator v1, cut", "estimax"),
        ]
        found["ratios"] = against_tf + found["ratios"]
    if not options.without_keras:
        found["ratios"].append(ratios(laps, "keras", "estimax"))
    if not options.without_naive:
        found["ratios"].append(ratios(laps, "naive", "estimax"))
    name = f"criteo-{setup.vocabulary}" if options.vocabulary != 100_000 else "criteo"
    machine.write_result(name, found)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", type=int, default=100_000, help="rows a table")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=100, help="steps in a lap")
    parser.add_argument("--tf-python", help="a Python with TensorFlow 2.15.1")
    parser.add_argument("--without-tf", action="store_true")
    parser.add_argument("--keras-python", help="a Python with Keras 3 and JAX")
    parser.add_argument("--without-keras", action="store_true")
    parser.add_argument("--without-naive", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
