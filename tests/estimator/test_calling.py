import functools
import os

import numpy as np
import pytest
from tiny_models import X, data, features_only, line_model_fn, once

import estimax as ex
from estimax.core.errors import CheckpointError, ConfigError, SpecError
from estimax.input import Dataset, InputContext


def test_a_model_fn_is_called_with_the_arguments_that_it_names(make):
    seen = []

    def model_fn(features, labels, mode, params, config):
        seen.append((mode, params, config.tf_random_seed))
        return line_model_fn(features, labels, mode)

    make(model_fn, {"units": 3}).train(data(), steps=1)
    assert seen[0] == ("train", {"units": 3}, 1)


def test_partials_objects_and_methods_are_model_fns(make):
    class Model:
        def __call__(self, features, labels, mode):
            return line_model_fn(features, labels, mode)

        def method(self, features, labels, mode):
            return line_model_fn(features, labels, mode)

    def with_more(features, labels, mode, scale):
        return line_model_fn(features, labels, mode)

    for model_fn in (Model(), Model().method, functools.partial(with_more, scale=2)):
        make(model_fn)
    make(functools.partial(with_more, scale=2)).train(data(), steps=1)


def test_a_model_fn_may_be_a_method_of_a_subclass(tmp_path):
    class Line(ex.Estimator):
        def model_fn(self, features, labels, mode):
            return line_model_fn(features, labels, mode)

    model = Line(model_dir=tmp_path).train(data(), steps=1)
    assert model.evaluate(once())["global_step"] == 1


@pytest.mark.parametrize(
    ("model_fn", "params", "words"),
    [
        (lambda features, lables: None, None, "did you mean 'labels'"),
        (lambda labels, mode: None, None, "must have an argument 'features'"),
        (lambda features: None, {}, "model_fn has no argument 'params'"),
        (None, None, "model_fn must be a function"),
    ],
)
def test_a_model_fn_that_cannot_be_called_is_refused_at_once(
    make, model_fn, params, words
):
    with pytest.raises(SpecError, match=words):
        make(model_fn, params)


def test_labels_need_an_argument(make):
    def model_fn(features, mode):
        raise AssertionError("called without its labels")

    with pytest.raises(SpecError, match="model_fn has no argument 'labels'"):
        make(model_fn).train(data(), steps=1)


def test_what_is_no_spec_is_refused(make):
    with pytest.raises(SpecError, match="must return an EstimatorSpec, got dict"):
        make(lambda features: {}).train(features_only(), steps=1)


def test_a_spec_of_another_mode_is_refused(make):
    def model_fn(features, labels, mode):
        return line_model_fn(features, labels, ex.ModeKeys.EVAL)

    with pytest.raises(SpecError, match=r"mode 'train' and returned .* of mode 'eval'"):
        make(model_fn).train(data(), steps=1)


def test_an_input_fn_is_called_with_what_it_names(make):
    seen = {}

    def input_fn(mode, params, config):
        seen.update(mode=mode, params=params, config=config)
        return data()()

    def model_fn(features, labels, mode, params):
        return line_model_fn(features, labels, mode)

    model = make(model_fn, {"batch": 2})
    model.train(input_fn, steps=1)
    assert seen == {"mode": "train", "params": {"batch": 2}, "config": model.config}


def test_an_input_fn_is_told_which_part_to_read(make):
    seen = []

    def input_fn(input_context):
        seen.append(input_context)
        return input_context.shard(data()())

    make().train(input_fn, steps=1)
    assert seen == [InputContext(num_input_pipelines=1, input_pipeline_id=0)]


def test_an_input_fn_that_wants_more_fails_as_python_does(make):
    with pytest.raises(TypeError, match="path"):
        make().train(lambda path: None, steps=1)


@pytest.mark.parametrize(
    "returned",
    [(1, 2, 3), [{"x": X}], "rows.csv", lambda: None],
    ids=["three", "list of one", "text", "function"],
)
def test_an_input_fn_that_returns_something_else_is_told(make, returned):
    with pytest.raises(SpecError, match="input_fn"):
        make().train(lambda: returned, steps=1)


def test_params_cannot_be_changed_from_inside(make):
    def model_fn(features, labels, mode, params):
        params["sizes"].append(99)
        return line_model_fn(features, labels, mode)

    def input_fn(params):
        params["sizes"].append(99)
        return data()()

    given = {"sizes": [4]}
    model = make(model_fn, given)
    given["sizes"].append(99)
    model.params["sizes"].append(99)
    model.train(input_fn, steps=1)
    assert model.params == {"sizes": [4]}


