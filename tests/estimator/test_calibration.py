"""Exports with a calibration as their last step."""

import json
from pathlib import Path

import numpy as np
import pytest

import estimax as ex
from estimax.core.errors import FeatureError, InputError, LabelError, SpecError

COLUMN = ex.feature_columns.numeric_column("x")
WORDS = ["no", "yes"]


def table(count=600, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=count).astype(np.float32)
    labels = (rng.random(count) < 1 / (1 + np.exp(-x))).astype(int)
    return {"x": x, "w": np.full(count, 2.0, np.float32)}, labels


def once(features, labels):
    return lambda: ex.input.Dataset.from_tensor_slices((features, labels)).batch(100)


@pytest.fixture(scope="module")
def held_out():
    features, labels = table(seed=1)
    return once(features, np.array(WORDS)[labels])


@pytest.fixture(scope="module")
def model(tmp_path_factory, held_out):
    """A model that is far too sure: its positives weigh 9."""
    head = ex.heads.BinaryClassHead(label_vocabulary=WORDS, class_weights={"yes": 9})
    model = ex.LinearEstimator(
        head, [COLUMN], tmp_path_factory.mktemp("m"), ex.optimizers.SGD(0.3)
    )
    return model.train(lambda: held_out().repeat(), steps=20)


@pytest.fixture(scope="module")
def bundle(model, held_out, tmp_path_factory):
    calibration = ex.calibration.Isotonic(held_out, weight="w", classify=True)
    base = tmp_path_factory.mktemp("export")
    return ex.export.load(model.export_saved_model(base, calibration=calibration))


def test_a_bundle_answers_with_both_probabilities(bundle):
    features, labels = table(seed=2)
    found = bundle.predict({"x": features["x"]})
    before, after = found["probabilities"], found["calibrated_probabilities"]
    assert after.shape == before.shape == (600, 2)
    assert abs(before[:, 1].mean() - labels.mean()) > 0.2
    assert abs(after[:, 1].mean() - labels.mean()) < 0.05
    said = bundle.manifest["calibration"]
    assert said["method"] == "isotonic"
    assert said["rows"] == 600
    assert said["expected_calibration_error"]["before"] > 0.2
    assert said["expected_calibration_error"]["after"] < 0.1
    assert sum(row["rows"] for row in said["bins"]) == 600
    bundle.self_test()


def test_classify_and_regress_are_calibrated_if_asked_for(bundle, model, held_out):
    rows = {"x": np.array([-1.0, 0.5], np.float32)}
    found = bundle.predict(rows)
    scores = bundle.predict(rows, "serving_default")["scores"]
    np.testing.assert_array_equal(scores, found["calibrated_probabilities"])
    (value,) = bundle.predict(rows, "regression").values()
    np.testing.assert_array_equal(value, found["calibrated_probabilities"][:, 1:])


def test_an_exporter_fits_each_export_and_the_default_leaves_scores_raw(
    model, held_out, tmp_path
):
    calibration = ex.calibration.Temperature(held_out, steps=2)
    exporter = ex.FinalExporter("final", calibration=calibration)
    path = exporter.export(model, str(tmp_path), None, {"loss": 1.0}, True)
    bundle = ex.export.load(path)
    found = bundle.predict({"x": [0.5]})
    scores = bundle.predict({"x": [0.5]}, "classification")["scores"]
    np.testing.assert_array_equal(scores, found["probabilities"])
    assert (
        json.loads((Path(path) / "manifest.json").read_text())["calibration"]["rows"]
        == 200
    )
    fitted = ex.calibration.Temperature().fit([0, 1, 0, 1], [0.3, 0.6, 0.4, 0.6])
    given = ex.export.load(model.export_saved_model(tmp_path, calibration=fitted))
    p = given.predict({"x": [0.5]})
    np.testing.assert_allclose(
        p["calibrated_probabilities"], fitted.apply(p["probabilities"]), rtol=1e-5
    )


def test_what_cannot_be_calibrated_is_refused(model, held_out, tmp_path):
    def export(*arguments, of=model, **options):
        calibration = ex.calibration.Platt(*arguments, **options)
        of.export_saved_model(tmp_path, calibration=calibration)

    features, labels = table(8)
    with pytest.raises(SpecError, match=r"Write ex.calibration.Platt\(eval_input_fn"):
        export()
    with pytest.raises(InputError, match="there are no rows to fit on"):
        export(lambda: held_out().take(0))
    with pytest.raises(LabelError, match=r"rows have only \[0\] \(no \[1\]\)"):
        export(once(features, np.full(8, "no")))
    with pytest.raises(LabelError, match=r"or one of .*'no', 'yes'.*; got .*maybe"):
        export(once(features, np.full(8, "maybe")))
    with pytest.raises(LabelError, match="one label, a class for each row; found none"):
        export(lambda: held_out().map(lambda features, _: features))
    with pytest.raises(FeatureError, match="calibration: weight: no feature 'v'"):
        export(held_out, weight="v")
    with pytest.raises(InputError, match="repeat"):
        export(lambda: held_out().repeat())
    number = ex.BaselineRegressor(model_dir=tmp_path / "m").train(
        once(features, labels * 1.0), steps=1
    )
    with pytest.raises(SpecError, match=r"it predicts \['predictions'\]"):
        export(once(features, labels), of=number)
    assert not list(tmp_path.glob("[0-9]*"))  # nothing was written
