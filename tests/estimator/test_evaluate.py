import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import Recorder, X, data, line_model_fn, once

import estimax as ex
from estimax import checkpoints
from estimax.core.errors import EstimaxError, InputError, MissingFileError, SpecError
from estimax.hooks import summary

compilations = []


@pytest.fixture(scope="module", autouse=True)
def count_compilations():
    def listen(event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            compilations.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)


def squared_errors(model, rows):
    weight = model.get_variable_value("line/kernel")
    bias = model.get_variable_value("line/bias")
    return np.square(X[:rows] @ weight + bias - X[:rows] / 2)


def test_the_results_are_metrics_loss_and_global_step(trained):
    results = trained.evaluate(once())
    assert sorted(results) == ["error", "global_step", "loss"]
    assert results["global_step"] == 3
    assert {name: type(value) for name, value in results.items()} == {
        "error": float,
        "global_step": int,
        "loss": float,
    }


def test_json_takes_the_results_also_if_a_metric_is_an_array(make):
    def model_fn(features, labels, mode):
        spec = line_model_fn(features, labels, mode)
        both = ex.metrics.mean_tensor(jnp.stack([labels, 2 * labels], axis=-1))
        return spec._replace(eval_metric_ops={"both": both})

    results = make(model_fn).train(once()).evaluate(once(batch=8))
    assert json.loads(json.dumps(results)) == results
    assert isinstance(results["both"], list)


def test_loss_is_the_mean_over_batches_and_a_metric_that_over_examples(trained):
    results = trained.evaluate(once(batch=2, rows=5))
    errors = squared_errors(trained, 5)
    halves = [errors[0:2].mean(), errors[2:4].mean(), errors[4:5].mean()]
    np.testing.assert_allclose(results["loss"], np.mean(halves), rtol=1e-5)
    np.testing.assert_allclose(results["error"], np.sqrt(errors).mean(), rtol=1e-5)


def test_steps_limit_the_batches_and_fewer_are_fine(trained):
    one = trained.evaluate(data(), steps=1)
    errors = squared_errors(trained, 8)
    np.testing.assert_allclose(one["loss"], errors[:2].mean(), rtol=1e-5)
    trained.evaluate(once(), steps=100)
    with pytest.raises(SpecError, match="steps must be > 0"):
        trained.evaluate(once(), steps=0)


def test_results_are_written_where_their_name_says(trained):
    results = trained.evaluate(once(), name="holdout")
    trained.evaluate(once())
    for folder in ("eval", "eval_holdout"):
        written = summary.read_scalars(Path(trained.model_dir) / folder)
        assert sorted(written) == ["error", "loss"]
        assert written["loss"][-1] == (3, pytest.approx(float(results["loss"])))
    assert trained.eval_dir("holdout").endswith("eval_holdout")


@pytest.mark.parametrize("name", ["loss", "global_step"])
def test_the_estimators_own_metric_names_are_refused(make, name):
    def model_fn(features, labels, mode):
        spec = line_model_fn(features, labels, mode)
        return spec._replace(eval_metric_ops={name: ex.metrics.mean(labels)})

    with pytest.raises(SpecError, match=f"{name!r} is reserved"):
        make(model_fn).train(data(), steps=1)


def test_an_untrained_model_is_not_evaluated_with_random_weights(make):
    with pytest.raises(MissingFileError, match="this model has not been trained"):
        make().evaluate(once())


def test_nothing_to_evaluate_on_is_an_error(trained):
    with pytest.raises(EstimaxError, match=r"no data|no batch"):
        trained.evaluate(lambda: iter([]))


def repeated():
    return ex.input.Dataset.from_tensor_slices(({"x": X}, X / 2)).batch(2).repeat()


def test_data_without_end_is_refused_before_anything_is_evaluated(trained):
    with pytest.raises(InputError, match=r"repeats without end.*leave out repeat"):
        trained.evaluate(repeated)
    with pytest.raises(InputError, match=r"one batch repeated without end.*give steps"):
        trained.evaluate(lambda: ({"x": X}, X / 2))
    assert trained.evaluate(repeated, steps=1)["global_step"] == 3


def test_data_without_end_may_be_ended_by_a_hook(trained):
    class StopsAtOnce(ex.hooks.Hook):
        def after_run(self, context, values):
            context.request_stop()

    assert trained.evaluate(repeated, hooks=[StopsAtOnce()])["global_step"] == 3


def test_a_checkpoint_can_be_chosen(make):
    model = make(save_checkpoints_steps=2)
    model.train(data(), steps=4)
    older = checkpoints.path_of(model.model_dir, 2)
    results = model.evaluate(once(), checkpoint_path=older)
    assert results["global_step"] == 2
    assert results["loss"] != model.evaluate(once())["loss"]


def test_a_checkpoint_that_is_not_there_is_named(trained):
    with pytest.raises(EstimaxError, match="nowhere"):
        trained.evaluate(once(), checkpoint_path="/nowhere/model.ckpt-1")


def test_evaluating_again_compiles_nothing(trained):
    first = trained.evaluate(once())
    before = len(compilations)
    assert before, "jax tells of no compilation: has the event another name?"
    assert trained.evaluate(once()) == first
    assert len(compilations) == before


def test_training_and_evaluating_in_turn_compile_nothing_anew(make):
    model = make()
    for _ in range(2):
        model.train(data(), steps=2)
        model.evaluate(once())
    before = len(compilations)
    model.train(data(), steps=2)
    model.evaluate(once())
    assert len(compilations) == before


def test_hooks_see_every_batch(trained):
    hook = Recorder()
    trained.evaluate(once(batch=4), hooks=[hook])
    phases = [phase for _, phase, _ in hook.log]
    around = ["before_run", "after_run"]
    assert phases == ["begin", *around, *around, "end"]


def test_a_broken_input_is_not_the_end_of_data(trained):
    def broken():
        yield {"x": X[:2]}, X[:2]
        raise InputError("row 3 is unreadable")

    with pytest.raises(InputError, match="row 3 is unreadable"):
        trained.evaluate(broken)


def test_features_may_be_one_array(tmp_path):
    def model_fn(features, labels, mode):
        return line_model_fn({"x": features}, labels, mode)

    model = ex.Estimator(model_fn, tmp_path)
    model.train(lambda: (X, X / 2), steps=1)
    assert model.evaluate(lambda: iter([(X, X / 2)]))["global_step"] == 1
