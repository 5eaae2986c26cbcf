"""Racer: `ex.input.make_csv_dataset` on the CSV task, with TensorFlow's arguments."""

from __future__ import annotations

import sys

from csv_task import Setup
from estimax_pacing import versions
from pacing import Pacer

from estimax import input as inputs


def main() -> None:
    setup = Setup.from_json(sys.argv[1])
    pacer = Pacer(setup.warmup, versions=versions())
    data = inputs.make_csv_dataset(
        setup.path,
        setup.batch_size,
        label_name="label",
        shuffle=setup.shuffle,
        shuffle_seed=setup.seed,
    )
    with iter(data) as batches:
        for step, (_, label) in enumerate(batches, 1):
            if step == pacer.stop_at and not pacer.visit(step, float(label.mean())):
                break


if __name__ == "__main__":
    main()
