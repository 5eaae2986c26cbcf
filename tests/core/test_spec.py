import jax.numpy as jnp
import numpy as np
import pytest

from estimax import metrics
from estimax.core.device_dtypes import Words
from estimax.core.errors import SpecError
from estimax.core.spec import (
    ClassificationOutput,
    EstimatorSpec,
    ModeKeys,
    PredictOutput,
    RegressionOutput,
)

TRAIN, EVAL, PREDICT = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT
LOSS = jnp.float32(1.0)
Y = jnp.zeros((2, 1))


@pytest.mark.parametrize(
    ("mode", "given", "missing"),
    [
        (TRAIN, {"train_op": "SGD"}, "loss is missing"),
        (TRAIN, {"loss": LOSS}, "train_op is missing"),
        (EVAL, {}, "loss is missing"),
        (PREDICT, {}, "predictions are missing"),
    ],
)
def test_every_mode_needs_its_fields(mode, given, missing):
    with pytest.raises(SpecError, match=missing):
        EstimatorSpec(mode, **given)


@pytest.mark.parametrize("mode", ["training", "predict", "TRAIN", None, 1, []])
def test_an_unknown_mode_is_refused(mode):
    with pytest.raises(SpecError, match="mode must be what the model_fn was called"):
        EstimatorSpec(mode, predictions={"y": Y}, loss=LOSS, train_op="SGD")


def test_a_spec_for_all_modes_may_be_built_at_once():
    for mode in (TRAIN, EVAL, PREDICT):
        EstimatorSpec(mode, predictions={"y": Y}, loss=LOSS, train_op="SGD")


def test_a_loss_is_one_number():
    assert EstimatorSpec(EVAL, loss=jnp.ones((1, 1))).loss.shape == ()
    with pytest.raises(SpecError, match=r"one element, got shape \(2,\)"):
        EstimatorSpec(EVAL, loss=jnp.ones(2))
    with pytest.raises(TypeError, match="loss must be an array, got float"):
        EstimatorSpec(EVAL, loss=1.0)


def test_predictions_are_arrays_or_words():
    EstimatorSpec(PREDICT, predictions=Y)
    EstimatorSpec(PREDICT, predictions={"c": Words(jnp.zeros(2, int), ("a",))})
    with pytest.raises(TypeError, match="got list"):
        EstimatorSpec(PREDICT, predictions={"y": [1.0]})


def test_metrics_are_values_with_names_of_their_own():
    EstimatorSpec(EVAL, loss=LOSS, eval_metric_ops={"m": metrics.mean(Y)})
    for reserved in ("loss", "global_step"):
        with pytest.raises(SpecError, match=f"{reserved!r} is reserved"):
            EstimatorSpec(EVAL, loss=LOSS, eval_metric_ops={reserved: metrics.mean(Y)})
    with pytest.raises(TypeError, match="'m' must be a metric value"):
        EstimatorSpec(EVAL, loss=LOSS, eval_metric_ops={"m": Y})
    with pytest.raises(TypeError, match="must be a dict, got list"):
        EstimatorSpec(EVAL, loss=LOSS, eval_metric_ops=[metrics.mean(Y)])


def test_hooks_are_hooks():
    with pytest.raises(TypeError, match="training_hooks"):
        EstimatorSpec(TRAIN, loss=LOSS, train_op="SGD", training_hooks=[object()])


def test_exports_default_to_the_predictions():
    exports = EstimatorSpec(PREDICT, predictions={"y": Y}).export_outputs
    assert list(exports) == ["serving_default"]
    assert list(exports["serving_default"].as_outputs()) == ["y"]


def test_one_export_is_also_the_default_and_several_must_name_it():
    one = {"mine": RegressionOutput(Y)}
    spec = EstimatorSpec(PREDICT, predictions=Y, export_outputs=one)
    assert sorted(spec.export_outputs) == ["mine", "serving_default"]
    two = {"a": RegressionOutput(Y), "b": PredictOutput(Y)}
    with pytest.raises(SpecError, match="need one named 'serving_default'"):
        EstimatorSpec(PREDICT, predictions=Y, export_outputs=two)
    with pytest.raises(TypeError, match=r"export_outputs\['a'\]"):
        EstimatorSpec(PREDICT, predictions=Y, export_outputs={"a": Y})


def test_outputs_have_the_names_of_their_signatures():
    assert list(RegressionOutput(Y).as_outputs()) == ["outputs"]
    assert list(ClassificationOutput(scores=Y).as_outputs()) == ["scores"]
    assert list(PredictOutput(Y).as_outputs()) == ["output"]
    assert list(PredictOutput({("head", "y"): Y}).as_outputs()) == ["head/y"]
    with pytest.raises(SpecError, match="give scores, classes, or both"):
        ClassificationOutput()


def test_replacing_checks_again_and_keeps_the_mode():
    spec = EstimatorSpec(EVAL, loss=LOSS)
    assert spec._replace(loss=np.float32(2.0)).loss == 2.0
    with pytest.raises(SpecError, match="mode"):
        spec._replace(mode=TRAIN)
    with pytest.raises(TypeError, match="loss must be an array"):
        spec._replace(loss="low")


def test_replacing_the_predictions_replaces_the_exports_made_of_them():
    spec = EstimatorSpec(PREDICT, predictions={"y": Y})
    changed = spec._replace(predictions={"z": Y})
    assert list(changed.export_outputs["serving_default"].as_outputs()) == ["z"]


def test_a_spec_is_shown_by_its_shapes_and_names():
    spec = EstimatorSpec(
        TRAIN,
        predictions={"y": Y},
        loss=LOSS,
        train_op="SGD",
        eval_metric_ops={"mean": metrics.mean(Y)},
    )
    assert repr(spec).splitlines() == [
        "EstimatorSpec(mode='train', predictions={'y': float32[2, 1]}, loss=float32[],",
        "  train_op='SGD', eval_metric_ops={'mean': Sums})",
    ]


def test_an_output_is_shown_by_the_arrays_of_its_signature():
    assert repr(PredictOutput(Y)) == "PredictOutput({'output': float32[2, 1]})"
    assert repr(RegressionOutput(Y)) == "RegressionOutput({'outputs': float32[2, 1]})"


def test_a_metric_that_was_unpacked_says_to_give_it_whole():
    value, update_op = metrics.mean([1.0])
    with pytest.raises(TypeError, match=r"'m'.*unpacked"):
        EstimatorSpec(
            "eval", loss=jnp.zeros(()), eval_metric_ops={"m": (value, update_op)}
        )
