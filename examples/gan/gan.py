"""Train a generative adversarial network: two networks, two optimizers, one `model_fn`.

    python examples/gan/gan.py

The generator turns noise into points, the discriminator tells them from real points,
which lie on a ring. A step takes one gradient, so the two losses are added, and each
network is kept out of the other's loss: the discriminator sees generated points behind
`stop_gradient`, and the generator is judged by a copy of the discriminator whose
variables are behind `stop_gradient`. `ex.minimize` gives each network its optimizer.
The program prints how many of the generated points lie on the ring, before and after.
"""

import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

import estimax as ex

NOISE = 8


class Network(nn.Module):
    """Two hidden layers and an output."""

    outputs: int

    @nn.compact
    def __call__(self, x):
        """Return [B, outputs]."""
        for i in range(2):
            x = nn.leaky_relu(nn.Dense(64, name=f"hidden_{i}")(x), 0.2)
        return nn.Dense(self.outputs, name="out")(x)


def model_fn(features, labels, mode):
    made = Network(2, name="generator")(features["noise"])  # [B, 2]
    if mode == ex.ModeKeys.PREDICT:
        return ex.EstimatorSpec(mode, predictions={"point": made})

    discriminator = Network(1, name="discriminator")
    real_logits = discriminator(features["point"])
    made_logits = discriminator(jax.lax.stop_gradient(made))
    discriminator_loss = jnp.mean(cross_entropy(real_logits, 1.0)) + jnp.mean(
        cross_entropy(made_logits, 0.0)
    )
    # The same network and the same values, through which only `made` gets a gradient.
    frozen = {"params": jax.lax.stop_gradient(discriminator.variables["params"])}
    judged = Network(1, parent=None).apply(frozen, made)
    generator_loss = jnp.mean(cross_entropy(judged, 1.0))

    ex.summary.scalar("loss/discriminator", discriminator_loss)
    ex.summary.scalar("loss/generator", generator_loss)
    return ex.EstimatorSpec(
        mode,
        loss=discriminator_loss + generator_loss,
        train_op=ex.group(
            ex.minimize(
                ex.optimizers.Adam(2e-3, beta_1=0.5), var_list="discriminator/"
            ),
            ex.minimize(ex.optimizers.Adam(1e-3, beta_1=0.5), var_list="generator/"),
        ),
    )


def cross_entropy(logits, target):
    return optax.sigmoid_binary_cross_entropy(logits, jnp.full_like(logits, target))


def batches(seed=0):
    """Yield real points on a ring of radius 1, with noise for the generator."""
    draw = np.random.default_rng(seed)
    while True:
        angle = draw.uniform(0, 2 * np.pi, 256)
        ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        yield {
            "point": (ring + draw.normal(0, 0.05, ring.shape)).astype(np.float32),
            "noise": draw.normal(size=(256, NOISE)).astype(np.float32),
        }


def on_the_ring(model):
    """Return the share of 1000 generated points whose radius is 0.8 to 1.2."""
    noise = np.random.default_rng(1).normal(size=(1000, NOISE)).astype(np.float32)
    points = [row["point"] for row in model.predict(lambda: iter([{"noise": noise}]))]
    radius = np.linalg.norm(points, axis=1)
    return float(np.mean(np.abs(radius - 1) < 0.2))


def main(steps=3000):
    with tempfile.TemporaryDirectory() as folder:
        model = ex.Estimator(model_fn, folder, ex.RunConfig(tf_random_seed=1))
        model.train(batches, steps=1)
        before = on_the_ring(model)
        model.train(batches, steps=steps)
        after = on_the_ring(model)
    print(f"on the ring: {before:.0%} before training, {after:.0%} after")
    return before, after


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
