"""Several threads that use one Estimator at the same time."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tiny_models import X, data, line_model_fn, once

import estimax as ex
from estimax.core.errors import InUseError


def at_once(*calls):
    """Start all calls together; return their results or errors in order."""
    start = threading.Barrier(len(calls))

    def run(call):
        start.wait(timeout=60)
        try:
            return call()
        except InUseError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def counting_model_fn(features, labels, mode):
    """A line, with a variable that prediction does not have."""
    spec = line_model_fn(features, labels, mode)
    if mode == ex.ModeKeys.PREDICT:
        return spec
    seen = ex.get_variable("seen", (), initializer=1.0, trainable=False)
    return spec._replace(loss=spec.loss + seen)


@pytest.fixture
def model(make):
    return make(counting_model_fn).train(data(), steps=3)


def test_calls_of_several_threads_give_what_each_gives_alone(model, make, tmp_path):
    def predict():
        return np.concatenate([row["y"] for row in fresh.predict(once())])

    def export():
        bundle = ex.export.load(fresh.export_saved_model(tmp_path / "bundles"))
        return bundle.predict({"x": X})["y"].ravel()

    fresh = model
    expected = predict(), model.evaluate(once())
    fresh = make(counting_model_fn)  # without programs and variables

    def evaluate():
        return fresh.evaluate(once())

    found = at_once(predict, evaluate, export, evaluate, predict, export)
    assert found[1] == found[3] == expected[1]
    for place in (0, 2, 4, 5):
        np.testing.assert_allclose(found[place], expected[0], rtol=1e-6)


def test_of_two_trainings_one_is_refused_and_evaluation_goes_on(model, make, tmp_path):
    waiting, go_on = threading.Event(), threading.Event()

    def input_fn():
        waiting.set()
        assert go_on.wait(60)
        return data()()

    def evaluate_and_train():
        assert waiting.wait(60)
        try:
            step = model.evaluate(once())["global_step"]
            with pytest.raises(InUseError, match="is training here already"):
                model.train(data(), steps=1)
        finally:
            go_on.set()
        return step

    def train():
        return model.train(input_fn, steps=4)

    assert at_once(train, evaluate_and_train) == [model, 3]
    config = model.config.replace(model_dir=str(tmp_path / "alone"))
    alone = ex.Estimator(counting_model_fn, config=config).train(data(), steps=3)
    alone.train(data(), steps=4)
    for name in model.get_variable_names():
        there = alone.get_variable_value(name)
        assert np.array_equal(model.get_variable_value(name), there), name
