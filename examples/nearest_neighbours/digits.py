"""Classify handwritten digits by their nearest neighbours, in a `model_fn`.

    python examples/nearest_neighbours/digits.py

The model is the training data itself: a variable that is not trained, read from memory.
Distances to all examples are one matrix product, so the bundle answers on any device.
For millions of examples, use an index such as Faiss instead.
"""

import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

import estimax as ex


def model_fn(features, labels, mode, params):
    known, classes = params["pixels"], params["labels"]
    points = ex.get_variable(
        "points", known.shape, initializer=jnp.asarray(known), trainable=False
    )
    given = features["pixels"]
    # |a - b|² without |a|², which is the same for all examples.
    distance = jnp.sum(points**2, axis=1) - 2 * given @ points.T  # [B, N]
    _, nearest = jax.lax.top_k(-distance, params["neighbours"])
    votes = jax.nn.one_hot(jnp.asarray(classes)[nearest], 10).mean(axis=1)  # [B, 10]
    head = ex.heads.MultiClassHead(10)
    logits = jnp.log(votes + 1e-3)
    # Nothing is learned: a step only writes the checkpoint.
    return head.create_estimator_spec(
        features, mode, logits, labels, optimizer=ex.optimizers.SGD(0.0)
    )


def main(neighbours=3):
    digits = load_digits()
    pixels = digits.images.reshape(-1, 64).astype(np.float32)
    labels = digits.target.astype(np.int32)
    train, test = slice(0, 1200), slice(1200, None)
    params = {
        "pixels": pixels[train],
        "labels": labels[train],
        "neighbours": neighbours,
    }
    with tempfile.TemporaryDirectory() as folder:
        model = ex.Estimator(model_fn, folder, params=params)
        model.train(lambda: ({"pixels": pixels[:8]}, labels[:8]), steps=1)
        held_out = ex.input.Dataset.from_tensor_slices(
            ({"pixels": pixels[test]}, labels[test])
        )
        accuracy = model.evaluate(lambda: held_out.batch(200))["accuracy"]
    print(f"accuracy of {neighbours} neighbours: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
