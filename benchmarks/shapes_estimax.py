"""Racer: the convolutional networks of shapes_task.py in a `model_fn` of estimax."""

from __future__ import annotations

import sys
import tempfile

import flax.linen as nn
import jax.numpy as jnp
from criteo import checksum
from estimax_pacing import PacingHook, versions
from pacing import Pacer
from shapes_task import Setup, examples

import estimax as ex


def network(x, setup: Setup):
    """Return the logits, as a program for Flax writes them."""
    if setup.words:
        net = nn.Embed(setup.vocabulary, setup.width)(x)
        found = [
            nn.relu(nn.Conv(setup.filters, (span,), padding="VALID")(net)).max(axis=1)
            for span in setup.spans
        ]
        net = jnp.concatenate(found, axis=-1)
    else:
        net = x
        for filters in (32, 64):
            net = nn.relu(nn.Conv(filters, (5, 5))(net))
            net = nn.max_pool(net, (2, 2), strides=(2, 2))
        net = nn.relu(nn.Dense(1024)(net.reshape(len(net), -1)))
    return nn.Dense(setup.classes)(net)


def model_fn(features, labels, mode, params):
    logits = network(features["x"], params["setup"])
    head = ex.heads.MultiClassHead(params["setup"].classes)
    optimizer = ex.optimizers.Adagrad(params["setup"].learning_rate)
    return head.create_estimator_spec(
        features, mode, logits, labels, optimizer=optimizer
    )


def main() -> None:
    setup = Setup.from_json(sys.argv[1])
    features, labels = examples(setup)
    pacer = Pacer(setup.warmup, data=checksum(features), versions=versions())

    def input_fn() -> ex.input.Dataset:
        rows = ex.input.Dataset.from_tensor_slices((features, labels))
        return rows.repeat().batch(setup.batch_size)

    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        config = ex.RunConfig(
            tf_random_seed=setup.seed, iterations_per_loop=setup.iterations_per_loop
        )
        model = ex.Estimator(model_fn, model_dir, config, params={"setup": setup})
        model.train(input_fn, hooks=[PacingHook(pacer)])


if __name__ == "__main__":
    main()
