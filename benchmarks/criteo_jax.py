"""Racers written by hand in JAX: the dense layers alone, and all with plain optax.

- `dense_layers`: the hidden layers, their update and the gradient of their input, on
  inputs that lie ready. Looking up and updating tables comes on top: the limit.
- `naive`: tables as ordinary parameters, `jax.grad`, `optax.adagrad`; what one writes
  first. Its gradients and updates are as large as the tables.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from criteo import Setup, checksum, examples
from pacing import Pacer

Tree = Any


def main() -> None:
    kind, argument = sys.argv[1].split(":", 1)
    setup = Setup.from_json(argument)
    features, labels = examples(setup)
    pacer = Pacer(setup.warmup, data=checksum(features))
    make = {"dense_layers": dense_layers, "naive": naive}[kind]
    forward, params, batches = make(setup, features, labels)
    train(forward, params, batches, setup.learning_rate, pacer)


def dense_layers(setup: Setup, features: dict, labels: np.ndarray) -> tuple:
    """Layers on inputs that already lie on the device."""
    rng = np.random.default_rng(setup.seed)
    shape = (setup.batch_size, setup.input_width)
    inputs = [jnp.asarray(rng.normal(size=shape).astype(np.float32)) for _ in range(8)]
    targets = jnp.asarray(labels[: setup.batch_size], jnp.float32)

    def batches() -> Iterator[tuple]:
        while True:
            for x in inputs:
                yield x, targets

    return layers, {"layers": init_layers(setup, rng)}, batches()


def naive(setup: Setup, features: dict, labels: np.ndarray) -> tuple:
    """Tables as ordinary parameters; batches are handed to jit as NumPy arrays."""
    rng = np.random.default_rng(setup.seed)
    size = setup.batch_size
    ids = [features[f"c{i}"].astype(np.int32) for i in range(setup.categorical)]
    numbers = np.stack([features[f"n{i}"] for i in range(setup.numeric)], axis=1)
    shape = (setup.vocabulary, setup.dimension)
    tables = [jnp.asarray(rng.normal(0, 0.25, shape), jnp.float32) for _ in ids]

    def forward(params: Tree, batch: tuple) -> jax.Array:
        ids, numbers = batch
        looked_up = [t[i] for t, i in zip(params["tables"], ids, strict=True)]
        return layers(params, jnp.concatenate([*looked_up, numbers], axis=1))

    def batches() -> Iterator[tuple]:
        while True:
            for start in range(0, size * setup.batches, size):
                part = slice(start, start + size)
                target = labels[part].astype(np.float32)
                yield ([column[part] for column in ids], numbers[part]), target

    params = {"layers": init_layers(setup, rng), "tables": tables}
    return forward, params, batches()


def init_layers(setup: Setup, rng: np.random.Generator) -> list:
    widths = [setup.input_width, *setup.hidden_units, 1]
    return [
        (jnp.asarray(rng.normal(0, m**-0.5, (m, n)), jnp.float32), jnp.zeros(n))
        for m, n in itertools.pairwise(widths)
    ]


def layers(params: Tree, x: jax.Array) -> jax.Array:
    for kernel, bias in params["layers"][:-1]:
        x = jax.nn.relu(x @ kernel + bias)
    kernel, bias = params["layers"][-1]
    return (x @ kernel + bias)[:, 0]


def train(
    forward: Callable, params: Tree, batches: Iterator, rate: float, pacer: Pacer
) -> None:
    optimizer = optax.adagrad(rate)

    def loss_fn(params: Tree, x: Tree, target: jax.Array) -> jax.Array:
        logits = forward(params, x)
        return optax.sigmoid_binary_cross_entropy(logits, target).mean()

    def step(params: Tree, state: Tree, x: Tree, target: jax.Array) -> tuple:
        # What a table would be updated by: no training of embeddings can leave it out.
        wanted = (0, 1) if isinstance(x, jax.Array) else (0,)
        gradient = jax.value_and_grad(loss_fn, argnums=wanted)
        loss, (grads, *of_input) = gradient(params, x, target)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss, of_input

    compiled = jax.jit(step, donate_argnums=(0, 1))
    state = jax.jit(optimizer.init)(params)
    for count, (x, target) in enumerate(batches, 1):
        params, state, loss, _ = compiled(params, state, x, target)
        if count == pacer.stop_at:
            jax.block_until_ready((params, state))
            if not pacer.visit(count, float(loss)):
                return


if __name__ == "__main__":
    main()
