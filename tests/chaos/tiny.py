"""A tiny model with everything a checkpoint saves: table, layer, slots, input position.

estimator = make_estimator(folder)
estimator.train(input_fn, max_steps=STEPS)
bits(checkpoints.restore_latest(folder).arrays)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

import estimax as ex
from estimax import checkpoints

STEPS = 12
SAVE_STEPS = 4
ROWS = 40
REQUEST = {"age": [0.1, 0.9, 0.5], "city": ["c1", "c7", "never seen"]}

fc = ex.feature_columns


def model_fn(features: Any, labels: Any, mode: Any) -> ex.EstimatorSpec:
    """A linear model of a number and an embedding."""
    city = fc.categorical_column_with_hash_bucket("city", 20)
    columns = [fc.numeric_column("age"), fc.embedding_column(city, 2)]
    y = nn.Dense(1, name="line")(fc.input_layer(features, columns))
    if mode == ex.ModeKeys.PREDICT:
        return ex.EstimatorSpec(mode, predictions={"y": y})
    loss = jnp.mean(jnp.square(y[:, 0] - labels))
    return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.Adam(0.01))


def rows() -> ex.input.Dataset:
    """Return a few examples: a number, a string and a label."""
    draw = np.random.default_rng(0)
    features = {
        "age": draw.random(ROWS, np.float32),
        "city": np.array([f"c{i % 9}" for i in range(ROWS)], object),
    }
    return ex.input.Dataset.from_tensor_slices(
        (features, draw.random(ROWS, np.float32))
    )


def input_fn() -> ex.input.Dataset:
    """Return shuffled batches, repeated forever."""
    return rows().shuffle(ROWS, seed=3).repeat().batch(8)


def make_estimator(model_dir: Path) -> ex.Estimator:
    """Return an estimator that saves a checkpoint every SAVE_STEPS steps."""
    config = ex.RunConfig(
        tf_random_seed=1, save_checkpoints_steps=SAVE_STEPS, keep_checkpoint_max=3
    )
    return ex.Estimator(model_fn, str(model_dir), config)


def train(model_dir: Path, hooks: Sequence[Any] = ()) -> None:
    """Train to the last step."""
    make_estimator(model_dir).train(input_fn, hooks=hooks, max_steps=STEPS)


def final(model_dir: Path) -> Any:
    """Return the checkpoint of the last step as values that compare with ==."""
    found = checkpoints.read(checkpoints.path_of(model_dir, STEPS))
    return found.step, bits(found.arrays), found.extra


def bits(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return arrays as values that compare with ==, bit by bit."""
    return {
        name: (str(array.dtype), tuple(array.shape), np.asarray(array).tobytes())
        for name, array in arrays.items()
    }
