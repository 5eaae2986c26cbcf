"""Estimators made of other estimators."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import data, line_model_fn, once

import estimax as ex
from estimax.core.errors import SpecError


def model_that_predicts(features, labels, mode):
    y = features["x"] * ex.get_variable("w", (), initializer=1.0)
    return ex.EstimatorSpec(
        mode,
        predictions={"y": y},
        loss=jnp.mean(jnp.square(y - labels)),
        train_op=ex.optimizers.SGD(0.0),
        eval_metric_ops={"error": ex.metrics.mean(jnp.abs(y - labels))},
    )


def test_metrics_are_added_and_replace_those_of_the_same_name(make):
    model = make().train(data(), steps=1)
    more = ex.add_metrics(model, lambda labels: {"top": ex.metrics.mean(labels)})
    assert more.evaluate(once()).keys() == {"error", "loss", "top", "global_step"}
    other = ex.add_metrics(model, lambda labels: {"error": ex.metrics.mean(0 * labels)})
    assert other.evaluate(once())["error"] == 0


def test_a_metric_may_look_at_predictions_features_and_config(make):
    seen = []

    def metric_fn(predictions, features, config):
        seen.append(config.tf_random_seed)
        off = predictions["y"] - features["x"]
        return {"off": ex.metrics.mean(off)}

    model = ex.add_metrics(make(model_that_predicts), metric_fn)
    assert model.train(data(), steps=1).evaluate(once())["off"] == 0
    assert set(seen) == {1}


def test_an_extended_estimator_is_the_same_model_in_the_same_folder(make):
    model = make().train(data(), steps=2)
    more = ex.add_metrics(model, lambda labels: {"top": ex.metrics.mean(labels)})
    assert type(more) is ex.Estimator
    assert more.model_dir == model.model_dir
    more.train(data(), steps=2)
    assert model.get_variable_value("global_step") == 4
    assert next(more.predict(once())).keys() == {"y", "twice"}


def test_params_stay_bound(make):
    def model_fn(features, labels, mode, params):
        assert params == {"rate": 0.5}
        return line_model_fn(features, labels, mode)

    model = ex.add_metrics(make(model_fn, {"rate": 0.5}), lambda: {})
    model.train(data(), steps=1)


def test_canned_models_can_be_extended(tmp_path):
    column = ex.feature_columns.numeric_column("x")
    model = ex.LinearRegressor([column], tmp_path)
    model = ex.add_metrics(
        model,
        lambda labels, predictions: {
            "mae": ex.metrics.mean(jnp.abs(labels - predictions["predictions"]))
        },
    )
    results = model.train(data(), steps=1).evaluate(once())
    assert {"mae", "average_loss"} <= results.keys()


def test_what_cannot_be_filled_is_refused(make):
    with pytest.raises(SpecError, match=r"argument .label.*did you mean .labels."):
        ex.add_metrics(make(), lambda label: {})
    with pytest.raises(TypeError, match="expected an Estimator"):
        ex.add_metrics(line_model_fn, lambda labels: {})


def test_the_estimators_own_names_stay_its_own(make):
    model = make().train(data(), steps=1)
    more = ex.add_metrics(model, lambda labels: {"loss": ex.metrics.mean(labels)})
    with pytest.raises(SpecError, match="'loss' is reserved"):
        more.evaluate(once())


def test_a_logit_fn_gets_what_it_names():
    def logit_fn(features, mode, scale):
        return {mode: features * scale}

    bound = functools.partial(logit_fn, scale=2.0)
    logits = ex.call_logit_fn(bound, jnp.ones(2), "eval", None, None)
    np.testing.assert_array_equal(logits["eval"], [2, 2])


def test_a_logit_fn_that_returns_something_else_is_refused():
    with pytest.raises(SpecError, match="must return an array or a dict"):
        ex.call_logit_fn(lambda features: [1], 0, "eval", None, None)
    with pytest.raises(SpecError, match="argument 'labels'"):
        ex.call_logit_fn(lambda labels: 0, 0, "eval", None, None)
