"""Racer: `bundle.predict` of a model that `ex.DNNClassifier` exported."""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import version

import numpy as np
import predict_task
from predict_task import BUCKETS, HIDDEN, NUMBERS, WIDTH, WORDS, Setup

import estimax as ex
from estimax import feature_columns as fc


def main() -> None:
    setup = Setup.from_json(sys.argv[1])
    hashed = [fc.categorical_column_with_hash_bucket(name, BUCKETS) for name in WORDS]
    columns = [
        *(fc.numeric_column(name) for name in NUMBERS),
        *(fc.embedding_column(column, WIDTH) for column in hashed),
    ]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        model = ex.DNNClassifier(HIDDEN, columns, model_dir=f"{folder}/model")
        batch = (predict_task.request(64, 1), np.arange(64) % 2)
        model.train(lambda: batch, steps=1)
        bundle = ex.export.load(model.export_saved_model(f"{folder}/export"))
        names = ("estimax", "jax", "numpy")
        predict_task.race(
            setup, bundle.predict, {name: version(name) for name in names}
        )


if __name__ == "__main__":
    main()
