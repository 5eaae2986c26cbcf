"""Checkpoints and bundles that earlier versions wrote can still be read.

`tests/snapshots/v0.1` was written by that version with the `make.py` beside it.
"""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import estimax as ex

SAMPLES = Path(__file__).parents[1] / "snapshots" / "v0.1"
EXPECTED = json.loads((SAMPLES / "expected.json").read_text())
# The version of jax whose programs the bundle has; older ones may not read them.
WRITTEN_WITH = (0, 10, 2)

AGE = np.linspace(0, 1, 16, dtype=np.float32)
FEATURES = {"age": AGE, "city": np.array(["Oslo", "Rome", "Bern", ""] * 4, object)}


def rows():
    data = ex.input.Dataset.from_tensor_slices((FEATURES, (AGE > 0.5).astype(np.int64)))
    return data.batch(16)


@pytest.fixture
def model(tmp_path):
    shutil.copytree(SAMPLES / "run", tmp_path / "run")
    fc = ex.feature_columns
    city = fc.categorical_column_with_vocabulary_list(
        "city", ["Oslo", "Rome"], num_oov_buckets=1
    )
    columns = [fc.numeric_column("age"), fc.embedding_column(city, 2)]
    optimizer = ex.optimizers.Adagrad(0.1)
    return ex.DNNClassifier([4], columns, tmp_path / "run", optimizer=optimizer)


def test_a_checkpoint_evaluates_as_it_did_and_trains_on(model):
    metrics = model.evaluate(rows)
    assert {name: float(metrics[name]) for name in EXPECTED["metrics"]} == (
        pytest.approx(EXPECTED["metrics"], rel=1e-5)
    )
    model.train(lambda: rows().repeat(), steps=2)
    assert model.get_variable_value("global_step") == EXPECTED["global_step"] + 2
    assert model.evaluate(rows)["loss"] < metrics["loss"]


@pytest.mark.skipif(jax.__version_info__ < WRITTEN_WITH, reason="a newer jax wrote it")
def test_a_bundle_predicts_as_it_did():
    (folder,) = (SAMPLES / "bundle").iterdir()
    found = ex.export.load(folder).predict(FEATURES)["probabilities"]
    np.testing.assert_allclose(found, EXPECTED["probabilities"], rtol=1e-5)
