"""Write a feature column: an hour on a circle, so that 23 is near 0.

    python examples/custom_column/cyclic.py

A dense column is a frozen dataclass with a `name`, a `variable_shape`, a
`parse_example_spec`, and `block`, which computes the numbers of a batch on the device.
`CyclicColumn` reads its feature through a `numeric_column`, so dtypes, missing values
and the export are handled already. The program trains on hours with a peak at
midnight, once with the plain hour and once on the circle, and exports the second model.

A column whose values are computed on the host, from text for instance, needs a class in
the package: docs/architecture.md says where.
"""

import sys
import tempfile
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

import estimax as ex


@dataclass(frozen=True)
class CyclicColumn:
    """Sine and cosine of a number that begins again after `period`."""

    key: str
    period: float

    @property
    def _number(self):
        return ex.feature_columns.numeric_column(self.key)

    @property
    def name(self):
        """The name, unique in a layer."""
        return f"{self.key}_cyclic"

    @property
    def parse_example_spec(self):
        """How the feature is stored in a tf.Example."""
        return self._number.parse_example_spec

    @property
    def variable_shape(self):
        """The shape of one row."""
        return (2,)

    def block(self, layer, features, trainable):
        """Return [B, 2]; a column without variables does not use `layer`."""
        number = self._number.block(layer, features, trainable)  # [B, 1]
        angle = number * (2 * np.pi / self.period)
        return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=1)


def trips(count, seed):
    """Return hours, and whether a trip was by taxi: most around midnight."""
    draw = np.random.default_rng(seed)
    hour = draw.uniform(0, 24, count).astype(np.float32)
    chance = 0.5 + 0.45 * np.cos(hour / 24 * 2 * np.pi)
    return {"hour": hour}, (draw.random(count) < chance).astype(np.int64)


def main(steps=300):
    train, test = trips(8000, seed=1), trips(2000, seed=2)
    rows = ex.input.Dataset.from_tensor_slices(train).shuffle(8000, seed=1).repeat()
    tested = ex.input.Dataset.from_tensor_slices(test).batch(1000)
    columns = {
        "plain hour": ex.feature_columns.numeric_column("hour"),
        "on a circle": CyclicColumn("hour", 24.0),
    }
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, column in columns.items():
            model = ex.LinearClassifier(
                [column],
                f"{folder}/{name}",
                optimizer=ex.optimizers.Adam(0.05),
                config=ex.RunConfig(tf_random_seed=1, save_summary_steps=0),
            )
            model.train(lambda: rows.batch(128), steps=steps)
            found[name] = model.evaluate(lambda: tested)["auc"]
            print(f"{name}: AUC {found[name]:.3f}")
        bundle = ex.export.load(model.export_saved_model(f"{folder}/export"))
        hours = np.array([0.0, 6.0, 12.0, 23.9], np.float32)
        chances = bundle.predict({"hour": hours})["logistic"][:, 0]
    for hour, chance in zip(hours, chances, strict=True):
        print(f"taxi at {hour:4.1f}: {chance:.2f}")
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
