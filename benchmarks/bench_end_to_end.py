"""From files to a trained model: TFRecords of strings, parsed, hashed, trained on.

    python benchmarks/bench_end_to_end.py --rounds 5 --steps 100

Examples of 13 floats and 26 short strings, hashed to 100,000 buckets each, embedded in
16 numbers, layers of 256 and 128, batches of 1024, Adagrad; `tf.estimator` reads the
same file by tf.data with a parallel `parse_example`. Bar: 4 times tf.estimator.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import machine
import parse_task
from end_to_end_task import Setup
from environments import tf_python
from race import Race, Racer, ratios, summary, tell

BAR = 4.0


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        setup = Setup(path=str(Path(folder) / "criteo.tfrecord"), rows=options.rows)
        _write(setup)
        argument = setup.to_json()
        racers = [Racer("estimax", "end_to_end_estimax.py", argument)]
        if not options.without_tf:
            python = tf_python(options.tf_python)
            racers.append(Racer("tf.estimator", "end_to_end_tf.py", argument, python))
        load = machine.load()
        with Race(racers, Path(folder)) as race:
            laps = race.run(rounds=options.rounds, steps=options.steps)
            versions = race.versions
    found = [] if options.without_tf else [ratios(laps, "tf.estimator", "estimax")]
    machine.write_result(
        "end_to_end",
        {
            "setup": asdict(replace(setup, path="")),
            "load": {"before": load, "after": machine.load()},
            "versions": versions,
            "racers": summary(laps, batch_size=setup.batch_size),
            "ratios": found,
            "bar": BAR,
            "within_bar": [told["median"] >= BAR for told in found],
            "laps": laps,
        },
    )


def _write(setup: Setup) -> None:
    from estimax import input as ex_input
    from estimax.formats import records

    tell(f"writing {setup.rows:,} examples")
    made = parse_task.columns(parse_task.Setup(rows=setup.rows, seed=setup.seed))
    records.write_records(setup.path, ex_input.serialize_examples(made))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="in the file")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=100, help="steps in a lap")
    parser.add_argument("--tf-python", help="a Python with TensorFlow 2.15.1")
    parser.add_argument("--without-tf", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
