"""Racer: Keras 3 on JAX, `Model.fit` on the Criteo-shaped task.

Runs in an environment of its own with Keras and the JAX that estimax runs on.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"
import keras
import numpy as np
from criteo import Setup, checksum, examples
from pacing import Pacer


class Pace(keras.callbacks.Callback):
    """Calls the pacer at its steps; Keras has waited for the loss by then."""

    def __init__(self, pacer: Pacer) -> None:
        super().__init__()
        self._pacer = pacer
        self._step = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Report the lap and wait for the next."""
        self._step += 1
        if self._step < self._pacer.stop_at:
            return
        if not self._pacer.visit(self._step, float((logs or {}).get("loss", 0.0))):
            os._exit(0)  # Keras would finish its epoch first


def main() -> None:
    setup = Setup.from_json(sys.argv[1])
    features, labels = examples(setup)
    versions = {name: version(name) for name in ("keras", "jax", "jaxlib", "numpy")}
    pacer = Pacer(setup.warmup, data=checksum(features), versions=versions)
    model = make_model(setup)
    model.compile(
        optimizer=keras.optimizers.Adagrad(setup.learning_rate),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
    )
    model.fit(
        {name: column.astype(_dtype(column)) for name, column in features.items()},
        labels.astype(np.float32),
        batch_size=setup.batch_size,
        epochs=10**6,
        shuffle=False,
        verbose=0,
        callbacks=[Pace(pacer)],
    )


def make_model(setup: Setup) -> keras.Model:
    numbers = [
        keras.Input((1,), name=f"n{i}", dtype="float32") for i in range(setup.numeric)
    ]
    ids = [
        keras.Input((), name=f"c{i}", dtype="int32") for i in range(setup.categorical)
    ]
    rows = [
        keras.layers.Embedding(setup.vocabulary, setup.dimension)(one) for one in ids
    ]
    net = keras.layers.Concatenate()([*rows, *numbers])
    for units in setup.hidden_units:
        net = keras.layers.Dense(units, activation="relu")(net)
    return keras.Model([*numbers, *ids], keras.layers.Dense(1)(net))


def _dtype(column: np.ndarray) -> type:
    return np.float32 if column.dtype == np.float32 else np.int32


if __name__ == "__main__":
    main()
