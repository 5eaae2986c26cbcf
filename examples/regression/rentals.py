"""Predict a count and a range for it: Poisson and quantile regression in one network.

    python examples/regression/rentals.py

The number of bicycles that are rented in an hour is a count, and its spread grows with
its mean. A `PoissonRegressionHead` predicts the mean, which is never negative. Two
`RegressionHead`s with the pinball loss predict the 10% and the 90% quantile. The
program prints how often the range holds the count (it should be 80%), and a day's
forecast.
"""

import functools
import sys
import tempfile

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

import estimax as ex


def pinball(labels, logits, quantile):
    """Return losses whose minimum is at the quantile of the labels."""
    error = labels - logits
    return jnp.maximum(quantile * error, (quantile - 1.0) * error)


SCALE = 10.0  # the quantiles are predicted in tens of bicycles
HEAD = ex.heads.MultiHead(
    [
        ex.heads.PoissonRegressionHead(name="count"),
        *(
            ex.heads.RegressionHead(
                loss_fn=functools.partial(pinball, quantile=quantile), name=name
            )
            for name, quantile in {"low": 0.1, "high": 0.9}.items()
        ),
    ]
)


def rentals(hours, seed):
    """Return features of hours, and labels for each head."""
    draw = np.random.default_rng(seed)
    hour, rain = draw.integers(0, 24, hours), draw.random(hours) < 0.2
    mean = 30 + 25 * np.cos((hour - 17) / 24 * 2 * np.pi)
    count = draw.poisson(np.where(rain, 0.4, 1.0) * mean).astype(np.float32)
    features = {"hour": hour.astype(np.float32), "rain": rain.astype(np.float32)}
    return features, {"count": count, "low": count / SCALE, "high": count / SCALE}


def model_fn(features, labels, mode):
    angle = features["hour"] * (2 * jnp.pi / 24)
    net = jnp.stack([jnp.sin(angle), jnp.cos(angle), features["rain"]], axis=1)
    for i in range(2):
        net = nn.relu(nn.Dense(32, name=f"hidden_{i}")(net))
    logits = {
        head.name: nn.Dense(1, name=f"{head.name}_logits")(net) for head in HEAD.heads
    }
    return HEAD.create_estimator_spec(
        features, mode, logits, labels, optimizer=ex.optimizers.Adam(0.003)
    )


def main(steps=1500):
    train, test = rentals(8000, seed=1), rentals(2000, seed=2)
    rows = ex.input.Dataset.from_tensor_slices(train).shuffle(8000, seed=1).repeat()
    with tempfile.TemporaryDirectory() as folder:
        model = ex.Estimator(model_fn, folder, ex.RunConfig(tf_random_seed=1))
        model.train(lambda: rows.batch(128), steps=steps)
        tested = ex.input.Dataset.from_tensor_slices(test).batch(1000)
        answers = list(model.predict(lambda: tested))
        mean, low, high = (
            np.array([row[name, "predictions"][0] for row in answers])
            for name in ("count", "low", "high")
        )
        count = test[1]["count"]
        inside = np.mean((count >= low * SCALE) & (count <= high * SCALE))
        error = np.mean(np.abs(count - mean))
        constant = np.mean(np.abs(count - train[1]["count"].mean()))
        print(f"mean error {error:.1f}, of a constant {constant:.1f}")
        print(f"counts within the range: {inside:.0%}")
        bundle = ex.export.load(model.export_saved_model(f"{folder}/export"))
        for hour in (5.0, 11.0, 17.0):
            answer = bundle.predict({"hour": [hour], "rain": [0.0]})
            low, mean, high = (
                float(answer[f"{name}/predictions"][0, 0])
                for name in ("low", "count", "high")
            )
            print(
                f"{hour:2.0f} o'clock: {mean:3.0f} bicycles, "
                f"{low * SCALE:.0f} to {high * SCALE:.0f}"
            )
    return {"inside": inside, "error": error, "constant": constant}


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
