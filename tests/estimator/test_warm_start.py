import doctest
import inspect
import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_models import X, data, line_model_fn, once

import estimax as ex
from estimax.core.errors import CheckpointError, ConfigError, MissingFileError
from estimax.formats import tensors

FILE = "weights.safetensors"
QUIET = ex.RunConfig(save_summary_steps=0, log_step_count_steps=None, tf_random_seed=1)


@pytest.fixture
def warm(trained, tmp_path):
    """warm(warm_start_from=trained's folder) -> an Estimator in a new model_dir."""

    def warm(given=None, model_fn=line_model_fn, folder="warm"):
        given = trained.model_dir if given is None else given
        return ex.Estimator(model_fn, tmp_path / folder, QUIET, warm_start_from=given)

    return warm


def weight(model):
    return model.get_variable_value("line/kernel")


def test_training_starts_from_the_other_models_weights_at_step_0(trained, warm):
    model = warm().train(lambda: iter([({"x": 0 * X}, 0 * X)]))
    assert model.get_variable_value("global_step") == 1
    np.testing.assert_array_equal(weight(model), weight(trained))


def test_a_checkpoint_of_its_own_wins_over_the_warm_start(trained, warm, caplog):
    first = warm().train(data(), steps=2)
    before = weight(first)
    with caplog.at_level(logging.INFO, "estimax"):
        again = warm().train(lambda: iter([({"x": 0 * X}, 0 * X)]))
    assert "no warm start" in caplog.text
    np.testing.assert_array_equal(weight(again), before)


def test_a_subclass_that_names_no_checkpoint_evaluates_the_warm_start(trained, warm):
    class Fresh(ex.Estimator):
        def latest_checkpoint(self):
            return None

    folder = warm().train(data(), steps=2).model_dir
    model = Fresh(line_model_fn, folder, QUIET, warm_start_from=trained.model_dir)
    assert model.evaluate(data(), steps=1, report=False)["global_step"] == 0
    plain = ex.Estimator(line_model_fn, folder, QUIET)
    assert plain.evaluate(data(), steps=1, report=False)["global_step"] == 2


def test_a_list_that_names_the_step_continues_its_count(trained, warm):
    settings = ex.WarmStartSettings(trained.model_dir, vars_to_warm_start=[".*"])
    model = warm(settings).train(data(), steps=2)
    assert model.get_variable_value("global_step") == 5


def test_what_was_loaded_is_logged_as_a_table(warm, caplog):
    with caplog.at_level(logging.INFO, "estimax"):
        warm().train(data(), steps=1)
    assert "2 of 2 variables" in caplog.text
    assert "loaded  line/kernel  float32[1, 1]" in caplog.text


def test_a_warm_started_model_may_be_used_before_it_is_trained(trained, warm, tmp_path):
    model = warm()
    expected = list(trained.predict(once()))
    found = list(model.predict(once()))
    assert [r["y"] for r in found] == [r["y"] for r in expected]
    results = model.evaluate(once())
    assert results["loss"] == trained.evaluate(once())["loss"]
    assert results["global_step"] == 0
    features = {"x": np.zeros((1, 1), np.float32)}
    receiver = ex.export.build_raw_serving_input_receiver_fn(features)
    weights = [
        tensors.map_file(Path(one.export_saved_model(tmp_path / "b", receiver)) / FILE)
        for one in (model, trained)
    ]
    assert weights[0].keys() == weights[1].keys()  # without the step: nothing reads it
    with pytest.raises(MissingFileError, match="has not been trained"):
        model.get_variable_names()


def test_an_estimator_with_more_metrics_starts_from_the_same(trained, warm):
    def metric_fn(labels):
        return {"rows": ex.metrics.mean(labels)}

    model = ex.add_metrics(warm(), metric_fn)
    results = model.evaluate(once())
    assert results["loss"] == trained.evaluate(once())["loss"]
    assert "rows" in results


def test_a_warm_start_into_another_shape_is_told_precisely(trained, warm):
    column = ex.feature_columns.numeric_column("x")
    model = ex.LinearRegressor(
        [column], warm().model_dir, config=QUIET, warm_start_from=trained.model_dir
    )
    with pytest.raises(CheckpointError, match="linear/linear_model/bias_weights"):
        model.train(data(), steps=1)


def test_the_argument_is_checked_when_it_is_given(warm):
    with pytest.raises(ConfigError, match="got int"):
        warm(3)
    with pytest.raises(ConfigError, match="empty"):
        warm("")


def words_model(folder, vocabulary, source=None):
    column = ex.feature_columns.categorical_column_with_vocabulary_list(
        "word", vocabulary, num_oov_buckets=1
    )
    return ex.LinearRegressor([column], folder, config=QUIET, warm_start_from=source)


def word_data(words):
    return lambda: ({"word": np.array(words)}, np.ones((len(words), 1), np.float32))


def test_linear_weights_follow_a_changed_vocabulary_and_ftrl_keeps_them(tmp_path):
    name = "linear/linear_model/word/weights"
    old = words_model(tmp_path / "old", ["x", "y", "z"])
    old.train(word_data(["x", "y", "z", "x", "x"]), steps=3)
    info = ex.VocabInfo(["z", "q", "x"], 3, 1, ["x", "y", "z"])
    source = ex.WarmStartSettings(old.model_dir, var_name_to_vocab_info={name: info})
    new = words_model(tmp_path / "new", ["z", "q", "x"], source)
    new.train(word_data(["q"]), steps=1)
    before, after = old.get_variable_value(name), new.get_variable_value(name)
    # Only q was trained; z and x kept what they had learned, the bucket its zero.
    assert after[[0, 2, 3], 0].tolist() == [before[2, 0], before[0, 0], 0.0]
    assert after[1] != 0
    slots = "training/slots/" + name + "/accumulator"
    np.testing.assert_array_equal(
        new.get_variable_value(slots)[[0, 2]], old.get_variable_value(slots)[[2, 0]]
    )


