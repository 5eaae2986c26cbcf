"""Racer: the estimax version of a port, with its own settings."""

from __future__ import annotations

import sys
import tempfile

import jax
import ports_task as task
from estimax_pacing import PacingHook, versions
from pacing import Pacer


def main() -> None:
    setup = task.Setup.from_json(sys.argv[1])
    pacer = Pacer(setup.warmup, versions=versions())
    program = task.load(task.VERSIONS[setup.port][1])
    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        estimator, input_fn = task.build(setup, program, model_dir)
        estimator.train(input_fn, hooks=[PacingHook(pacer)])


if __name__ == "__main__":
    assert jax.default_backend() == "cpu", "the other racers run on the CPU"
    main()
