"""Racer: `ex.DNNLinearCombinedClassifier` on the flights, its answers in a file."""

from __future__ import annotations

import sys
import tempfile

import numpy as np
from flights_task import Setup, columns, flights

import estimax as ex


def main() -> None:
    setup = Setup.from_json(sys.argv[1])
    train, labels, test, _ = flights(setup)
    wide, deep = columns(ex.feature_columns, setup.dimension)

    def input_fn() -> ex.input.Dataset:
        rows = ex.input.Dataset.from_tensor_slices((train, labels))
        return rows.repeat().batch(setup.batch_size)

    def test_input_fn() -> ex.input.Dataset:
        return ex.input.Dataset.from_tensor_slices(test).batch(4096)

    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        model = ex.DNNLinearCombinedClassifier(
            model_dir,
            wide,
            ex.optimizers.Ftrl(
                setup.linear_rate, l1_regularization_strength=setup.linear_l1
            ),
            deep,
            ex.optimizers.Adagrad(setup.dnn_rate),
            setup.hidden_units,
            dnn_dropout=setup.dropout,
            config=ex.RunConfig(tf_random_seed=setup.seed),
        )
        model.train(input_fn, steps=setup.steps)
        answers = [one["logistic"][0] for one in model.predict(test_input_fn)]
    np.save(setup.answers, np.array(answers))


if __name__ == "__main__":
    main()
