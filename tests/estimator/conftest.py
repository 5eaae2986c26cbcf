"""Estimators of the models in `tiny_models`, which the tests of this package share."""

import sys
from pathlib import Path

import pytest

import estimax as ex

sys.path.insert(0, str(Path(__file__).parent))
from tiny_models import data, line_model_fn


@pytest.fixture
def make(tmp_path):
    """make(model_fn=line_model_fn, params=None, **run_config) -> Estimator."""

    def make(model_fn=line_model_fn, params=None, **settings):
        settings.setdefault("save_summary_steps", 0)
        settings.setdefault("log_step_count_steps", None)
        settings.setdefault("tf_random_seed", 1)
        config = ex.RunConfig(**settings)
        return ex.Estimator(model_fn, tmp_path / "model", config, params)

    return make


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A line that was trained for three steps; tests must not train it on."""
    config = ex.RunConfig(
        save_summary_steps=0, log_step_count_steps=None, tf_random_seed=1
    )
    model = ex.Estimator(line_model_fn, tmp_path_factory.mktemp("trained"), config)
    return model.train(data(), steps=3)
