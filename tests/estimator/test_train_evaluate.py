import json
import logging
import os
import shutil
import signal
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny_models import Recorder, Saves, data, line_model_fn, once

import estimax as ex
from estimax import checkpoints
from estimax.core.errors import ClusterError, ConfigError, SpecError
from estimax.estimator.train_evaluate import Evaluator, evaluate_continuously


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


class Presses(ex.hooks.Hook):
    """Press Ctrl-C at a step."""

    def __init__(self, step):
        self._step = step

    def after_run(self, context, values):
        if context.step == self._step:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("often", [{"throttle_secs": 0}, {"every_steps": 3}])
def test_ctrl_c_saves_and_neither_evaluates_nor_exports(make, caplog, often):
    model, exporter = make(save_checkpoints_steps=10), Exports()
    with pytest.raises(KeyboardInterrupt):
        ex.train_and_evaluate(
            model,
            ex.TrainSpec(data(), max_steps=25, hooks=[Presses(2)]),
            ex.EvalSpec(once(), exporters=exporter, **often),
        )
    assert model.latest_checkpoint().endswith("model.ckpt-2")
    assert exporter.seen == []
    assert "Ctrl-C: stopping after this step, and saving it" in caplog.text
    assert f"To resume from {model.latest_checkpoint()}, train again" in caplog.text


def test_ctrl_c_ends_an_evaluation_during_training(make):
    batches = []

    def presses():
        for batch in once()():
            batches.append(batch)
            if len(batches) == 1:
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)  # the main thread is interrupted meanwhile
            yield batch

    model, exporter = make(save_checkpoints_steps=10), Exports()
    with pytest.raises(KeyboardInterrupt):
        ex.train_and_evaluate(
            model,
            ex.TrainSpec(data(), max_steps=25),
            ex.EvalSpec(presses, throttle_secs=0, exporters=exporter),
        )
    assert exporter.seen == []
    assert model.latest_checkpoint().endswith("model.ckpt-10")


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
    for step in (0, 1, 1, 1):  # the first save is the starting checkpoint
        evaluator.after_save(step, path)
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
    with pytest.raises(SpecError, match="every_steps must be > 0"):
        ex.EvalSpec(data(), every_steps=0)
    with pytest.raises(SpecError, match="throttle_secs"):
        ex.EvalSpec(data(), throttle_secs=-1)
    with pytest.raises(TypeError, match="TrainSpec: hooks must be Hooks, got int"):
        ex.TrainSpec(data(), hooks=[3])
    with pytest.raises(TypeError, match="exporters must be Exporters, got int"):
        ex.EvalSpec(data(), exporters=[3])
    assert ex.TrainSpec(data(), hooks=None, saving_listeners=None).hooks == ()
    with pytest.raises(SpecError, match="distinct names"):
        ex.EvalSpec(data(), exporters=[Exports(), Exports()])


def test_several_evaluations_are_told_apart_by_name(make):
    specs = {"one": ex.EvalSpec(once()), "two": ex.EvalSpec(once(rows=4), name="half")}
    model = make()
    metrics, exports = ex.train_and_evaluate(
        model, ex.TrainSpec(data(), max_steps=2), specs
    )
    assert list(metrics) == ["one", "half"]
    assert metrics["one"]["loss"] != metrics["half"]["loss"]
    assert exports == {"one": [], "half": []}
    assert Path(model.eval_dir("half")).is_dir()
    listed = [ex.EvalSpec(once(), name="a"), ex.EvalSpec(once(), name="b")]
    metrics, _ = ex.train_and_evaluate(model, ex.TrainSpec(data(), max_steps=2), listed)
    assert list(metrics) == ["a", "b"]


@pytest.mark.parametrize("names", [("a", "a"), ("a", None), ()], ids=str)
def test_several_evaluations_need_different_names(make, names):
    specs = [ex.EvalSpec(once(), name=name) for name in names]
    with pytest.raises(SpecError, match="need different names"):
        ex.train_and_evaluate(make(), ex.TrainSpec(data(), max_steps=1), specs)


def test_exporters_of_several_evaluations_need_different_names_too(make):
    specs = {n: ex.EvalSpec(once(), exporters=Exports()) for n in ("a", "b")}
    with pytest.raises(SpecError, match="exporters of several EvalSpecs"):
        ex.train_and_evaluate(make(), ex.TrainSpec(data(), max_steps=1), specs)


def test_an_evaluation_every_few_steps_waits_for_no_checkpoint(make):
    model, saves, hook = make(save_checkpoints_secs=600), Saves(), Recorder()
    metrics, _ = ex.train_and_evaluate(
        model,
        ex.TrainSpec(data(), max_steps=7, saving_listeners=[saves]),
        ex.EvalSpec(once(batch=8), every_steps=3, hooks=[hook]),
    )
    assert [step for _, phase, step in hook.log if phase == "begin"] == [3, 6, 7]
    assert saves.steps == [0, 7]
    assert metrics["global_step"] == 7


def test_an_exporter_gets_a_checkpoint_of_every_few_steps(make):
    model, exporter = make(save_checkpoints_secs=600), Exports()
    ex.train_and_evaluate(
        model,
        ex.TrainSpec(data(), max_steps=6),
        ex.EvalSpec(once(), every_steps=3, exporters=exporter),
    )
    assert exporter.seen == [(3, False), (6, True)]
    steps = [
        checkpoints.step_of(p) for p in checkpoints.all_checkpoints(model.model_dir)
    ]
    assert steps == [0, 3, 6]


