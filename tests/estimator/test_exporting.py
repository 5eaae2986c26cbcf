"""Exports of an estimator: signatures, metrics and extra files of a bundle."""

import math
import shutil

import numpy as np
import pytest

import estimax as ex
from estimax.core.errors import BundleError, SpecError


def two_heads_fn(features, labels, mode):
    weight = ex.get_variable("weight", (4,), initializer=0.5)
    logits = features["x"][:, None] * weight
    head = ex.heads.MultiHead(
        [
            ex.heads.MultiClassHead(3, name="colour"),
            ex.heads.RegressionHead(name="price"),
        ]
    )
    spec = head.create_estimator_spec(
        features, mode, logits, labels, optimizer=ex.optimizers.SGD(0.1)
    )
    if mode != ex.ModeKeys.PREDICT:
        return spec
    raw = ex.PredictOutput({"doubled": features["x"] * 2})
    return spec._replace(export_outputs={**spec.export_outputs, "custom": raw})


def rows():
    labels = {"colour": np.array([0, 2]), "price": np.array([1.0, 2.0], np.float32)}
    return {"x": np.array([1.0, -2.0], np.float32)}, labels


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    model = ex.Estimator(two_heads_fn, tmp_path_factory.mktemp("model"))
    return model.train(rows, steps=2)


@pytest.fixture(scope="module")
def bundle(trained, tmp_path_factory):
    base = tmp_path_factory.mktemp("export")
    note = base / "note.txt"
    note.write_text("hello")
    metrics = {**trained.evaluate(rows, steps=1), "bad": math.nan}
    path = trained.export_saved_model(base, None, {"a/b.txt": note}, metrics=metrics)
    return ex.export.load(path)


def test_every_head_has_its_signatures_beside_those_of_all_and_custom_ones(bundle):
    assert set(bundle.signatures) == {
        "serving_default",
        "predict",
        "colour",
        "colour/classification",
        "colour/predict",
        "price",
        "price/regression",
        "price/predict",
        "custom",
    }
    assert bundle.signatures["colour"].method_name == ex.export.CLASSIFY
    assert bundle.signatures["price"].method_name == ex.export.REGRESS
    doubled = bundle.predict({"x": [3.0]}, "custom")
    assert doubled["doubled"].tolist() == [6.0]


def test_the_signatures_of_a_head_answer_what_the_estimator_predicts(trained, bundle):
    features = {"x": np.array([0.5, 3.0], np.float32)}
    expected = list(trained.predict(lambda: iter([features])))
    everything = bundle.predict(features, "predict")
    alone = bundle.predict(features, "price/predict")
    prices = np.stack([row["price", "predictions"] for row in expected])
    np.testing.assert_allclose(everything["price/predictions"], prices, rtol=1e-6)
    np.testing.assert_allclose(alone["predictions"], prices, rtol=1e-6)


@pytest.fixture(scope="module")
def both(trained, tmp_path_factory):
    """Return the path of a bundle that predicts and evaluates."""
    features, labels = rows()
    return trained.experimental_export_all_saved_models(
        tmp_path_factory.mktemp("both"),
        {
            ex.ModeKeys.PREDICT: ex.export.build_raw_serving_input_receiver_fn(
                features
            ),
            ex.ModeKeys.EVAL: ex.export.build_raw_supervised_input_receiver_fn(
                features, labels
            ),
        },
    )


def test_an_exported_evaluation_measures_a_batch_as_the_estimator_does(trained, both):
    features = {"x": np.array([0.5, 3.0, -1.0], np.float32)}  # another batch size
    labels = {"colour": np.array([1, 2, 0]), "price": np.ones(3, np.float32)}
    expected = trained.evaluate(lambda: (features, labels), steps=1)
    evaluation = ex.export.load(f"{both}/eval", self_test=True)
    found = evaluation.predict({**features, **labels})
    for name in set(expected) - {"global_step", "loss"}:
        np.testing.assert_allclose(
            found[f"metrics/{name}/value"], expected[name], rtol=1e-5
        )
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-5)
    predicted = ex.export.load(both).predict(features)
    np.testing.assert_allclose(
        found["predictions/price/predictions"],
        predicted["price/predictions"],
        rtol=1e-6,
    )
    assert evaluation.signatures["eval"].method_name == "tensorflow/supervised/eval"


def test_a_damaged_evaluation_is_found_with_its_version(both, tmp_path):
    copy = shutil.copytree(both, tmp_path / "1700000000")
    (copy / "eval" / "weights.safetensors").write_bytes(b"")
    with pytest.raises(BundleError, match=r"eval/weights\.safetensors"):
        ex.export.load(copy)


@pytest.mark.parametrize(
    ("modes", "words"),
    [
        ([], "must have ex.ModeKeys.PREDICT"),
        (["eval"], "must have ex.ModeKeys.PREDICT"),
        (["infer", "serve"], "must have ex.ModeKeys.PREDICT"),
        (["infer", "train"], "cannot train"),
    ],
)
def test_other_modes_are_refused(trained, tmp_path, modes, words):
    receive = ex.export.build_raw_supervised_input_receiver_fn(*rows())
    with pytest.raises(SpecError, match=words):
        trained.experimental_export_all_saved_models(
            tmp_path, dict.fromkeys(modes, receive)
        )


def test_an_evaluation_needs_labels(trained, tmp_path):
    receive = ex.export.build_raw_serving_input_receiver_fn(rows()[0])
    with pytest.raises(SpecError, match="needs labels"):
        trained.experimental_export_all_saved_models(
            tmp_path, {ex.ModeKeys.PREDICT: receive, ex.ModeKeys.EVAL: receive}
        )


def test_metrics_and_extra_files_are_described(trained, bundle):
    about = bundle.describe()
    assert about["assets_extra"] == ["a/b.txt", "tf_serving_warmup_requests"]
    expected = trained.evaluate(rows, steps=1)
    assert about["metrics"]["loss"] == pytest.approx(expected["loss"])
    assert about["metrics"]["global_step"] == 2
    assert math.isnan(about["metrics"]["bad"])


def test_a_server_compiles_the_signatures_of_heads_together(trained, tmp_path):
    receive = ex.export.build_raw_serving_input_receiver_fn(rows()[0])
    bundle = ex.export.load(trained.export_saved_model(tmp_path, receive))
    heads, custom = (sorted(group) for group in bundle.program_groups())
    assert custom == ["custom"]
    assert {"colour/classification", "price/regression", "predict"} <= set(heads)
    arrays = bundle.transform(bundle.check(rows()[0]))
    program = bundle.compile(["predict", "colour/classification"], arrays)
    answers = program(bundle.weights, arrays)
    alone = bundle.run("predict", arrays)
    np.testing.assert_array_equal(
        answers["predict"]["price/predictions"], alone["price/predictions"]
    )
    assert set(answers["colour/classification"]) == {"classes", "scores"}
