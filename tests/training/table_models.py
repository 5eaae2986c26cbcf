"""Small models with tables, and how to train them without an Estimator."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from estimax import staging, training
from estimax.core.spec import EstimatorSpec, ModeKeys
from estimax.staging import host_plan as plans
from estimax.staging import variables
from estimax.staging.packing import pack

V, D = 6, 2


@dataclass(frozen=True)
class PlainIds:
    """The least host work there is: ids as they are."""

    key: str

    @property
    def name(self):
        return self.key

    @property
    def keys(self):
        return (self.key,)

    def __call__(self, raw):
        return np.asarray(raw[self.key], np.int32)


def first_values(key, shape):
    return jnp.arange(np.prod(shape), dtype=jnp.float32).reshape(shape) / 8


class Table(nn.Module):
    """Rows of a table for ids [B, L], summed over L; -1 is nothing."""

    trainable: bool = True

    @nn.compact
    def __call__(self, ids):
        rows = variables.lookup(
            self, "rows", (V, D), first_values, ids, trainable=self.trainable
        )
        return jnp.sum(jnp.where(ids[..., None] < 0, 0.0, rows), axis=1)


class DenseTable(nn.Module):
    """The same as an ordinary parameter, whose gradient is as large as itself."""

    @nn.compact
    def __call__(self, ids):
        table = self.param("rows", first_values, (V, D))
        rows = table[jnp.maximum(ids, 0)]
        return jnp.sum(jnp.where(ids[..., None] < 0, 0.0, rows), axis=1)


def host_ids(features, key="a"):
    return staging.stage(PlainIds(key), features)


def device_ids(features, key="a"):
    return features[key].astype(jnp.int32) + 0


def model_of(net, train_op):
    """A model function whose loss pulls net(features) [B, D] towards the labels."""

    def function(features, labels):
        loss = jnp.mean(jnp.square(net(features) - labels))
        return EstimatorSpec(ModeKeys.TRAIN, loss=loss, train_op=train_op)

    return function


def batch_of(a, b=None):
    """A raw batch of ids and labels that depend on the row."""
    features = {"a": np.array(a)}
    if b is not None:
        features["b"] = np.array(b)
    labels = np.arange(len(a) * D, dtype=np.float32).reshape(len(a), D)
    return plans.flatten(features, labels)


def program_of(model, batch):
    return training.compile(training.record(model, batch, ModeKeys.TRAIN))


def train(model, batches):
    """One step for each raw batch; returns the program and the last state."""
    program = program_of(model, batches[0])
    prepared = [pack(program.plan.prepare(batch)) for batch in batches]
    state = program.init(jax.random.key(0), prepared[0])
    for batch in prepared:
        state, _ = program.step(state, batch)
    return program, state


DUPLICATES = [
    batch_of([[0, 2], [2, 2], [5, -1], [0, 5]]),
    batch_of([[2, 2], [2, 2], [2, 3], [-1, -1]]),
    batch_of([[5, 5], [0, -1], [3, 3], [5, 0]]),
]
