"""A small dense model: what the loop costs when the arithmetic costs little.

    python benchmarks/bench_small_dnn.py --rounds 5 --steps 1000

32 numbers, hidden layers of 64 and 32, batches of 128: `Estimator.train` with all of
its default hooks, hand-written JAX loops fed the same way, and tf.estimator.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

import machine
from environments import tf_python
from race import Race, Racer, ratios, summary
from small_dnn import Setup


def main() -> None:
    options = _options()
    setup = Setup(columns=options.columns)
    argument = setup.to_json()
    racers = [
        Racer("estimax", "small_estimax.py", argument),
        Racer("jax loop", "small_jax.py", f"step:{argument}"),
        Racer("jax scan", "small_jax.py", f"scan:{argument}"),
    ]
    if not options.without_tf:
        python = tf_python(options.tf_python)
        racers.append(Racer("tf.estimator", "small_tf.py", argument, python))
    load = machine.load()
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as logs,
        Race(racers, Path(logs)) as race,
    ):
        laps = race.run(rounds=options.rounds, steps=options.steps, settle=50)
        versions = race.versions
    found = [ratios(laps, "estimax", name) for name in ("jax loop", "jax scan")]
    if not options.without_tf:
        found.insert(0, ratios(laps, "tf.estimator", "estimax"))
    machine.write_result(
        "small_dnn",
        {
            "setup": asdict(setup),
            "load": {"before": load, "after": machine.load()},
            "versions": versions,
            "racers": summary(laps, batch_size=setup.batch_size),
            "ratios": found,
            "laps": laps,
        },
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--columns", type=int, default=1, help="of the 32 inputs")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=2000, help="steps in a lap")
    parser.add_argument("--tf-python", help="a Python with TensorFlow 2.15.1")
    parser.add_argument("--without-tf", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
