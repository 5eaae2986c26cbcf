"""tf.estimator's observable behaviour, where no other test of this package shows it."""

import logging

import numpy as np
import pytest
from tiny_models import Recorder, Saves, X, data, line_model_fn, once

import estimax as ex
from estimax import checkpoints, hooks
from estimax.core.errors import SpecError
from estimax.estimator.training_hooks import training_hooks
from estimax.hooks import summary
from estimax.hooks.guards import OutOfRangeIdsHook


def steps_on_disk(model):
    return [
        checkpoints.step_of(p) for p in checkpoints.all_checkpoints(model.model_dir)
    ]


def test_a_run_leaves_tf_estimators_trace_of_checkpoints_and_summaries(tmp_path):
    config = ex.RunConfig(
        save_checkpoints_steps=100,
        save_summary_steps=50,
        log_step_count_steps=40,
        keep_checkpoint_max=3,
    )
    model, saves = ex.Estimator(line_model_fn, tmp_path, config), Saves()
    model.train(data(), steps=250, saving_listeners=[saves])
    assert saves.steps == [0, 100, 200, 250]
    assert steps_on_disk(model) == [100, 200, 250]
    written = summary.read_scalars(tmp_path)
    assert [step for step, _ in written["loss"]] == [1, 51, 101, 151, 201]
    speeds = [step for step, _ in written["global_step/sec"]]
    assert speeds == [41, 81, 121, 161, 201, 241]
    model.train(data(), steps=30, saving_listeners=[saves])
    assert saves.steps[4:] == [250, 280]
    assert steps_on_disk(model) == [200, 250, 280]


def test_automatic_hooks_stand_in_tf_estimators_order(tmp_path):
    spec = ex.EstimatorSpec(
        "train",
        loss=np.float32(0),
        train_op=ex.optimizers.SGD(0.1),
        training_chief_hooks=[chief := Recorder("chief")],
        training_hooks=[model := Recorder("model")],
    )
    user = Recorder("user")
    config = ex.RunConfig(tmp_path)
    found = training_hooks(config, spec, [user], [], last_step=9)
    expected = [
        hooks.CheckpointSaverHook,
        chief,
        hooks.StepCounterHook,
        hooks.SummarySaverHook,
        user,
        hooks.StopAtStepHook,
        hooks.NanTensorHook,
        OutOfRangeIdsHook,  # ours
        hooks.LoggingTensorHook,
        model,
    ]
    assert [h if h in expected else type(h) for h in found] == expected


def test_a_throttled_evaluation_comes_first_and_last_but_not_in_between(make):
    model, hook = make(save_checkpoints_steps=10), Recorder()
    evaluation = ex.EvalSpec(once(), throttle_secs=600, hooks=[hook])
    ex.train_and_evaluate(model, ex.TrainSpec(data(), max_steps=25), evaluation)
    hook.log.clear()
    ex.train_and_evaluate(model, ex.TrainSpec(data(), max_steps=55), evaluation)
    assert [step for _, phase, step in hook.log if phase == "begin"] == [35, 55]


@pytest.mark.parametrize("length", [1, 4, None])
def test_the_exact_step_is_reached_whatever_the_length_of_loops(make, length):
    model = make(iterations_per_loop=length).train(data(), steps=10)
    assert model.get_variable_value("global_step") == 10
    model.train(data(), max_steps=13)
    assert model.get_variable_value("global_step") == 13


def test_keyword_arguments_of_a_model_fn_receive_nothing_extra(make):
    def model_fn(features, labels, mode, **more):
        assert not more
        return line_model_fn(features, labels, mode)

    make(model_fn).train(data(), steps=1)


def test_an_input_context_with_a_default_is_left_alone(make):
    def input_fn(input_context=None):
        assert input_context is None
        return data()()

    make().train(input_fn, steps=1)


def test_params_that_are_not_given_are_told_of(make, caplog):
    def model_fn(features, labels, mode, params):
        return line_model_fn(features, labels, mode)

    with caplog.at_level(logging.WARNING, "estimax"):
        make(model_fn)
    assert "none were given" in caplog.text


