"""Bundles that explain: the signature "explain", in a process without the model."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from serving.servers import running_server

import estimax as ex
from estimax.client import Client
from estimax.core.errors import BundleError, SpecError
from estimax.export.selftest import check_answers

fc = ex.feature_columns
ROWS = {
    "age": np.linspace(-2, 2, 32, dtype=np.float32),
    # In the vocabulary, not in it, and missing.
    "city": np.array(["Oslo", "Rome", "Paris", ""] * 8),
}
LABELS = (ROWS["age"] > 0).astype(np.int64)


def input_fn():
    return ex.input.Dataset.from_tensor_slices((ROWS, LABELS)).batch(16)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    city = fc.categorical_column_with_vocabulary_list("city", ["Oslo", "Rome"])
    estimator = ex.DNNLinearCombinedClassifier(
        tmp_path_factory.mktemp("model"),
        linear_feature_columns=[city],
        dnn_feature_columns=[fc.numeric_column("age"), fc.embedding_column(city, 2)],
        dnn_hidden_units=[8],
        dnn_optimizer=ex.optimizers.Adam(0.05),
        config=ex.RunConfig(tf_random_seed=1, save_summary_steps=None),
    )
    return estimator.train(lambda: input_fn().repeat(), steps=50)


@pytest.fixture(scope="module")
def paths(model, tmp_path_factory):
    """The folders of a bundle without an explanation, and of one with it."""
    base = tmp_path_factory.mktemp("bundles")
    plain, explained = (
        model.export_saved_model(base / str(wanted), explain=wanted)
        for wanted in (False, True)
    )
    return plain, explained


def test_a_bundle_gives_the_parts_that_the_estimator_gives(model, paths):
    bundle = ex.export.load(paths[1])
    found = bundle.predict(ROWS, "explain")
    expected = ex.inspection.integrated_gradients(model, input_fn)
    assert set(found) == {
        *("contributions/age", "contributions/city"),
        *("baseline", "output", "residual"),
    }
    for name, part in expected.contributions.items():
        np.testing.assert_allclose(found[f"contributions/{name}"], part, atol=1e-4)
    total = found["contributions/age"] + found["contributions/city"]
    range_of_outputs = np.ptp(found["output"])
    assert range_of_outputs > 1
    np.testing.assert_allclose(
        found["baseline"] + total, found["output"], atol=0.01 * range_of_outputs
    )
    logits = bundle.predict(ROWS, "predict")["logits"][:, 0]
    np.testing.assert_allclose(found["output"], logits, atol=1e-5)
    nothing = bundle.predict({"age": [0.0], "city": [None]}, "predict")
    np.testing.assert_allclose(found["baseline"], nothing["logits"].item(), atol=1e-5)


def test_a_process_that_imports_no_training_code_explains(paths):
    code = (
        "import json, sys\n"
        "import estimax as ex\n"
        f"bundle = ex.export.load({paths[1]!r})\n"
        "answer = bundle.predict({'age': [1.0], 'city': ['Rome']}, 'explain')\n"
        "assert 'estimax.training' not in sys.modules\n"
        "print(json.dumps({name: value.tolist() for name, value in answer.items()}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    (output,) = json.loads(done.stdout)["output"]
    assert output > 0


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_server_explains_over_rest_and_grpc(paths, tmp_path):
    expected = ex.export.load(paths[1]).predict(ROWS, "explain")
    folder = Path(paths[1]).parent
    with running_server(tmp_path, f"m={folder}", "--batch-sizes", "1,32") as server:
        ports = {"http": server.rest_port, "grpc": server.grpc_port}
        for scheme, port in ports.items():
            with Client(f"{scheme}://127.0.0.1:{port}") as client:
                found = client.predict("m", ROWS, signature="explain")
            assert set(found) == set(expected)
            for name, values in expected.items():
                np.testing.assert_allclose(found[name], values, atol=1e-4)
        body = {"signature_name": "explain", "instances": [{"age": 1, "city": "Rome"}]}
        status, answer, _ = server.request("/v1/models/m:predict", body)
    assert status == 200, answer
    (row,) = answer["predictions"]
    assert row["output"] == pytest.approx(
        row["baseline"] + row["contributions/age"] + row["contributions/city"], abs=0.05
    )


def test_an_export_without_explanation_has_nothing_of_it(model, paths, tmp_path):
    assert "explain" not in ex.export.load(paths[0]).signatures
    # Also after an export with one, whose programs are kept.
    again = ex.export.load(model.export_saved_model(tmp_path))
    before = ex.export.load(paths[0])
    for name in before.signatures:
        program = before.exported(before.function_of(name))
        same = again.exported(again.function_of(name))
        assert program.mlir_module_serialized == same.mlir_module_serialized


def test_exporters_ask_for_the_explanation(model, tmp_path):
    exporter = ex.FinalExporter("final", explain=True)
    assert repr(exporter) == "FinalExporter(name='final', explain=True)"
    path = exporter.export(model, str(tmp_path), None, None, True)
    assert "explain" in ex.export.load(path).signatures


def test_a_signature_of_the_model_with_this_name_is_not_replaced(tmp_path):
    def model_fn(features, labels, mode):
        net = fc.input_layer(features, [fc.numeric_column("age")])
        logits = net * ex.get_variable("weight", (1,), initializer=1.0)
        spec = ex.heads.BinaryClassHead().create_estimator_spec(
            features, mode, logits, labels, optimizer=ex.optimizers.SGD(0.0)
        )
        if mode != ex.ModeKeys.PREDICT:
            return spec
        own = {"explain": ex.PredictOutput({"y": logits})}
        return spec._replace(export_outputs={**spec.export_outputs, **own})

    model = ex.Estimator(model_fn, tmp_path).train(input_fn, steps=1)
    with pytest.raises(SpecError, match="has a signature 'explain' of its own"):
        model.export_saved_model(tmp_path / "bundles", explain=True)


def test_the_self_test_of_parts_allows_for_jumps_of_the_gradient():
    answers = {
        "contributions/x": np.array([3.0, 1.0], np.float32),
        "baseline": np.array([1.0, 1.0], np.float32),
        "output": np.array([4.0, 2.0], np.float32),
        "residual": np.array([0.0, 0.0], np.float32),
    }
    near = {**answers, "contributions/x": np.array([3.01, 1.0], np.float32)}
    check_answers("explain", answers, near)
    far = {**answers, "contributions/x": np.array([3.5, 1.0], np.float32)}
    with pytest.raises(BundleError, match="output 'contributions/x'"):
        check_answers("explain", answers, far)
    with pytest.raises(BundleError, match="output 'y'"):
        check_answers("predict", {"y": answers["output"]}, {"y": near["output"] + 0.01})
