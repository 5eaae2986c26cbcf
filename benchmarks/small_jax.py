"""Racers: the small task as hand-written JAX loops, fed by the same input thread.

- `step`: a compiled step for every batch, as one writes it first;
- `scan`: 32 batches stacked, and one compiled scan over them, as one writes it when the
  first was too slow.

The loss is looked at every 100 steps or so, as the default hooks do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from criteo import checksum
from flax import linen as nn
from pacing import Pacer
from small_dnn import Setup, examples

import estimax as ex
from estimax.input.streams.background import Background

SCANNED = 32


class Net(nn.Module):
    """Two hidden layers and a logit."""

    hidden_units: tuple[int, ...]

    @nn.compact
    def __call__(self, features: dict[str, jax.Array]) -> jax.Array:
        """Logits [B]."""
        x = jnp.concatenate([features[name] for name in sorted(features)], axis=1)
        for units in self.hidden_units:
            x = nn.relu(nn.Dense(units)(x))
        return nn.Dense(1)(x)[:, 0]


def main() -> None:
    kind, argument = sys.argv[1].split(":", 1)
    setup = Setup.from_json(argument)
    features, labels = examples(setup)
    pacer = Pacer(setup.warmup, data=checksum(features))
    net = Net(setup.hidden_units)
    optimizer = optax.adagrad(setup.learning_rate)

    def loss_fn(params: Any, batch: Any) -> jax.Array:
        logits = net.apply({"params": params}, batch[0])
        return optax.sigmoid_binary_cross_entropy(logits, batch[1]).mean()

    @jax.jit
    def init(key: jax.Array, batch: Any) -> Any:
        params = net.init(key, batch[0])["params"]
        return params, optimizer.init(params)

    def step(state: Any, batch: Any) -> Any:
        params, slots = state
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, slots = optimizer.update(grads, slots, params)
        return (optax.apply_updates(params, updates), slots), loss

    def scan(state: Any, batches: Any) -> Any:
        state, losses = jax.lax.scan(step, state, batches)
        return state, losses[-1]

    rows = ex.input.Dataset.from_tensor_slices((features, labels))
    source = iter(rows.repeat().batch(setup.batch_size))
    length = SCANNED if kind == "scan" else 1
    compiled = jax.jit(scan if kind == "scan" else step, donate_argnums=0)
    groups = stacks(source) if kind == "scan" else source
    with closing(Background(map(place, groups), depth=2)) as batches:
        state: Any = None
        looked_at = 0
        for count, batch in enumerate(batches, 1):
            done = count * length
            if state is None:
                first = jax.tree.map(lambda x: x[0], batch) if length > 1 else batch
                state = init(jax.random.key(setup.seed), first)
            state, loss = compiled(state, batch)
            if done >= looked_at + 100:
                looked_at = done
                assert np.isfinite(float(loss))
            if done >= pacer.stop_at:
                jax.block_until_ready(state)
                if not pacer.visit(done, float(loss)):
                    return


def stacks(source: Iterator[Any]) -> Iterator[Any]:
    while True:
        some = [next(source) for _ in range(SCANNED)]
        yield jax.tree.map(lambda *leaves: np.stack(leaves), *some)


def place(element: Any) -> Any:
    features, labels = element
    return jax.device_put((features, labels.astype(np.int32)))


if __name__ == "__main__":
    main()