SIGNATURES = {
    "DNNClassifier": "hidden_units feature_columns model_dir n_classes weight_column "
    "label_vocabulary optimizer activation_fn dropout config warm_start_from "
    "loss_reduction batch_norm",
    "DNNRegressor": "hidden_units feature_columns model_dir label_dimension "
    "weight_column optimizer activation_fn dropout config warm_start_from "
    "loss_reduction batch_norm",
    "DNNEstimator": "head hidden_units feature_columns model_dir optimizer "
    "activation_fn dropout config warm_start_from batch_norm",
    "LinearClassifier": "feature_columns model_dir n_classes weight_column "
    "label_vocabulary optimizer config warm_start_from loss_reduction sparse_combiner",
    "LinearRegressor": "feature_columns model_dir label_dimension weight_column "
    "optimizer config warm_start_from loss_reduction sparse_combiner",
    "LinearEstimator": "head feature_columns model_dir optimizer config "
    "sparse_combiner warm_start_from",
    "DNNLinearCombinedClassifier": "model_dir linear_feature_columns "
    "linear_optimizer dnn_feature_columns dnn_optimizer dnn_hidden_units "
    "dnn_activation_fn dnn_dropout n_classes weight_column label_vocabulary config "
    "warm_start_from loss_reduction batch_norm linear_sparse_combiner",
    "DNNLinearCombinedRegressor": "model_dir linear_feature_columns linear_optimizer "
    "dnn_feature_columns dnn_optimizer dnn_hidden_units dnn_activation_fn dnn_dropout "
    "label_dimension weight_column config warm_start_from loss_reduction batch_norm "
    "linear_sparse_combiner",
    "DNNLinearCombinedEstimator": "head model_dir linear_feature_columns "
    "linear_optimizer dnn_feature_columns dnn_optimizer dnn_hidden_units "
    "dnn_activation_fn dnn_dropout config batch_norm linear_sparse_combiner",
    "BaselineClassifier": "model_dir n_classes weight_column label_vocabulary "
    "optimizer config loss_reduction",
    "BaselineRegressor": "model_dir label_dimension weight_column optimizer config "
    "loss_reduction",
    "BaselineEstimator": "head model_dir optimizer config",
    "Estimator": "model_fn model_dir config params warm_start_from",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_come_in_tf_estimators_order(name):
    found = list(inspect.signature(getattr(ex, name).__init__).parameters)[1:]
    expected = SIGNATURES[name].split()
    # Ours may follow, where it had none.
    assert found[: len(expected)] == expected
    assert "warm_start_from" in found


TENSORFLOW = Path(__file__).parent.parent / "checkpoints" / "tensorflow"


@pytest.mark.golden
@pytest.mark.parametrize("generation", ["v2", "v1"])
def test_a_model_that_tensorflow_trained_predicts_the_same_here(tmp_path, generation):
    columns = ex.feature_columns
    word = columns.categorical_column_with_vocabulary_list(
        "word", ["x", "y", "z"], num_oov_buckets=1
    )
    model = ex.DNNLinearCombinedClassifier(
        tmp_path,
        linear_feature_columns=[word],
        dnn_feature_columns=[
            columns.embedding_column(word, 2),
            columns.numeric_column("n"),
        ],
        dnn_hidden_units=[3],
        batch_norm=True,
        config=QUIET,
        warm_start_from=TENSORFLOW / generation / "model.ckpt-5",
    )
    numbers = np.array([[1], [2], [3], [4]], np.float32)
    rows = {"word": np.array(["x", "y", "z", "q"]), "n": numbers}
    found = [row["logits"][0] for row in model.predict(lambda: iter([rows]))]
    golden = json.loads((TENSORFLOW / f"{generation}.json").read_text())
    np.testing.assert_allclose(found, golden["logits"], rtol=2e-6)
    # Trained on, the wide part goes on with the slots that it had.
    model.train(lambda: iter([(rows, np.array([0, 1, 1, 0]))]))
    slots = "training/slots/linear/linear_model/word/weights/accumulator"
    old = golden["variables"]
    name = next(
        n for n in old if n.endswith(("weights/Ftrl", "word/weights/accumulator"))
    )
    assert (model.get_variable_value(slots) > np.array(old[name]["values"])).all()


def test_the_folder_of_a_tensorflow_model_is_not_trained_over(tmp_path):
    folder = shutil.copytree(TENSORFLOW / "v2", tmp_path / "v2")
    model = ex.Estimator(line_model_fn, folder, QUIET)
    with pytest.raises(ConfigError, match="from the checkpoint with warm_start_from"):
        model.train(data(), steps=1)
    assert not (folder / "example.json").exists()


def test_the_guide_does_what_it_says():
    guide = Path(__file__).parents[2] / "docs" / "guides" / "warm_start.md"
    found = doctest.testfile(str(guide), module_relative=False)
    assert found.attempted > 10
    assert found.failed == 0
