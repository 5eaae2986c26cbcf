"""Racer: the tf.estimator version of a port, with its own settings.

Runs in an environment of its own with TensorFlow 2.15.1; never beside JAX.
"""

from __future__ import annotations

import os
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import ports_task as task
from pacing import Pacer
from tf_pacing import PacingHook, versions


def main() -> None:
    setup = task.Setup.from_json(sys.argv[1])
    pacer = Pacer(setup.warmup, versions=versions())
    program = task.load(task.VERSIONS[setup.port][0])
    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        estimator, input_fn = task.build(setup, program, model_dir)
        estimator.train(input_fn, hooks=[PacingHook(pacer)])


if __name__ == "__main__":
    main()