def test_a_subclass_may_add_members_and_not_redefine_them(tmp_path):
    class Adds(ex.Estimator):
        more = 3

        def latest_checkpoint(self):
            return None

    class Redefines(ex.Estimator):
        def train(self, input_fn):
            return self

    class Hides(ex.Estimator):
        def _open(self):
            return None

    Adds(line_model_fn, tmp_path)
    for kind in (Redefines, Hides):
        with pytest.raises(SpecError, match=f"{kind.__name__} redefines"):
            kind(line_model_fn, tmp_path)


def test_the_last_loss_of_a_training_is_logged(make, caplog):
    with caplog.at_level(logging.INFO, "estimax"):
        make().train(data(), steps=2)
    assert "training ended at step 2: loss = " in caplog.text


def test_plain_arrays_without_an_end_are_told_of(trained, caplog):
    with caplog.at_level(logging.WARNING, "estimax"):
        trained.evaluate(lambda: ({"x": X}, X), steps=1)
        assert "without end" not in caplog.text
        next(trained.predict(lambda: {"x": X}))
    assert "the input_fn returned plain arrays" in caplog.text


def test_an_export_of_another_mode_is_refused(trained, tmp_path):
    with pytest.raises(SpecError, match="serves predictions"):
        trained.export_saved_model(tmp_path, experimental_mode=ex.ModeKeys.EVAL)


def word_columns():
    columns = ex.feature_columns
    word = columns.categorical_column_with_vocabulary_list("word", ["x", "y"])
    cross = columns.crossed_column(["word", "other"], 5)
    return word, cross, columns.embedding_column(word, 2), columns.numeric_column("n")


def test_variables_have_tf_estimators_names(tmp_path):
    word, cross, embedding, number = word_columns()
    config = ex.RunConfig(save_summary_steps=0, log_step_count_steps=None)
    model = ex.DNNLinearCombinedClassifier(
        tmp_path,
        linear_feature_columns=[word, cross, number],
        dnn_feature_columns=[embedding, number],
        dnn_hidden_units=[3, 2],
        batch_norm=True,
        config=config,
    )
    words = np.array(["x", "y"])
    rows = {"word": words, "other": words, "n": np.ones((2, 1), np.float32)}
    model.train(lambda: (rows, np.array([0, 1])), steps=1)
    found = model.get_variable_names()
    norm = ["gamma", "beta", "moving_mean", "moving_variance"]
    expected = {
        "global_step",
        "dnn/input_from_feature_columns/input_layer/word_embedding/embedding_weights",
        "dnn/logits/kernel",
        "dnn/logits/bias",
        "linear/linear_model/word/weights",
        "linear/linear_model/other_X_word/weights",
        "linear/linear_model/n/weights",
        "linear/linear_model/bias_weights",
        *(f"dnn/hiddenlayer_{i}/{k}" for i in (0, 1) for k in ("kernel", "bias")),
        *(f"dnn/hiddenlayer_{i}/batchnorm_{i}/{k}" for i in (0, 1) for k in norm),
    }
    ours = {n for n in found if not n.startswith("training/") and n != "random_key"}
    assert ours == expected
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("kind", "signatures"),
    [
        ("LinearClassifier", {"classification", "predict", "serving_default"}),
        ("LinearRegressor", {"regression", "predict", "serving_default"}),
    ],
)
def test_a_canned_bundle_has_every_signature_whatever_it_is_asked_with(
    tmp_path, kind, signatures
):
    config = ex.RunConfig(save_summary_steps=0, log_step_count_steps=None)
    column = ex.feature_columns.numeric_column("x")
    model = getattr(ex, kind)([column], tmp_path / "model", config=config)
    model.train(lambda: ({"x": X[:2]}, np.array([[0], [1]])), steps=1)
    bundle = ex.export.load(model.export_saved_model(tmp_path / "export"))
    assert set(bundle.signatures) >= signatures


def test_a_second_export_writes_new_weights_and_traces_no_signature_again(
    make, tmp_path
):
    traced = []

    def model_fn(features, labels, mode):
        traced.append(mode)
        return line_model_fn(features, labels, mode)

    model = make(model_fn).train(data(), steps=1)

    def exported():
        traced.clear()
        bundle = ex.export.load(model.export_saved_model(tmp_path / "export"))
        return len(traced), bundle.predict({"x": X})

    first_traces, first = exported()
    model.train(data(), steps=20)
    second_traces, second = exported()
    assert second_traces < first_traces <= 5
    assert not np.allclose(first["y"], second["y"])
