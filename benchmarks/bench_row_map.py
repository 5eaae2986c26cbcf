"""Rows a second through `map` before `batch`, and after it: `ex.input` beside tf.data.

    python benchmarks/bench_row_map.py --rounds 5 --steps 300

Lines of four CSV fields (`decode_csv`), records of 17 features (`parse_single_example`)
and plain arithmetic, in batches of 128 on one thread. Bars: the literal idioms, which
map rows, twice the speed of tf.data; `decode_csv` of batches 1.5 times.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import machine
import row_map_task as task
from environments import tf_python
from race import Race, Racer, ratios, summary, tell

# name: kind, batched first, bar
_RACES: dict[str, tuple[str, bool, float | None]] = {
    "decode_csv, rows": ("csv", False, 2.0),
    "decode_csv, batches": ("csv", True, 1.5),
    "parse_example, rows": ("records", False, 2.0),
    "parse_example, batches": ("records", True, None),
    "arithmetic, rows": ("arithmetic", False, None),
    "arithmetic, batches": ("arithmetic", True, None),
}


def main() -> None:
    options = _options()
    setup = task.Setup(rows=options.rows, batch_size=options.batch_size)
    load = machine.load()
    races: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        paths = _write(setup, Path(folder))
        for name, (kind, batched_first, _) in _RACES.items():
            tell(name)
            one = replace(
                setup,
                kind=kind,
                batched_first=batched_first,
                path=paths.get(kind, ""),
            )
            races[name] = _race(one, Path(folder), options)
    bars = {name: bar for name, (_, _, bar) in _RACES.items() if bar}
    machine.write_result(
        "row_map",
        {
            "setup": asdict(setup),
            "load": {"before": load, "after": machine.load()},
            "versions": races["decode_csv, rows"]["versions"],
            "racers": {
                f"{racer}, {name}": told
                for name, race in races.items()
                for racer, told in race["racers"].items()
            },
            "ratios": [
                {**race["ratio"], "what": f"{race['ratio']['what']}: {name}"}
                for name, race in races.items()
                if "ratio" in race
            ],
            "bars": bars,
            "within_bars": {
                name: races[name]["ratio"]["median"] >= bar
                for name, bar in bars.items()
                if "ratio" in races[name]
            },
            "laps": {name: race["laps"] for name, race in races.items()},
        },
    )


def _write(setup: task.Setup, folder: Path) -> dict[str, str]:
    from estimax import input as ex_input
    from estimax.formats.records import write_records

    tell(f"writing {setup.rows:,} rows")
    text, records = folder / "rows.csv", folder / "rows.tfrecord"
    text.write_text("\n".join(task.lines(setup)) + "\n")
    write_records(str(records), ex_input.serialize_examples(task.columns(setup)))
    return {"csv": str(text), "records": str(records)}


def _race(setup: task.Setup, logs: Path, options: argparse.Namespace) -> dict[str, Any]:
    racers = [Racer("estimax", "row_map_estimax.py", setup.to_json())]
    if not options.without_tf:
        python = tf_python(options.tf_python)
        # Mapping rows, tf.data is too slow to keep up.
        steps = options.steps if setup.batched_first else max(options.steps // 5, 10)
        racers.append(Racer("tf.data", "row_map_tf.py", setup.to_json(), python, steps))
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
    parser.add_argument("--rows", type=int, default=100_000, help="in the files")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1000, help="batches in a lap")
    parser.add_argument("--tf-python", help="a Python with TensorFlow 2.15.1")
    parser.add_argument("--without-tf", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
