"""A small wide-and-deep model and its data, for runs on one device and on eight."""

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

import estimax as ex

ROWS = 43  # of the tables: not a multiple of the number of devices
DEEP = "deep/city_embedding/embedding_weights"
WIDE = "wide/city/weights"

fc = ex.feature_columns


def data(examples=80, seed=0):
    rng = np.random.default_rng(seed)
    features = {
        "x": rng.normal(size=examples).astype(np.float32),
        "city": rng.integers(0, ROWS, (examples, 2)),
    }
    labels = (features["x"] + features["city"][:, 0] % 5 > 2).astype(np.float32)
    return features, labels


def input_fn(examples=80, batch=16):
    return lambda: ex.input.Dataset.from_tensor_slices(data(examples)).batch(batch)


def model_fn(features, labels, mode, params):
    city = fc.categorical_column_with_identity("city", ROWS)
    deep = [fc.numeric_column("x"), fc.embedding_column(city, 3)]
    net = fc.input_layer(features, deep, name="deep")
    net = nn.Dropout(0.2, deterministic=mode != ex.ModeKeys.TRAIN)(nn.Dense(8)(net))
    net = nn.BatchNorm(use_running_average=mode != ex.ModeKeys.TRAIN)(net)
    logits = nn.Dense(1)(nn.relu(net)) + fc.linear_model(features, [city], name="wide")
    return ex.heads.BinaryClassHead().create_estimator_spec(
        features, mode, logits, labels, optimizer=params["optimizer"]
    )


def every_optimizer_fn(features, labels, mode):
    """A table, a weight and an optimizer for each of `OPTIMIZERS`; losses are added."""
    city = fc.categorical_column_with_identity("city", ROWS)
    losses, updates = [], []
    for name, optimizer in OPTIMIZERS.items():
        block = fc.input_layer(features, [fc.embedding_column(city, 2)], name=name)
        weights = ex.get_variable(f"{name}_w", (2,))
        losses.append(jnp.mean((block @ weights + features["x"] - labels) ** 2))
        ex.log_value(name, losses[-1])
        updates.append(ex.optimizers.minimize(optimizer(), var_list=f"^{name}[/_]"))
    return ex.EstimatorSpec(
        mode, loss=sum(losses), train_op=ex.optimizers.group(*updates)
    )


def config(model_dir=None, **settings):
    usual = {
        "tf_random_seed": 1,
        "save_summary_steps": 0,
        "save_checkpoints_secs": 600,
        "iterations_per_loop": 1,
    }
    return ex.RunConfig(model_dir, **usual | settings)


def estimator(optimizer="Adagrad", model_dir=None, function=model_fn, **settings):
    if isinstance(optimizer, str):
        optimizer = OPTIMIZERS[optimizer]()
    params = {"optimizer": optimizer} if function is not every_optimizer_fn else None
    return ex.Estimator(function, config=config(model_dir, **settings), params=params)


OPTIMIZERS = {
    "Adagrad": lambda: ex.optimizers.Adagrad(0.1),
    "Ftrl": lambda: ex.optimizers.Ftrl(0.1, l1_regularization_strength=1e-3),
    "LazyAdam": lambda: ex.optimizers.LazyAdam(0.01),
    "Adam": lambda: ex.optimizers.Adam(0.01),
    "Momentum": lambda: ex.optimizers.Momentum(0.05, 0.9),
}
# One table of each kind.
MIXED = {"devices": 8, "shard_tables": {"^deep": True, "^wide": False}}
SHARDED = {"devices": 8, "shard_tables_above": 0}


class Losses(ex.hooks.Hook):
    """Keep the loss of every step."""

    def __init__(self):
        self.values = []

    def before_run(self, context):
        return ["loss"]

    def after_run(self, context, values):
        self.values.append(float(values["loss"]))


def losses(model, steps=None, make=None):
    kept = Losses()
    model.train(make or input_fn(), hooks=[kept], steps=steps)
    return np.array(kept.values)


def assert_same_variables(one, other, rtol=1e-4):
    assert one.get_variable_names() == other.get_variable_names()
    for name in one.get_variable_names():
        mine, theirs = one.get_variable_value(name), other.get_variable_value(name)
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=1e-6, err_msg=name)
