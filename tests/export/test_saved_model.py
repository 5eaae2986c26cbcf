"""Bundles as SavedModels of TensorFlow."""

import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import estimax as ex
from estimax.core.errors import BundleError

fc = ex.feature_columns
ROOT = Path(__file__).parents[2]
CITIES = ["Oslo", "Rome", "Lima"]


def columns():
    city = fc.categorical_column_with_vocabulary_list("city", CITIES, num_oov_buckets=2)
    plain = fc.categorical_column_with_vocabulary_list("plain", CITIES)
    code = fc.categorical_column_with_vocabulary_list("code", [7, 70, 700])
    site = fc.categorical_column_with_hash_bucket("site", 20)
    user = fc.categorical_column_with_hash_bucket("user", 9, dtype="int64")
    day = fc.categorical_column_with_identity("day", 7, default_value=0)
    age = fc.bucketized_column(fc.numeric_column("age"), [18.0, 40.0, 65.0])
    tags = fc.categorical_column_with_hash_bucket("tags", 15)
    marks = fc.weighted_categorical_column(
        fc.categorical_column_with_hash_bucket("marks", 5), "mark_weights"
    )
    pair = fc.categorical_column_with_hash_bucket("pair", 11)
    words = fc.crossed_column(["city", "plain"], 40)
    mixed = fc.crossed_column(["site", age, "code"], 50)
    return [
        fc.embedding_column(words, 3),
        fc.embedding_column(mixed, 3),
        fc.indicator_column(city),
        fc.indicator_column(plain),
        fc.indicator_column(code),
        fc.embedding_column(site, 3),
        fc.embedding_column(user, 2),
        fc.indicator_column(day),
        age,
        fc.embedding_column(tags, 3, combiner="sum"),
        fc.embedding_column(marks, 2, combiner="sum"),
        fc.embedding_column(pair, 2),
        fc.numeric_column("height", default_value=1.5),
        fc.numeric_column("seconds", dtype="int64"),
    ]


def model_fn(features, labels, mode):
    dense = fc.input_layer(features, columns())
    logits = dense @ ex.get_variable("kernel", (dense.shape[1], 3))
    loss = None if mode == ex.ModeKeys.PREDICT else jnp.mean(logits**2)
    predictions = {
        "logits": logits,
        "best": jnp.argmax(logits, axis=1),
        "word": ex.lookup.index_to_string(jnp.argmax(logits, axis=1), CITIES),
        "site": features["site"],
    }
    return ex.EstimatorSpec(
        mode, predictions, loss=loss, train_op=ex.optimizers.SGD(0.1)
    )


def rows():
    """Return rows as TensorFlow takes them: rectangles, '' for no value."""
    return {
        "city": np.array(["Rome", "Lima", "Cork", "Bonn", ""]),
        "plain": np.array(["Oslo", "Cork", "", "Lima", "Rome"]),
        "code": np.array([7, 700, 8, -1, 70]),
        "site": np.array(["a", "b", "", "d", "ä"]),
        "user": np.array([1, -1, 2**40, -7, 0]),
        "day": np.array([6, 0, 9, -1, 3]),
        "age": np.array([17.0, 18.0, 64.9, 65.0, 90.0], np.float32),
        "tags": np.array([["x", "y"], ["", ""], ["z", ""], ["x", "x"], ["w", "q"]]),
        "marks": np.array([["m", "n"], ["k", ""], ["", ""], ["m", "l"], ["n", ""]]),
        "mark_weights": np.array(
            [[0.5, 2], [1, 0], [0, 0], [3, 1], [2, 0]], np.float32
        ),
        "pair": np.array([["a", "b", "c"]] * 4 + [["", "d", ""]]),
        "height": np.array([1.8, np.nan, 1.2, 1.0, 2.0], np.float32),
        "seconds": np.array([3, -4, 5, 6, 7]),
    }


def as_features(given):
    sparse = {
        name: ex.Sparse.of_rows([[v for v in row if v] for row in given[name].tolist()])
        for name in ("tags", "marks", "mark_weights")
    }
    weights = sparse["mark_weights"]
    values = np.asarray(weights.values, np.float32)
    return {**given, **sparse, "mark_weights": weights.with_values(values)}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved_model")
    features = as_features(rows())
    features["height"] = np.nan_to_num(features["height"], nan=1.0)
    estimator = ex.Estimator(model_fn, folder / "model")
    estimator.train(lambda: (features, np.zeros(5)), steps=1)
    receive = ex.export.build_raw_serving_input_receiver_fn(features)
    return ex.export.load(estimator.export_saved_model(folder / "export", receive))


