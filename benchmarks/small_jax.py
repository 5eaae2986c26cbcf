"""Racer: the small task as a hand-written JAX loop, fed by the same input thread.

What `Estimator.train` costs above this is the price of hooks, schedule and bookkeeping.
The loss is looked at every 100 steps, as the default hooks do.
"""

from __future__ import annotations

import sys
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
    setup = Setup.from_json(sys.argv[1])
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

    rows = ex.input.Dataset.from_tensor_slices((features, labels))
    source = iter(rows.repeat().batch(setup.batch_size))
    compiled = jax.jit(step, donate_argnums=0)
    with ex.input.prefetch_batches(source, place, depth=2) as batches:
        state: Any = None
        for count, (batch, _) in enumerate(batches, 1):
            if state is None:
                state = init(jax.random.key(setup.seed), batch)
            state, loss = compiled(state, batch)
            if count % 100 == 0:
                assert np.isfinite(float(loss))
            if count == pacer.stop_at:
                jax.block_until_ready(state)
                if not pacer.visit(count, float(loss)):
                    return


def place(element: Any) -> Any:
    features, labels = element
    return jax.device_put((features, labels.astype(np.int32)))


if __name__ == "__main__":
    main()
