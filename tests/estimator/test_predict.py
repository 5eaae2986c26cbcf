import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import Recorder, X, data, line_model_fn, once

import estimax as ex
from estimax.core.errors import FeatureError, MissingFileError, SpecError
from estimax.input import Dataset


def expected(model):
    weight = model.get_variable_value("line/kernel")
    return X @ weight + model.get_variable_value("line/bias")


def test_examples_come_one_by_one_in_the_inputs_order(trained):
    rows = list(trained.predict(once(batch=3)))
    assert [sorted(row) for row in rows] == [["twice", "y"]] * 8
    found = np.stack([row["y"] for row in rows])
    np.testing.assert_allclose(found, expected(trained), rtol=1e-6)
    assert isinstance(rows[0]["y"], np.ndarray)


def test_nothing_happens_before_the_first_value(make):
    def input_fn():
        raise AssertionError("called too early")

    predictions = make().predict(input_fn)
    with pytest.raises(MissingFileError, match="has not been trained"):
        next(predictions)


def test_endless_input_is_read_only_as_far_as_asked(trained):
    rows = itertools.islice(trained.predict(data()), 20)
    assert len(list(rows)) == 20


def test_predict_keys_keep_those_and_unknown_ones_are_ignored(trained):
    rows = list(trained.predict(once(), predict_keys=["y", "no such"]))
    assert {tuple(row) for row in rows} == {("y",)}


def test_predict_keys_of_which_none_is_predicted_are_refused(trained):
    with pytest.raises(SpecError, match="none of predict_keys"):
        next(trained.predict(once(), predict_keys=["no such"]))


def test_batches_come_whole_when_asked_for(trained):
    batches = list(trained.predict(once(batch=3), yield_single_examples=False))
    assert [batch["y"].shape for batch in batches] == [(3, 1), (3, 1), (2, 1)]


def other_rows_model_fn(features, labels, mode):
    spec = line_model_fn(features, labels, mode)
    if mode == ex.ModeKeys.PREDICT:
        uneven = {"y": spec.predictions["y"], "weights": jnp.ones(5)}
        return spec._replace(predictions=uneven, export_outputs=None)
    return spec


def test_predictions_of_different_lengths_cannot_be_cut_into_examples(make):
    model = make(other_rows_model_fn).train(data(), steps=1)
    with pytest.raises(SpecError, match="different numbers of rows"):
        next(model.predict(once()))
    batch = next(model.predict(once(), yield_single_examples=False))
    assert batch["weights"].shape == (5,)


def test_predictions_may_be_one_array(make):
    def model_fn(features, labels, mode):
        spec = line_model_fn(features, labels, mode)
        if mode != ex.ModeKeys.PREDICT:
            return spec
        return ex.EstimatorSpec(mode, predictions=spec.predictions["y"])

    model = make(model_fn).train(data(), steps=1)
    rows = list(model.predict(once()))
    np.testing.assert_allclose(np.stack(rows), expected(model), rtol=1e-6)
    with pytest.raises(SpecError, match="only if the model predicts a dict"):
        next(model.predict(once(), predict_keys=["y"]))


def test_two_generators_may_be_read_in_turn(trained):
    one, other = trained.predict(once()), trained.predict(once(batch=4))
    pairs = list(zip(one, other, strict=True))
    assert len(pairs) == 8
    assert all(np.array_equal(a["y"], b["y"]) for a, b in pairs)


def test_a_generator_closed_early_calls_no_end(trained):
    hook = Recorder()
    predictions = trained.predict(once(), hooks=[hook])
    next(predictions)
    predictions.close()
    assert "end" not in [phase for _, phase, _ in hook.log]
    list(trained.predict(once(), hooks=[hook]))
    assert hook.log[-1] == ("hook", "end", 3)


def test_labels_in_the_input_are_not_passed_on(make):
    seen = []

    def model_fn(features, labels, mode):
        seen.append((mode, labels is None))
        return line_model_fn(features, labels, mode)

    model = make(model_fn).train(data(), steps=1)
    next(model.predict(once()))
    assert {no for mode, no in seen if mode == ex.ModeKeys.PREDICT} == {True}
    assert {no for mode, no in seen if mode == ex.ModeKeys.TRAIN} == {False}


def test_features_that_only_pass_through_keep_their_values(make):
    def model_fn(features, labels, mode):
        spec = line_model_fn({"x": features["x"]}, labels, mode)
        if mode != ex.ModeKeys.PREDICT:
            return spec
        return spec._replace(predictions={"id": features["id"]}, export_outputs=None)

    ids = np.arange(8, dtype=np.int32)
    rows = Dataset.from_tensor_slices(({"x": X, "id": ids}, X))
    model = make(model_fn).train(lambda: rows.batch(4), steps=1)
    assert [r["id"] for r in model.predict(lambda: rows.batch(3))] == ids.tolist()


def test_using_text_as_an_array_names_the_feature_and_the_column_to_use(make):
    def model_fn(features, labels, mode):
        return line_model_fn({"x": features["city"] * 2}, labels, mode)

    def input_fn():
        return {"city": np.array(["Oslo", "Rome"])}, np.zeros((2, 1), np.float32)

    with pytest.raises(FeatureError) as error:
        make(model_fn).train(input_fn, steps=1)
    assert "features/city is text" in str(error.value)
    assert "categorical_column_with_hash_bucket" in str(error.value)


def test_a_hook_may_stop_a_prediction(trained):
    class Enough(ex.hooks.Hook):
        ended = False

        def after_run(self, context, values):
            context.request_stop()

        def end(self, context):
            self.ended = True

    hook = Enough()
    assert len(list(trained.predict(once(batch=2), hooks=[hook]))) == 2
    assert hook.ended
