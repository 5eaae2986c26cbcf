"""Trains or evaluates, as TF_CONFIG says: python chief_or_evaluator.py MODEL_DIR STEPS.

The data ends before the last step, so that only the chief knows when training ends.
"""

import logging
import sys

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

import estimax as ex


def model_fn(features, labels, mode):
    y = nn.Dense(1, name="line")(features["x"])
    if mode == ex.ModeKeys.PREDICT:
        return ex.EstimatorSpec(mode, predictions={"y": y})
    loss = jnp.mean(jnp.square(y - labels))
    return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.SGD(0.01))


def data(rows):
    x = np.linspace(0, 1, rows, dtype=np.float32)[:, None]
    return lambda: ex.input.Dataset.from_tensor_slices(({"x": x}, 2 * x)).batch(4)


def main(model_dir, steps):
    logging.basicConfig(level=logging.INFO)
    config = ex.RunConfig(model_dir, save_checkpoints_steps=5)
    estimator = ex.Estimator(model_fn, config=config)
    ex.train_and_evaluate(
        estimator,
        ex.TrainSpec(data(4 * steps), max_steps=10 * steps),
        ex.EvalSpec(
            data(8),
            start_delay_secs=0,
            throttle_secs=0.1,
            exporters=ex.FinalExporter("final"),
        ),
    )
    print("done as", config.task_type)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