def test_a_saved_model_is_a_graph_with_the_weights_and_no_variables(bundle, tmp_path):
    path = ex.export.write_saved_model(bundle, tmp_path / "models" / "1")
    assert sorted(file.name for file in path.iterdir()) == [
        "saved_model.pb",
        "variables",
    ]
    content = (path / "saved_model.pb").read_bytes()
    kernel = np.asarray(bundle.weights["kernel"]).tobytes()
    for part in (b"XlaCallModule", b"StringToHashBucketFast", kernel):
        assert part in content


def test_an_existing_folder_is_not_replaced(bundle, tmp_path):
    with pytest.raises(BundleError, match="expected a new folder"):
        ex.export.write_saved_model(bundle, tmp_path)


@pytest.fixture(scope="module")
def crossed(tmp_path_factory):
    """A bundle with a cross for which there are no operations of TensorFlow."""
    folder = tmp_path_factory.mktemp("crossed")
    site = fc.categorical_column_with_vocabulary_list("site", ["a", "b", "d"])
    cross = fc.crossed_column(["city", site], 30)
    features = {name: rows()[name] for name in ("city", "site")}
    estimator = ex.LinearRegressor([cross], model_dir=folder / "model")
    estimator.train(lambda: (features, np.ones(5, np.float32)), steps=1)
    receive = ex.export.build_raw_serving_input_receiver_fn(features)
    return ex.export.load(estimator.export_saved_model(folder / "export", receive))


def test_a_transform_without_counterpart_is_named(crossed, tmp_path):
    with pytest.raises(BundleError, match=r"Cross of Vocabulary.*transformed=True"):
        ex.export.write_saved_model(crossed, tmp_path / "1")


def test_the_command_line_converts_a_bundle(bundle, crossed, tmp_path):
    done = convert(bundle.path, tmp_path / "1")
    assert (done.returncode, done.stdout) == (0, f"wrote {tmp_path / '1'}\n")
    assert (tmp_path / "1" / "saved_model.pb").stat().st_size > 1000
    refused = convert(crossed.path, tmp_path / "2")
    assert refused.returncode == 1
    assert "--transformed" in " ".join(refused.stderr.split())
    assert "Traceback" not in refused.stderr


def convert(*arguments):
    command = [sys.executable, "-m", "estimax", "convert", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
def test_tensorflow_answers_as_the_bundle_does(bundle, tmp_path):
    given = rows()
    path = ex.export.write_saved_model(bundle, tmp_path / "1")
    found = in_tensorflow(path, "serving_default", given, tmp_path)
    expected = bundle.predict(as_features(given))
    np.testing.assert_allclose(
        found["logits"], expected["logits"], rtol=1e-5, atol=1e-6
    )
    assert found["best"].tolist() == expected["best"].tolist()
    for name in ("word", "site"):
        words = [text.decode() for text in found[name].tolist()]
        assert words == expected[name].tolist()


@pytest.mark.slow
def test_tensorflow_takes_transformed_inputs(crossed, tmp_path):
    given = {name: rows()[name] for name in ("city", "site")}
    path = ex.export.write_saved_model(crossed, tmp_path / "1", transformed=True)
    arrays = crossed.transform(crossed.check(given))
    found = in_tensorflow(path, "predict", arrays, tmp_path)
    expected = crossed.predict(given, "predict")
    np.testing.assert_allclose(
        found["predictions"], expected["predictions"], rtol=1e-5, atol=1e-6
    )


def in_tensorflow(path, signature, given, folder):
    """Call a signature in a process of TensorFlow 2.15."""
    python = os.environ.get("ESTIMAX_TF_PYTHON") or ROOT / ".venv-tf" / "bin" / "python"
    if not Path(python).exists():
        pytest.skip(
            f"{python} is missing: set ESTIMAX_TF_PYTHON to a Python that has "
            "tensorflow 2.15.1, or run a benchmark, which makes .venv-tf"
        )
    np.savez(folder / "given.npz", **given)
    command = [python, Path(__file__).parent / "saved_model_client.py", path, signature]
    done = subprocess.run(
        [*command, folder / "given.npz", folder / "found.npz"],
        capture_output=True,
        text=True,
        # TensorFlow ends at once if XLA_FLAGS has a flag that it does not know.
        env={
            **os.environ,
            "PYTHONPATH": "",
            "CUDA_VISIBLE_DEVICES": "",
            "XLA_FLAGS": "",
        },
    )
    assert not done.returncode, done.stderr[-3000:]
    with np.load(folder / "found.npz") as found:
        return {name: found[name] for name in found}