def damage(path):
    state = next(Path(path).glob("*.safetensors"))
    content = bytearray(state.read_bytes())
    content[-1] ^= 1
    state.write_bytes(content)


def test_a_damaged_last_checkpoint_is_passed_over_for_the_one_before(make, caplog):
    model = make(save_checkpoints_steps=2).train(data(), steps=4)
    damage(model.latest_checkpoint())
    evaluator = Evaluator(model, ex.EvalSpec(once()), 4)
    with caplog.at_level(logging.WARNING, "estimax"):
        metrics, _ = evaluator.finish()
    assert metrics["global_step"] == 2
    assert "cannot evaluate" in caplog.text


def in_cluster(monkeypatch, task, jobs=None):
    config = {"cluster": jobs or {"chief": ["a:1"]}, "task": {"type": task, "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))


def test_a_chief_trains_and_an_evaluator_evaluates_until_the_end(make, monkeypatch):
    exporter = Exports()
    spec = ex.EvalSpec(once(), start_delay_secs=0, throttle_secs=0, exporters=exporter)
    train = ex.TrainSpec(data(), max_steps=2)
    in_cluster(monkeypatch, "chief")
    assert ex.train_and_evaluate(make(), train, spec) == (None, None)
    assert exporter.seen == []
    in_cluster(monkeypatch, "evaluator")
    assert ex.train_and_evaluate(make(), train, spec) == (None, None)
    assert exporter.seen == [(2, True)]
    with pytest.raises(ConfigError, match="an evaluator"):
        make().train(data(), steps=1)


def test_an_evaluator_waits_for_checkpoints_and_stops_at_the_mark(make, caplog):
    model, slept = make(save_checkpoints_steps=2), []

    def sleep(seconds):
        """Time passes: what the trainer does meanwhile."""
        slept.append(seconds)
        if len(slept) == 2:
            model.train(data(), steps=2)
        if len(slept) == 4:
            model.train(data(), steps=1)
            checkpoints.mark_finished(model.model_dir, 3, "enough")

    exporter = Exports()
    spec = ex.EvalSpec(once(), start_delay_secs=5, throttle_secs=60, exporters=exporter)
    evaluate_continuously(
        model, [Evaluator(model, spec, None)], sleep=sleep, clock=lambda: 0.0
    )
    assert exporter.seen == [(2, False), (3, True)]
    assert slept == [5, 60, 60, 60]
    assert "no checkpoint in" in caplog.text


def test_a_last_checkpoint_seen_before_the_end_is_marked_is_exported_as_final(make):
    model = make().train(data(), steps=2)

    def sleep(seconds):
        if exporter.seen:
            checkpoints.mark_finished(model.model_dir, 2, "the data has ended")

    exporter = Exports()
    spec = ex.EvalSpec(once(), start_delay_secs=0, exporters=exporter)
    evaluate_continuously(
        model, [Evaluator(model, spec, None)], sleep=sleep, clock=lambda: 0.0
    )
    assert exporter.seen == [(2, False), (2, True)]


def vanishing(model, *, rows=8):
    """An input_fn at whose end the newest checkpoint is removed, as by a chief."""

    def input_fn():
        for x in np.arange(rows, dtype=np.float32).reshape(-1, 2, 1):
            yield {"x": x}, x / 2
        shutil.rmtree(model.latest_checkpoint())

    return input_fn


def test_a_checkpoint_that_goes_while_it_is_evaluated_is_exported_from_memory(make):
    model = make().train(data(), steps=2)
    exporter = ex.LatestExporter("latest")
    spec = ex.EvalSpec(vanishing(model), exporters=exporter)
    evaluator = Evaluator(make(), spec, max_steps=None)
    evaluator.evaluate(model.latest_checkpoint(), is_final=False)
    metrics, (bundle,) = evaluator.results
    assert metrics["global_step"] == 2
    assert Path(bundle).is_dir()


def test_an_exporter_whose_checkpoint_is_gone_is_passed_over(make, caplog):
    class Reads(Exports):
        def export(self, estimator, export_path, checkpoint_path, *_):
            return str(checkpoints.read(checkpoint_path).step)

    model = make().train(data(), steps=2)
    spec = ex.EvalSpec(vanishing(model), exporters=Reads())
    evaluator = Evaluator(make(), spec, max_steps=None)
    with caplog.at_level(logging.WARNING, "estimax"):
        evaluator.evaluate(model.latest_checkpoint(), is_final=False)
    assert evaluator.results[1] == [None]
    assert "'noted' exports nothing for step 2" in caplog.text


def test_processes_are_connected_before_jax_is_used(make, monkeypatch):
    in_cluster(monkeypatch, "chief", {"chief": ["a:1"], "worker": ["b:1"]})
    model = make()
    jax.devices()
    with pytest.raises(ClusterError, match="connected before JAX is used"):
        model.train(data(), steps=1)


def test_there_is_one_evaluator(make, monkeypatch):
    config = {"cluster": {"chief": ["a:1"]}, "task": {"type": "evaluator", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(ConfigError, match="one evaluator"):
        ex.train_and_evaluate(make(), ex.TrainSpec(data()), ex.EvalSpec(once()))
