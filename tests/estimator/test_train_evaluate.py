import pytest
from tiny_models import Recorder, Saves, data, line_model_fn, once

import estimax as ex
from estimax.core.errors import ConfigError, SpecError
from estimax.estimator.train_evaluate import Evaluator


class Exports:
    """An exporter that notes what it was asked."""

    name = "noted"

    def __init__(self):
        self.seen = []

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_final):
        self.seen.append((int(eval_result["global_step"]), is_final))
        return f"{export_path}/{len(self.seen)}"


def test_every_checkpoint_is_evaluated_and_exported_the_last_one_as_final(make):
    model, exporter, saves = make(save_checkpoints_steps=10), Exports(), Saves()
    metrics, exports = ex.train_and_evaluate(
        model,
        ex.TrainSpec(data(), max_steps=25, saving_listeners=[saves]),
        ex.EvalSpec(once(), throttle_secs=0, exporters=exporter),
    )
    assert saves.steps == [0, 10, 20, 25]
    assert exporter.seen == [(10, False), (20, False), (25, True)]
    assert metrics["global_step"] == 25
    assert exports == [f"{model.model_dir}/export/noted/3"]


def test_a_finished_run_is_evaluated_and_exported_all_the_same(make):
    model, exporter = make().train(data(), steps=2), Exports()
    hook = Recorder()
    metrics, exports = ex.train_and_evaluate(
        model,
        ex.TrainSpec(data(), max_steps=2, hooks=[hook]),
        ex.EvalSpec(once(), exporters=[exporter]),
    )
    assert hook.log == []
    assert metrics["global_step"] == 2
    assert exporter.seen == [(2, True)]
    assert len(exports) == 1


def test_data_that_ends_early_ends_with_a_final_evaluation(make):
    exporter = Exports()
    metrics, _ = ex.train_and_evaluate(
        make(save_checkpoints_steps=3),
        ex.TrainSpec(once(), max_steps=100),
        ex.EvalSpec(once(), throttle_secs=600, exporters=exporter),
    )
    assert metrics["global_step"] == 4
    assert exporter.seen == [(3, False), (4, True)]


def test_evaluations_keep_their_distance_in_time(make):
    model = make(save_checkpoints_steps=1).train(data(), steps=1)
    now = iter([0.0, 599.0, 600.0])
    spec, exporter = None, Exports()
    spec = ex.EvalSpec(once(), throttle_secs=600, exporters=exporter)
    evaluator = Evaluator(model, spec, None, clock=lambda: next(now))
    path = model.latest_checkpoint()
    for _ in range(4):  # the first save is the starting checkpoint
        evaluator.after_save(1, path)
    assert len(exporter.seen) == 2


def test_a_training_call_is_not_restarted_by_evaluations(make):
    hook = Recorder()
    ex.train_and_evaluate(
        make(save_checkpoints_steps=2),
        ex.TrainSpec(data(), max_steps=6, hooks=[hook]),
        ex.EvalSpec(once(), throttle_secs=0, name="holdout"),
    )
    assert [phase for _, phase, _ in hook.log].count("begin") == 1


def test_checkpoints_are_needed(make):
    model = make(save_checkpoints_steps=None, save_checkpoints_secs=None)
    with pytest.raises(ConfigError, match="evaluates checkpoints"):
        ex.train_and_evaluate(model, ex.TrainSpec(data()), ex.EvalSpec(once()))


def test_arguments_of_another_type_are_refused(make):
    train, evaluation = ex.TrainSpec(data()), ex.EvalSpec(once())
    with pytest.raises(TypeError, match="eval_spec must be EvalSpec, got TrainSpec"):
        ex.train_and_evaluate(make(), train, train)
    with pytest.raises(TypeError, match="estimator must be Estimator"):
        ex.train_and_evaluate(line_model_fn, train, evaluation)


def test_specs_check_what_they_are_given():
    with pytest.raises(TypeError, match="input_fn must be a function"):
        ex.TrainSpec(input_fn=[1, 2])
    with pytest.raises(SpecError, match="max_steps must be > 0"):
        ex.TrainSpec(data(), max_steps=0)
    with pytest.raises(SpecError, match="steps must be > 0 or None"):
        ex.EvalSpec(data(), steps=0)
    with pytest.raises(SpecError, match="throttle_secs"):
        ex.EvalSpec(data(), throttle_secs=-1)
    with pytest.raises(SpecError, match="distinct names"):
        ex.EvalSpec(data(), exporters=[Exports(), Exports()])
