"""CSV files: batches a second of `make_csv_dataset` here and in TensorFlow.

    python benchmarks/bench_csv.py --rounds 5 --steps 200
    python benchmarks/bench_csv.py --files 10000 --in-order

40 columns (numbers, some missing, and text), shuffled in a buffer of 10,000, batches of
1024, in an endless loop over one file, for which the aim is 8 times TensorFlow's speed.
The rows can also be in many files. With 10,000 files of 10 rows, opening and parsing
each file takes most of the time; the aim is TensorFlow's speed.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

import machine
from csv_task import Setup, write_files
from environments import tf_python
from race import Race, Racer, ratios, summary, tell


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        name = "data.csv" if options.files == 1 else "data-*.csv"
        setup = Setup(
            str(Path(folder) / name),
            options.files,
            rows=options.rows,
            shuffle=not options.in_order,
        )
        tell("writing the data")
        write_files(setup)
        racers = [Racer("estimax", "csv_estimax.py", setup.to_json())]
        if not options.without_tf:
            python = tf_python(options.tf_python)
            racers.append(Racer("tf.data", "csv_tf.py", setup.to_json(), python))
        load = machine.load()
        with Race(racers, Path(folder)) as race:
            laps = race.run(rounds=options.rounds, steps=options.steps)
            versions = race.versions
    found = [] if options.without_tf else [ratios(laps, "tf.data", "estimax")]
    machine.write_result(
        "csv",
        {
            "setup": {**asdict(setup), "path": name},
            "load": {"before": load, "after": machine.load()},
            "versions": versions,
            "racers": summary(laps, batch_size=setup.batch_size),
            "ratios": found,
            "laps": laps,
        },
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument(
        "--files", type=int, default=1, help="among which rows are split"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200, help="batches in a lap")
    parser.add_argument("--in-order", action="store_true", help="do not shuffle")
    parser.add_argument("--tf-python", help="a Python with TensorFlow 2.15.1")
    parser.add_argument("--without-tf", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
