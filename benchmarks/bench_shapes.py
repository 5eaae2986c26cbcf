"""Is a shape slower than in TensorFlow? Small images and texts through convolutions.

    python benchmarks/bench_shapes.py --rounds 3 --steps 20
    python benchmarks/bench_shapes.py --only "text 400"

A `model_fn` with default hooks, as a user of Flax writes it, beside the same network in
a `model_fn` of tf.estimator: an image network, also with `iterations_per_loop=10`, as
programs for TPUs have it, and a network on texts of 60 and 400 words. The bar: at least
TensorFlow's speed in each.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import machine
from environments import tf_python
from race import Race, Racer, ratios, summary, tell
from shapes_task import Setup

SHAPES = {
    "image": Setup(),
    "image, iterations_per_loop=10": Setup(iterations_per_loop=10),
    "text 60": Setup(words=60),
    "text 400": Setup(words=400),
}


def main() -> None:
    options = _options()
    load = machine.load()
    shapes = {
        name: _race(name, setup, options)
        for name, setup in SHAPES.items()
        if options.only in name
    }
    machine.write_result(
        "shapes",
        {
            "load": {"before": load, "after": machine.load()},
            "shapes": shapes,
            "ratios": [one["ratio"] for one in shapes.values() if "ratio" in one],
        },
    )


def _race(name: str, setup: Setup, options: argparse.Namespace) -> dict[str, Any]:
    tell(f"-- {name}")
    argument = setup.to_json()
    racers = [Racer("estimax", "shapes_estimax.py", argument)]
    if options.before is not None:
        racers.append(
            Racer("before", "shapes_estimax.py", argument, tree=options.before)
        )
    if not options.without_tf:
        python = tf_python(options.tf_python)
        racers.append(Racer("tf.estimator", "shapes_tf.py", argument, python))
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as logs,
        Race(racers, Path(logs)) as race,
    ):
        # TensorFlow's batches are cached in their first pass, before the laps.
        laps = race.run(rounds=options.rounds, steps=options.steps, settle=2)
        versions = race.versions
    found = {
        "setup": asdict(setup),
        "versions": versions,
        "racers": summary(laps, batch_size=setup.batch_size),
        "laps": laps,
    }
    if not options.without_tf:
        ratio = ratios(laps, "tf.estimator", "estimax")
        found["ratio"] = {**ratio, "what": f"{name}: {ratio['what']}"}
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="shapes whose name has this text")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40, help="steps in a lap")
    parser.add_argument("--before", type=Path, help="another checkout, to compare")
    parser.add_argument("--tf-python", help="a Python with TensorFlow 2.15.1")
    parser.add_argument("--without-tf", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