def test_a_config_cannot_be_changed(make):
    config = make().config
    with pytest.raises(AttributeError):
        config.tf_random_seed = 3


def test_construction_touches_no_files(make):
    model = make()
    assert model.latest_checkpoint() is None
    with pytest.raises(FileNotFoundError, match="has not been trained"):
        model.get_variable_names()


def test_two_model_dirs_are_refused(tmp_path):
    config = ex.RunConfig(model_dir=tmp_path / "a")
    with pytest.raises(ConfigError, match="Give one of them"):
        ex.Estimator(line_model_fn, tmp_path / "b", config)
    assert ex.Estimator(line_model_fn, None, config).model_dir == str(tmp_path / "a")
    assert ex.Estimator(line_model_fn).model_dir
    with pytest.raises(ConfigError, match="config must be a RunConfig, got dict"):
        ex.Estimator(line_model_fn, tmp_path, {})


def test_a_relative_model_dir_stays_where_it_was(tmp_path, monkeypatch, caplog):
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    caplog.set_level("INFO", "estimax")
    config = ex.RunConfig("runs/a", log_step_count_steps=None, save_summary_steps=0)
    model = ex.Estimator(line_model_fn, config=config)
    warm = ex.Estimator(line_model_fn, "runs/b", warm_start_from="runs/a")

    def input_fn():
        monkeypatch.chdir(tmp_path / "there")
        return once()()

    model.train(input_fn, steps=1)
    warm.train(once(), steps=1)
    assert model.evaluate(once())["global_step"] == 1
    assert os.listdir(tmp_path / "there") == []
    assert "training starts at step 0 in runs/a, until step 1" in caplog.text
    # The same folder, in both ways to write it.
    monkeypatch.chdir(tmp_path / "here")
    assert ex.Estimator(line_model_fn, "runs/a", model.config).latest_checkpoint()


def test_any_iterable_of_batches_is_an_input(make):
    model = make()
    model.train(lambda: (({"x": X[i : i + 2]}, X[i : i + 2]) for i in (0, 2, 4)))
    assert model.get_variable_value("global_step") == 3
    rows = [({"x": X[:2]}, X[:2])] * 2
    model.train(lambda: Dataset.from_batches(rows))
    assert model.get_variable_value("global_step") == 5


def test_variables_have_names_and_values(make):
    model = make().train(data(), steps=1)
    assert {"global_step", "line/bias", "line/kernel"} <= set(
        model.get_variable_names()
    )
    assert model.get_variable_value("line/kernel").shape == (1, 1)
    with pytest.raises(CheckpointError, match="did you mean 'line/kernel'"):
        model.get_variable_value("line/kernle")
    assert isinstance(model.get_variable_value("line/bias"), np.ndarray)


def test_an_unknown_feature_is_told_those_that_there_are(make):
    def model_fn(features, labels, mode):
        return line_model_fn({"x": features["xx"]}, labels, mode)

    with pytest.raises(KeyError, match="xx") as caught:
        make(model_fn).train(data(), steps=1)
    assert "If 'xx' is a feature: the input has x." in caught.value.__notes__


def test_a_choice_by_values_is_told_how_to_be_made(make):
    def model_fn(features, labels, mode):
        spec = line_model_fn(features, labels, mode)
        return spec if spec.loss > 0 else None

    with pytest.raises(TypeError, match="boolean conversion") as caught:
        make(model_fn).train(data(), steps=1)
    assert any("jnp.where" in note for note in caught.value.__notes__)


def test_data_in_the_place_of_an_input_fn_is_refused(make):
    with pytest.raises(TypeError, match=r"input_fn must be a function.*got Dataset"):
        make().train(data()(), steps=1)


def test_a_class_in_the_place_of_a_hook_is_refused(make):
    with pytest.raises(TypeError, match="got the class NanTensorHook"):
        make().train(data(), hooks=[ex.hooks.NanTensorHook], steps=1)


def test_a_hook_in_the_place_of_a_list_is_refused(make):
    hook = ex.hooks.NanTensorHook()
    with pytest.raises(TypeError, match=r"hooks must be a list.*got NanTensorHook"):
        make().train(data(), hooks=hook, steps=1)
