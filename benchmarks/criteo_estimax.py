"""Racer: `ex.DNNClassifier.train` on the Criteo-shaped task."""

from __future__ import annotations

import sys
import tempfile

import jax
from criteo import Setup, checksum, examples
from estimax_pacing import PacingHook, versions
from pacing import Pacer

import estimax as ex


def main() -> None:
    setup = Setup.from_json(sys.argv[1])
    features, labels = examples(setup)
    pacer = Pacer(setup.warmup, data=checksum(features), versions=versions())

    def input_fn() -> ex.input.Dataset:
        rows = ex.input.Dataset.from_tensor_slices((features, labels))
        return rows.repeat().batch(setup.batch_size)

    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        estimator = ex.DNNClassifier(
            hidden_units=setup.hidden_units,
            feature_columns=columns(setup),
            model_dir=model_dir,
            optimizer=ex.optimizers.Adagrad(setup.learning_rate),
            # As in criteo_tf.py: nothing saved, no summaries, a log line in 100 steps.
            config=ex.RunConfig(
                tf_random_seed=setup.seed,
                save_summary_steps=None,
                save_checkpoints_steps=None,
                log_step_count_steps=100,
            ),
        )
        estimator.train(input_fn, hooks=[PacingHook(pacer)])


def columns(setup: Setup) -> list[object]:
    fc = ex.feature_columns
    numbers = [fc.numeric_column(f"n{i}") for i in range(setup.numeric)]
    ids = [
        fc.categorical_column_with_identity(f"c{i}", setup.vocabulary)
        for i in range(setup.categorical)
    ]
    return [*numbers, *(fc.embedding_column(c, setup.dimension) for c in ids)]


if __name__ == "__main__":
    assert jax.default_backend() == "cpu", "the other racers run on the CPU"
    main()
