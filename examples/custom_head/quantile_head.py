"""Write a head of your own: predict quantiles of a number.

    python examples/custom_head/quantile_head.py

A head is a frozen dataclass that inherits from `ex.heads.BaseHead` and defines the
number of logits, the loss of every example and the predictions. This one also defines
metrics. Weights, the reduction of the loss, evaluation and export are inherited.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

import estimax as ex


@dataclass(frozen=True, repr=False)
class QuantileHead(ex.heads.BaseHead):
    """Predicts Q quantiles of the label, one logit each, with the pinball loss."""

    quantiles: tuple[float, ...] = (0.1, 0.5, 0.9)
    weight_column: str | None = None
    name: str | None = None

    @property
    def logits_dimension(self):
        return len(self.quantiles)

    def example_losses(self, labels, logits, features):
        """Return losses [B, Q]: q per unit too low, 1 - q per unit too high."""
        error = labels - logits  # [B, 1] - [B, Q]
        q = jnp.array(self.quantiles)[None, :]
        return jnp.maximum(q * error, (q - 1.0) * error)

    def all_predictions(self, logits):
        return {"quantiles": logits}

    def batch_metrics(self, labels, logits, losses, weights):
        """Add the share of labels below each quantile, which should be near q."""
        measured = super().batch_metrics(labels, logits, losses, weights)
        for i, q in enumerate(self.quantiles):
            below = labels < logits[..., i : i + 1]  # [B, 1]
            measured[f"below/{q:g}"] = ex.metrics.mean(below, weights)
        return measured


def model_fn(features, labels, mode):
    head = QuantileHead()
    net = nn.relu(nn.Dense(32, name="hidden")(features["x"]))
    logits = nn.Dense(head.logits_dimension, name="logits")(net)
    return head.create_estimator_spec(features, mode, logits, labels, optimizer="Adam")


def noisy_line(rows, seed):
    """Return x and y = 3x plus noise whose spread grows with x."""
    random = np.random.default_rng(seed)
    x = random.uniform(0.0, 1.0, (rows, 1)).astype(np.float32)
    y = 3.0 * x[:, 0] + random.normal(0.0, 0.1 + x[:, 0])
    return {"x": x}, y.astype(np.float32)


def main():
    with tempfile.TemporaryDirectory() as folder:
        estimator = ex.Estimator(model_fn, model_dir=folder)
        x, y = noisy_line(4096, seed=0)
        estimator.train(
            ex.input.numpy_input_fn(x, y, batch_size=64, num_epochs=20, shuffle=True)
        )
        x, y = noisy_line(2048, seed=1)
        found = estimator.evaluate(
            ex.input.numpy_input_fn(x, y, batch_size=256, shuffle=False)
        )
    for key, value in sorted(found.items()):
        print(f"{key:14} {value:.3f}")
    return found


if __name__ == "__main__":
    main()
