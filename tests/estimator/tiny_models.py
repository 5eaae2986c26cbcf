"""Tiny models and data that the tests of this package share."""

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

import estimax as ex
from estimax.hooks import CheckpointSaverListener, Hook
from estimax.input import Dataset

X = np.arange(8, dtype=np.float32).reshape(8, 1)


def line_model_fn(features, labels, mode):
    """A line through the data: one weight, one bias."""
    y = nn.Dense(1, name="line")(features["x"])
    if mode == ex.ModeKeys.PREDICT:
        return ex.EstimatorSpec(mode, predictions={"y": y, "twice": 2 * y})
    return ex.EstimatorSpec(
        mode,
        loss=jnp.mean(jnp.square(y - labels)),
        train_op=ex.optimizers.SGD(0.01),
        eval_metric_ops={"error": ex.metrics.mean(jnp.abs(y - labels))},
    )


def echo_model_fn(features, mode):
    """Its loss is the mean of the batch's x, so that losses tell which data it saw."""
    unused = nn.Dense(1, name="line")(features["x"])
    loss = jnp.mean(features["x"]) + 0.0 * jnp.sum(unused)
    return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.SGD(0.1))


def data(batch=2, *, repeat=None, rows=8):
    """An input_fn of x = 0, 1, … and y = x / 2, in order."""
    x = X[:rows]

    def input_fn():
        dataset = Dataset.from_tensor_slices(({"x": x}, x / 2))
        return (dataset if repeat == 1 else dataset.repeat(repeat)).batch(batch)

    return input_fn


def once(batch=2, rows=8):
    """One pass over the data."""
    return data(batch, repeat=1, rows=rows)


def features_only(batch=2, *, repeat=None):
    """As `data`, without labels."""
    return lambda: Dataset.from_tensor_slices({"x": X}).repeat(repeat).batch(batch)


class Recorder(Hook):
    """Notes every call, with the step, in a list that several may share."""

    def __init__(self, name="hook", log=None):
        self.name = name
        self.log = [] if log is None else log

    def begin(self, context):
        self.log.append((self.name, "begin", context.step))

    def before_run(self, context):
        self.log.append((self.name, "before_run", context.step))

    def after_run(self, context, values):
        self.log.append((self.name, "after_run", context.step))

    def end(self, context):
        self.log.append((self.name, "end", context.step))


class Losses(Hook):
    """Keeps the loss of every step."""

    def __init__(self):
        self.seen = []

    def before_run(self, context):
        return ["loss"]

    def after_run(self, context, values):
        self.seen.append(float(values["loss"]))


class Saves(CheckpointSaverListener):
    """Keeps the step of every checkpoint."""

    def __init__(self):
        self.steps = []

    def after_save(self, step, path):
        self.steps.append(step)


class InterruptedTrainingError(Exception):
    """What ends a run before its time."""


class InterruptsAt(Hook):
    def __init__(self, step):
        self.step = step

    def after_run(self, context, values):
        if context.step == self.step:
            raise InterruptedTrainingError
