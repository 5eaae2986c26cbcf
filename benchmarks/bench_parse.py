"""Examples a second from a TFRecord file: `ex.input` beside tf.data, on both cores.

    python benchmarks/bench_parse.py --rounds 5 --steps 300

A file of 40-feature examples (label, 13 floats, 26 short strings) is made, then raced
through twice: parsed to columns, and parsed with the strings hashed to 100,000 buckets.
Checksums are on in both. Bars: 6 times tf.data for parsing, 5 times with hashing.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import machine
from environments import tf_python
from parse_task import Setup, columns
from race import Race, Racer, ratios, summary, tell

BARS = {"parse": 6.0, "parse and hash": 5.0}
_BUCKETS = {"parse": 0, "parse and hash": 100_000}


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = str(Path(folder) / "criteo.tfrecord")
        setup = Setup(path=path, rows=options.rows, batch_size=options.batch_size)
        size = _write(setup)
        load = machine.load()
        races = {
            what: _race(replace(setup, buckets=buckets), Path(folder), options)
            for what, buckets in _BUCKETS.items()
        }
    found = [told["ratio"] for told in races.values() if "ratio" in told]
    machine.write_result(
        "parse",
        {
            "setup": asdict(replace(setup, path="")),
            "bytes_per_example": round(size / setup.rows),
            "load": {"before": load, "after": machine.load()},
            "versions": races["parse"]["versions"],
            "racers": {
                f"{name}, {what}": told
                for what, race in races.items()
                for name, told in race["racers"].items()
            },
            "ratios": found,
            "bars": BARS,
            "within_bars": [
                told["median"] >= bar
                for told, bar in zip(found, BARS.values(), strict=False)
            ],
            "laps": {what: race["laps"] for what, race in races.items()},
        },
    )


def _write(setup: Setup) -> int:
    from estimax import input as ex_input
    from estimax.formats import records

    tell(f"writing {setup.rows:,} examples")
    records.write_records(setup.path, ex_input.serialize_examples(columns(setup)))
    return Path(setup.path).stat().st_size


def _race(setup: Setup, logs: Path, options: argparse.Namespace) -> dict[str, Any]:
    racers = [Racer("estimax", "parse_estimax.py", setup.to_json())]
    if not options.without_tf:
        python = tf_python(options.tf_python)
        steps = max(options.steps // 5, 10)  # too slow to keep up
        racers.append(Racer("tf.data", "parse_tf.py", setup.to_json(), python, steps))
    with Race(racers, logs) as race:
        laps = race.run(rounds=options.rounds, steps=options.steps, settle=20)
        told = {
            "racers": summary(laps, batch_size=setup.batch_size),
            "versions": race.versions,
            "laps": laps,
        }
    if not options.without_tf:
        told["ratio"] = ratios(laps, "tf.data", "estimax")
    return told


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="in the file")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=1000, help="batches in a lap")
    parser.add_argument("--tf-python", help="a Python with TensorFlow 2.15.1")
    parser.add_argument("--without-tf", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
