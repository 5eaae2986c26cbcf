"""What a training step costs as its tables grow: it should cost the same.

    python benchmarks/bench_vocabulary.py

The Criteo-shaped task of `bench_criteo.py` with tables of 10,000, 100,000 and
1,000,000 rows, in one race. Bar: the largest within 1.2 times of the smallest.

Ids are uniform by default: a batch of 1024 then names 975 to 1024 distinct rows of each
table, whatever its size, so only the size differs. With `--ids power_law` a batch over
a million ids names a third more distinct rows than one over ten thousand, and a step
has that much more to do.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import machine
from criteo import Setup
from race import Race, Racer, ratios, summary, tell

BAR = 1.2
# Making a state takes it once more for a moment; the rest is the libraries.
_COPIES, _REST_BYTES = 2, 1_000_000_000


def main() -> None:
    options = _options()
    setups = {
        v: replace(Setup(), vocabulary=v, ids=options.ids)
        for v in sorted(options.vocabularies)
    }
    _check_memory(list(setups.values()))
    racers = [
        Racer(f"{v:,}", "criteo_estimax.py", s.to_json()) for v, s in setups.items()
    ]
    load = machine.load()
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as logs,
        Race(racers, Path(logs), same_data=False) as race,
    ):
        laps = race.run(rounds=options.rounds, steps=options.steps)
    names = [racer.name for racer in racers]
    against = [ratios(laps, name, names[0]) for name in names[1:]]
    machine.write_result(
        "vocabulary",
        {
            "ids": options.ids,
            "load": {"before": load, "after": machine.load()},
            "racers": summary(laps, batch_size=Setup().batch_size),
            "ratios": against,
            "bar": BAR,
            "within_bar": against[-1]["median"] <= BAR,
            "laps": laps,
        },
    )


def _check_memory(setups: list[Setup]) -> None:
    held = sum(setup.state_bytes + _REST_BYTES for setup in setups)
    needed = held + (_COPIES - 1) * max(setup.state_bytes for setup in setups)
    available = machine.available_bytes()
    tell(f"needs about {needed / 1e9:.1f} GB of {available / 1e9:.1f} GB available")
    if needed > available:
        raise SystemExit(
            "not enough memory; give smaller --vocabularies, or end other programs."
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    sizes = [10_000, 100_000, 1_000_000]
    parser.add_argument("--vocabularies", type=int, nargs="+", default=sizes)
    parser.add_argument("--ids", choices=["uniform", "power_law"], default="uniform")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=100, help="steps in a lap")
    return parser.parse_args()


if __name__ == "__main__":
    main()
