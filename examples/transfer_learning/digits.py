"""Reuse a network: freeze its trunk, replace its head, tune it, or cache its outputs.

    python examples/transfer_learning/digits.py

A network that reads digits is reused to tell odd from even ones, with 25 images that
have such a label. The program prints the accuracy of four ways to do that:

    scratch      a new network
    frozen       the trunk of the old one, as it is; only a new head is trained
    rates        the same, then all layers are trained, the lower ones more slowly
    bottlenecks  the outputs of the trunk are computed once; a linear model reads them
"""

import sys
import tempfile

import numpy as np
from flax import linen as nn
from sklearn.datasets import load_digits

import estimax as ex

NEW = 25


def trunk(images):
    """Return 64 numbers for each image: the part that is reused."""
    net = images[..., None] / 16.0  # [B, 8, 8, 1]
    for i, channels in enumerate([16, 32]):
        net = nn.relu(nn.Conv(channels, (3, 3), strides=(2, 2), name=f"conv_{i}")(net))
    net = net.reshape(net.shape[0], -1)
    return nn.relu(nn.Dense(64, name="embedding")(net))


def model_fn(features, labels, mode, params):
    """Define the network; `params["train"]` is an optimizer, or a train op."""
    net = trunk(features["image"])
    if params.get("bottlenecks"):
        return ex.EstimatorSpec(mode, predictions={"bottleneck": net})
    head = params["head"]
    logits = nn.Dense(head.logits_dimension, name=f"{head.name}_head")(net)
    return head.create_estimator_spec(
        features, mode, logits, labels, train_op_fn=lambda loss: params["train"]
    )


def digits():
    """Return images with labels: digits to read; odd or even ones to train, to test."""
    data = load_digits()
    images, odd = data.images.astype(np.float32), data.target % 2
    cuts = slice(0, 1000), slice(1000, 1000 + NEW), slice(1000 + NEW, None)
    read, few, test = ({"image": images[cut]} for cut in cuts)
    return (read, data.target[:1000]), (few, odd[cuts[1]]), (test, odd[cuts[2]])


def batches(data, size):
    rows = ex.input.Dataset.from_tensor_slices(data).shuffle(1000, seed=1)
    return lambda: rows.repeat().batch(size)


def main(steps=150):
    read, few, test = digits()
    tested = ex.input.Dataset.from_tensor_slices(test).batch(len(test[1]))
    adam = ex.optimizers.Adam
    found = {}
    with tempfile.TemporaryDirectory() as folder:

        def estimator(name, start=None, **params):
            return ex.Estimator(
                model_fn,
                f"{folder}/{name}",
                ex.RunConfig(tf_random_seed=1, save_summary_steps=0),
                params={"head": ex.heads.BinaryClassHead(name="new"), **params},
                warm_start_from=start,
            )

        def measure(name, model, trained=steps):
            model.train(batches(few, NEW), steps=trained)
            found[name] = model.evaluate(lambda: tested)["accuracy/new"]
            print(f"{name:12} accuracy {found[name]:.3f}")

        reads = ex.heads.MultiClassHead(10, name="old")
        old = estimator("old", train=ex.minimize(adam(0.003)), head=reads)
        old.train(batches(read, 100), steps=2 * steps)

        measure("scratch", estimator("scratch", train=ex.minimize(adam(0.003))))

        reused = ex.WarmStartSettings(
            f"{folder}/old", vars_to_warm_start=["conv_", "embedding/"]
        )
        only_head = ex.minimize(adam(0.003), var_list="new_head/")
        measure("frozen", estimator("frozen", reused, train=only_head))

        by_layer = ex.group(
            ex.minimize(adam(0.0001), var_list="conv_0/"),
            ex.minimize(adam(0.0003), var_list="conv_1/"),
            ex.minimize(adam(0.001), var_list=["embedding/", "new_head/"]),
        )
        # The frozen layers have no optimizer state to load.
        tuned_from = ex.WarmStartSettings(f"{folder}/frozen", slots=False)
        measure("rates", estimator("rates", tuned_from, train=by_layer))

        reader = estimator("reader", reused, bottlenecks=True)

        def outputs(data):
            rows = ex.input.Dataset.from_tensor_slices(data).batch(100)
            read = reader.predict(lambda: rows)
            return {"x": np.stack([row["bottleneck"] for row in read])}, data[1]

        cached = {
            name: outputs(data) for name, data in {"few": few, "test": test}.items()
        }
        linear = ex.LinearClassifier(
            [ex.feature_columns.numeric_column("x", (64,))],
            f"{folder}/linear",
            optimizer=adam(0.003),
        )
        linear.train(batches(cached["few"], NEW), steps=steps)
        rows = ex.input.Dataset.from_tensor_slices(cached["test"]).batch(100)
        found["bottlenecks"] = linear.evaluate(lambda: rows)["accuracy"]
        print(f"bottlenecks  accuracy {found['bottlenecks']:.3f}")
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
