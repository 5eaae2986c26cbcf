"""A head of your own: quantiles of a number, so that a forecast says how sure it is.

    python examples/custom_head/quantile_head.py

A head is a frozen dataclass with the members of `ex.heads.Head`. Here the loss, the
predictions and the metrics are written down; `ex.heads.make_spec` turns them into what
the Estimator needs in every mode, and so does nothing that you could not replace.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

import estimax as ex


@dataclass(frozen=True)
class QuantileHead:
    """Predicts quantiles of the label: one logit each, trained by the pinball loss."""

    quantiles: tuple[float, ...] = (0.1, 0.5, 0.9)
    name: str | None = None
    loss_reduction: str = "sum_over_batch_size"

    @property
    def logits_dimension(self):
        """One logit a quantile."""
        return len(self.quantiles)

    def losses(self, labels, logits):
        """[B, Q]: being too low costs q a unit, being too high 1 - q."""
        short = jnp.reshape(labels, (-1, 1)).astype(jnp.float32) - logits
        q = jnp.array(self.quantiles)[None, :]
        return jnp.maximum(q * short, (q - 1.0) * short)

    def loss(self, labels, logits, features=None, mode=None, regularization_losses=()):
        """One number to minimise."""
        losses = self.losses(labels, logits)
        loss = ex.heads.losses.reduce_losses(losses, reduction=self.loss_reduction)
        return loss + sum(regularization_losses or ())

    def predictions(self, logits, keys=None):
        """What a client gets."""
        return {"quantiles": logits}

    def metrics(self, regularization_losses=None):
        """What evaluation reports, before any data."""
        coverage = {f"below/{q:g}": ex.metrics.mean() for q in self.quantiles}
        return {"average_loss": ex.metrics.mean(), **coverage}

    def update_metrics(
        self, eval_metrics, features, logits, labels, regularization_losses=None
    ):
        """The same with one more batch."""
        below = jnp.reshape(labels, (-1, 1)) < logits  # should be true a share of q
        batch = {"average_loss": ex.metrics.mean(self.losses(labels, logits))}
        for i, q in enumerate(self.quantiles):
            batch[f"below/{q:g}"] = ex.metrics.mean(below[:, i])
        return {key: eval_metrics[key].merge(metric) for key, metric in batch.items()}

    def export_outputs(self, predictions):
        """How predictions are served."""
        return {"serving_default": ex.PredictOutput(predictions)}

    create_estimator_spec = ex.heads.make_spec


def model_fn(features, labels, mode):
    head = QuantileHead()
    net = nn.relu(nn.Dense(32, name="hidden")(features["x"]))
    logits = nn.Dense(head.logits_dimension, name="logits")(net)
    return head.create_estimator_spec(features, mode, logits, labels, optimizer="Adam")


def noisy_line(rows, seed):
    """y = 3x with noise that grows with x, which a mean cannot tell."""
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
