"""Classify handwritten digits with a custom `model_fn` of inline Flax layers.

    python examples/custom_model/digits.py --model-dir runs/digits

Every Flax layer works inside a `model_fn`. estimax handles batch statistics, dropout
keys, the step counter, checkpoints, summaries and the compiled loop.
"""

import argparse
import logging

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from sklearn.datasets import load_digits

import estimax as ex

head = ex.heads.MultiClassHead(n_classes=10)


def model_fn(features, labels, mode, params):
    """Define a small convolutional network for 8x8 images."""
    training = mode == ex.ModeKeys.TRAIN
    net = features["image"][..., None] / 16.0  # [B, 8, 8, 1]
    for index, channels in enumerate(params["channels"]):
        net = nn.relu(nn.Conv(channels, (3, 3), name=f"conv_{index}")(net))
        # With the default momentum of 0.99 the moving averages need more steps than
        # this short run has.
        norm = nn.BatchNorm(not training, momentum=0.9, name=f"norm_{index}")
        net = norm(net)
    net = jnp.mean(net, axis=(1, 2))
    net = nn.Dropout(params["dropout"], deterministic=not training)(net)
    logits = nn.Dense(head.logits_dimension, name="logits")(net)
    ex.summary.scalar("logits/largest", jnp.max(logits))
    return head.create_estimator_spec(
        features,
        mode,
        logits,
        labels,
        optimizer=ex.optimizers.Adam(params["learning_rate"]),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model-dir", default="runs/digits")
    parser.add_argument("--steps", type=int, default=400)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    digits = load_digits()
    images, labels = digits.images.astype(np.float32), digits.target
    train, test = slice(0, 1500), slice(1500, None)

    def train_input_fn():
        rows = ({"image": images[train]}, labels[train])
        rows = ex.input.Dataset.from_tensor_slices(rows)
        return rows.shuffle(1500).repeat().batch(64)

    def test_input_fn():
        rows = ({"image": images[test]}, labels[test])
        return ex.input.Dataset.from_tensor_slices(rows).batch(297)

    estimator = ex.Estimator(
        model_fn,
        model_dir=arguments.model_dir,
        config=ex.RunConfig(tf_random_seed=1, save_checkpoints_steps=200),
        params={"channels": [32, 64], "dropout": 0.2, "learning_rate": 3e-3},
    )
    estimator.train(train_input_fn, max_steps=arguments.steps)
    print(f"accuracy {estimator.evaluate(test_input_fn)['accuracy']:.3f}")
    print("bundle in", estimator.export_saved_model(f"{arguments.model_dir}/export"))


if __name__ == "__main__":
    main()
