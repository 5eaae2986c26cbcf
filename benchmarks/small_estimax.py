"""Racer: `ex.DNNClassifier.train` on the small task, with all its default hooks."""

from __future__ import annotations

import sys
import tempfile

from criteo import checksum
from estimax_pacing import PacingHook, versions
from pacing import Pacer
from small_dnn import Setup, examples

import estimax as ex


def main() -> None:
    setup = Setup.from_json(sys.argv[1])
    features, labels = examples(setup)
    pacer = Pacer(setup.warmup, data=checksum(features), versions=versions())

    def input_fn() -> ex.input.Dataset:
        rows = ex.input.Dataset.from_tensor_slices((features, labels))
        return rows.repeat().batch(setup.batch_size)

    columns = [
        ex.feature_columns.numeric_column(name, shape=(setup.width,))
        for name in features
    ]
    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        estimator = ex.DNNClassifier(
            hidden_units=setup.hidden_units,
            feature_columns=columns,
            model_dir=model_dir,
            optimizer=ex.optimizers.Adagrad(setup.learning_rate),
            config=ex.RunConfig(tf_random_seed=setup.seed),
        )
        estimator.train(input_fn, hooks=[PacingHook(pacer)])


if __name__ == "__main__":
    main()
