"""Exports of tf.estimator programs: receivers, predictors, and starts from a bundle."""

import shutil

import numpy as np
import pytest

import estimax as ex
from estimax.core.errors import BundleError, CheckpointError, SpecError

fc = ex.feature_columns
COLUMNS = [fc.numeric_column("age"), fc.numeric_column("size")]
SPEC = {
    "age": ex.input.FixedLenFeature([1], "float32"),
    "size": ex.input.FixedLenFeature([1], "float32"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A regressor of two numbers; tests must not train it on."""
    x = np.arange(8, dtype=np.float32)[:, None]
    config = ex.RunConfig(
        save_summary_steps=0, log_step_count_steps=None, tf_random_seed=1
    )
    model = ex.LinearRegressor(COLUMNS, tmp_path_factory.mktemp("line"), config=config)
    rows = {"age": x, "size": 2 * x}, 3 * x
    return model.train(lambda: [rows] * 4)


def record(age, size=1.0):
    feature = {
        "age": ex.input.Feature(float_list=ex.input.FloatList(value=[age])),
        "size": ex.input.Feature(float_list=ex.input.FloatList(value=[size])),
    }
    example = ex.input.Example(features=ex.input.Features(feature=feature))
    return example.SerializeToString()


def exported(model, folder, receiver_fn):
    return ex.export.load(model.export_saved_model(folder, receiver_fn))


@pytest.fixture(scope="module")
def parsing(model, tmp_path_factory):
    receive = ex.export.build_parsing_serving_input_receiver_fn(SPEC)
    return exported(model, tmp_path_factory.mktemp("export"), receive)


class TestPredictor:
    """`predict_fn = tf.contrib.predictor.from_saved_model(folder)`."""

    def test_a_bundle_is_called_with_inputs(self, parsing):
        answers = parsing({"inputs": [record(1.0), record(2.0)]})
        assert list(answers) == ["outputs"]  # of serving_default, as in TensorFlow
        assert np.array_equal(
            answers["outputs"],
            parsing({"examples": [record(1.0), record(2.0)]})["outputs"],
        )

    def test_a_signature_can_be_named(self, parsing):
        answers = parsing({"age": [1.0], "size": [1.0]}, "predict")
        assert list(answers) == ["predictions"]

    def test_inputs_are_accepted_by_predict(self, parsing):
        found = parsing.predict({"inputs": [record(1.0)]})["predictions"]
        other = parsing.predict({"age": [1.0], "size": [1.0]})["predictions"]
        assert np.array_equal(found, other)

    def test_other_names_are_still_unknown_features(self, parsing):
        with pytest.raises(BundleError, match="'input'"):
            parsing.predict({"input": [record(1.0)]})


class TestReceivers:
    def test_examples_under_a_name_of_the_receiver(self, model, tmp_path):
        def serving_input_receiver_fn():
            serialized = np.array([record(31.0)], object)
            features = ex.input.parse_example(serialized, SPEC)
            return ex.export.ServingInputReceiver(
                features, {"predictor_inputs": serialized}
            )

        bundle = exported(model, tmp_path, serving_input_receiver_fn)
        expected = bundle.predict({"age": [1.0], "size": [1.0]})["predictions"]
        for name in ("predictor_inputs", "examples", "inputs"):
            found = bundle.predict({name: [record(1.0)]})["predictions"]
            assert np.array_equal(found, expected), name

    def test_a_lone_vector_of_examples(self, model, tmp_path):
        def serving_input_receiver_fn():
            serialized = [record(31.0)]
            features = ex.input.parse_example(serialized, SPEC)
            return ex.export.ServingInputReceiver(features, serialized)

        bundle = exported(model, tmp_path, serving_input_receiver_fn)
        assert bundle.predict({"inputs": [record(1.0)]})["predictions"].shape == (1, 1)

    def test_a_parsed_feature_that_is_changed_is_named(self, model, tmp_path):
        def serving_input_receiver_fn():
            serialized = np.array([record(31.0)], object)
            features = ex.input.parse_example(serialized, SPEC)
            features["size"] = features["size"] / 2
            return ex.export.ServingInputReceiver(features, {"records": serialized})

        with pytest.raises(SpecError, match="feature 'size' is computed"):
            exported(model, tmp_path, serving_input_receiver_fn)

    def test_a_receiver_function_that_returns_a_dict(self, model, tmp_path):
        rows = {
            "age": np.zeros((1, 1), np.float32),
            "size": np.zeros((1, 1), np.float32),
        }
        bundle = exported(model, tmp_path, lambda: rows)
        assert bundle.predict({"age": [1.0], "size": [1.0]})["predictions"].shape == (
            1,
            1,
        )

    def test_a_receiver_function_that_returns_something_else(self, model, tmp_path):
        with pytest.raises(SpecError, match=r"serving_input_receiver_fn.*got tuple"):
            exported(model, tmp_path, lambda: (1, 2))


class TestWarmStartFromBundle:
    def new(self, folder, source):
        return ex.LinearRegressor(COLUMNS, folder, warm_start_from=source)

    def predictions(self, model):
        rows = {"age": np.ones((1, 1), np.float32), "size": np.ones((1, 1), np.float32)}
        return next(iter(model.predict(lambda: iter([rows]))))["predictions"]

    @pytest.mark.parametrize("level", ["version", "exports"])
    def test_the_variables_are_those_of_the_bundle(
        self, model, parsing, tmp_path, level
    ):
        source = parsing.path if level == "version" else parsing.path.parent
        new = self.new(tmp_path / "new", source)
        assert self.predictions(new) == self.predictions(model)

    def test_some_of_the_variables(self, model, parsing, tmp_path):
        settings = ex.WarmStartSettings(str(parsing.path), ".*age.*")
        new = self.new(tmp_path / "new", settings)
        rows = {"age": np.ones((1, 1), np.float32), "size": np.ones((1, 1), np.float32)}
        new.train(lambda: [(rows, np.ones((1, 1), np.float32))], steps=1)
        assert new.get_variable_value("global_step") == 1

    def test_a_damaged_bundle_is_named(self, parsing, tmp_path):
        copy = tmp_path / "copy"
        shutil.copytree(parsing.path, copy)
        weights = copy / "weights.safetensors"
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(bytes(data))
        with pytest.raises(CheckpointError, match="damaged"):
            self.predictions(self.new(tmp_path / "new", copy))
