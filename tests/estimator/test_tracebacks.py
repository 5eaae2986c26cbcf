"""Errors show the frames of the user's program, and end with their message."""

import traceback
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import linen as nn

import estimax as ex
from estimax.core.errors import FeatureError
from tests.estimator.tiny_models import data, line_model_fn

HERE = Path(__file__).name


def files_of(error):
    """Return the names of the files in a traceback, and its last line."""
    frames = traceback.extract_tb(error.__traceback__)
    last = "".join(traceback.format_exception(error)).rstrip().splitlines()[-1]
    return [Path(frame.filename).name for frame in frames], last


def missing_feature(features, labels, mode):
    column = ex.feature_columns.numeric_column("height")
    net = ex.feature_columns.input_layer(features, [column])
    head = ex.heads.RegressionHead()
    return head.create_estimator_spec(
        features, mode, nn.Dense(1)(net), labels, optimizer="SGD"
    )


def test_an_error_of_a_column_shows_the_line_of_the_model_fn(tmp_path):
    model = ex.Estimator(missing_feature, tmp_path)
    with pytest.raises(FeatureError, match="'height'") as caught:
        model.train(data())
    files, last = files_of(caught.value)
    assert files == [HERE, "estimator.py", HERE]
    assert last.startswith("estimax.core.errors.FeatureError: DenseFeatures: column")


def test_an_error_in_train_and_evaluate_shows_three_frames(tmp_path):
    model = ex.Estimator(missing_feature, tmp_path)
    specs = ex.TrainSpec(data(), max_steps=2), ex.EvalSpec(data())
    with pytest.raises(FeatureError) as caught:
        ex.train_and_evaluate(model, *specs)
    assert files_of(caught.value)[0] == [HERE, "train_evaluate.py", HERE]


def test_an_error_of_a_prediction_shows_the_line_of_the_model_fn(tmp_path):
    model = ex.Estimator(line_model_fn, tmp_path).train(data(), steps=1)
    broken = ex.Estimator(missing_feature, model.model_dir)
    with pytest.raises(FeatureError) as caught:
        list(broken.predict(data()))
    assert files_of(caught.value)[0] == [HERE, "estimator.py", HERE]


def test_the_users_own_error_shows_only_the_users_frames(tmp_path):
    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x):
            raise RuntimeError("mine")

    def model_fn(features, labels, mode):
        return Layer()(np.ones(2))

    with pytest.raises(RuntimeError, match="mine") as caught:
        ex.Estimator(model_fn, tmp_path).train(data())
    files, last = files_of(caught.value)
    assert files == [HERE, "estimator.py", HERE, HERE]
    assert last == "RuntimeError: mine"


def test_an_error_inside_jax_keeps_its_frames(tmp_path):
    def model_fn(features, labels, mode):
        return nn.Dense(2)(features["x"]) @ np.ones((5, 5), np.float32)

    with pytest.raises(TypeError) as caught:
        ex.Estimator(model_fn, tmp_path).train(data())
    assert "recording.py" in files_of(caught.value)[0]


@pytest.fixture
def unfiltered():
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", "off")
    yield
    jax.config.update("jax_traceback_filtering", before)


def test_jaxs_switch_keeps_all_frames(tmp_path, unfiltered):
    model = ex.Estimator(missing_feature, tmp_path)
    with pytest.raises(FeatureError) as caught:
        model.train(data())
    assert "recording.py" in files_of(caught.value)[0]
