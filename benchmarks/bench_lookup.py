"""One large table in a hand-written `model_fn`: what a lookup and its update cost.

    python benchmarks/bench_lookup.py --rounds 5 --steps 300
    python benchmarks/bench_lookup.py --ids 10

A table of 1,000,000 × 16, batches of 1024 with one id each (or `--ids` of them),
Adagrad: `ex.embedding_lookup` of a feature and of computed ids, `embedding_column`,
Flax's `nn.Embed`, plain indexing, `nn.Embed` without the rewrite ("embed whole"), and
`tf.nn.embedding_lookup` in tf.estimator.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

import machine
from environments import tf_python
from lookup_task import Setup
from race import Race, Racer, ratios, summary

WAYS = ("lookup", "column", "computed", "embed", "indexing", "embed whole")


def main() -> None:
    options = _options()
    setup = Setup(
        ids=options.ids,
        vocabulary=options.vocabulary,
        batch_size=options.batch_size,
    )
    racers = [
        Racer(
            way,
            "lookup_estimax.py",
            f"{way}:{setup.to_json()}",
            steps=min(options.steps, 100) if way == "embed whole" else None,
        )
        for way in WAYS
    ]
    if not options.without_tf:
        python = tf_python(options.tf_python)
        racers.append(Racer("tf.estimator", "lookup_tf.py", setup.to_json(), python))
    load = machine.load()
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as logs,
        Race(racers, Path(logs)) as race,
    ):
        laps = race.run(rounds=options.rounds, steps=options.steps, settle=50)
        versions = race.versions
    slower = [name for name in laps[0] if name not in ("lookup", "column")]
    found = [ratios(laps, "lookup", "column")]
    found += [ratios(laps, name, "lookup") for name in slower]
    machine.write_result(
        "lookup",
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
    parser.add_argument("--ids", type=int, default=1, help="in each example")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=1000, help="steps in a lap")
    parser.add_argument("--tf-python", help="a Python with TensorFlow 2.15.1")
    parser.add_argument("--without-tf", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
