"""A bundle predicts where neither the model's code nor training can be imported."""

import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import estimax as ex

fc = ex.feature_columns
CITIES = ["Oslo", "Rome", "Lima"]
ANSWERS = ["cold", "mild", "hot"]

# Refuses every import of training code, and of this file.
ALONE = """
import json, sys

REFUSED = (
    "test_bundle_alone", "flax", "optax", "estimax.training", "estimax.estimator",
    "estimax.canned", "estimax.heads", "estimax.hooks", "estimax.optimizers",
)

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in REFUSED or name.startswith(tuple(f"{r}." for r in REFUSED)):
            raise ImportError(f"refused: {name}")

sys.meta_path.insert(0, Refuse())
for name in REFUSED:
    try:
        __import__(name)
    except ImportError as error:
        assert str(error) == f"refused: {name}", error
    else:
        raise AssertionError(f"{name} was imported")

import estimax as ex

bundle = ex.export.load(sys.argv[1], self_test=True)
answers = bundle.predict(json.load(open(sys.argv[2])))
json.dump({name: array.tolist() for name, array in answers.items()}, sys.stdout)
"""


def model_fn(features, labels, mode):
    city = fc.categorical_column_with_vocabulary_list("city", CITIES, num_oov_buckets=2)
    site = fc.categorical_column_with_hash_bucket("site", 20)
    both = fc.crossed_column(["city", "site"], 30)
    tags = fc.weighted_categorical_column(
        fc.categorical_column_with_hash_bucket("tags", 15), "tag_weights"
    )
    pages = fc.sequence_categorical_column_with_hash_bucket("pages", 25)
    dense = fc.input_layer(
        features,
        [
            fc.indicator_column(city),
            fc.embedding_column(site, 3),
            fc.embedding_column(both, 2),
            fc.embedding_column(tags, 3, combiner="sum"),
            fc.numeric_column("age"),
        ],
    )
    steps, lengths = fc.sequence_input_layer(features, [fc.embedding_column(pages, 4)])
    present = jnp.arange(steps.shape[1])[None] < lengths[:, None]
    read = jnp.sum(steps * present[..., None], axis=1)
    users = ex.get_variable("users", (10, 2))
    user = ex.embedding_lookup(users, features["user"])
    net = jnp.concatenate([dense, read, user], axis=1)
    logits = net @ ex.get_variable("kernel", (net.shape[1], 3))
    best = jnp.argmax(logits, axis=1)
    predictions = {
        "probabilities": jax.nn.softmax(logits),
        "answer": ex.lookup.index_to_string(best, ANSWERS),
        "city": features["city"],
    }
    loss = None
    if mode != ex.ModeKeys.PREDICT:
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
        loss = -jnp.mean(chosen)
    return ex.EstimatorSpec(
        mode, predictions, loss=loss, train_op=ex.optimizers.Adam(0.05)
    )


def rows(count, seed):
    """Return features as lists, as JSON has them. Lists of a row differ in length."""
    rng = np.random.default_rng(seed)

    def words(prefix, lengths):
        return [[f"{prefix}{i}" for i in rng.integers(0, 9, n)] for n in lengths]

    tagged = rng.integers(0, 4, count)
    return {
        "city": [[*CITIES, "Cork", ""][i] for i in rng.integers(0, 5, count)],
        "site": [f"site {i}" for i in rng.integers(0, 12, count)],
        "tags": words("tag", tagged),
        "tag_weights": [rng.uniform(0.5, 2, n).round(3).tolist() for n in tagged],
        "pages": words("page", rng.integers(0, 6, count)),
        "age": rng.uniform(-1, 1, count).round(3).tolist(),
        "user": rng.integers(0, 10, count).tolist(),
    }


def as_batch(given):
    lists = ("tags", "tag_weights", "pages")
    batch = {
        name: np.array(column) for name, column in given.items() if name not in lists
    }
    batch["age"] = batch["age"].astype(np.float32)
    batch |= {name: ex.Sparse.of_rows(given[name]) for name in lists}
    weights = batch["tag_weights"]
    values = np.asarray(weights.values, np.float32)
    return {**batch, "tag_weights": weights.with_values(values)}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    model = ex.Estimator(model_fn, tmp_path_factory.mktemp("model"))
    labels = np.arange(64) % 3
    return model.train(lambda: (as_batch(rows(64, 0)), labels), steps=10)


def test_a_bundle_predicts_the_same_in_a_process_without_training_code(
    trained, tmp_path
):
    path = trained.export_saved_model(tmp_path / "export")
    given = rows(37, 1)
    expected = list(trained.predict(lambda: iter([as_batch(given)])))
    (tmp_path / "rows.json").write_text(json.dumps(given))
    done = subprocess.run(
        [sys.executable, "-c", ALONE, path, tmp_path / "rows.json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": ""},
    )
    assert not done.returncode, done.stderr[-3000:]
    found = json.loads(done.stdout)
    np.testing.assert_allclose(
        found["probabilities"],
        [row["probabilities"] for row in expected],
        rtol=1e-6,
    )
    assert found["answer"] == [row["answer"].decode() for row in expected]
    assert len(set(found["answer"])) > 1
    assert found["city"] == given["city"]
