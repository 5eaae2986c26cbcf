import numpy as np
import pytest
from tiny_models import (
    InterruptedTrainingError,
    InterruptsAt,
    Losses,
    Recorder,
    Saves,
    X,
    data,
    echo_model_fn,
    features_only,
    line_model_fn,
    once,
)

import estimax as ex
from estimax import checkpoints
from estimax.core.errors import CheckpointError, ConfigError, SpecError
from estimax.hooks import Hook
from estimax.input import Dataset


def steps_on_disk(model):
    return [
        checkpoints.step_of(p) for p in checkpoints.all_checkpoints(model.model_dir)
    ]


def refuse_to_run(*_, **__):
    raise AssertionError("user code was called")


class RefusesToRun(Hook):
    begin = refuse_to_run


def test_steps_is_relative_and_max_steps_absolute(make):
    model = make()
    model.train(data(), steps=2).train(data(), steps=2)
    assert model.get_variable_value("global_step") == 4
    model.train(data(), max_steps=5)
    assert model.get_variable_value("global_step") == 5


def test_reaching_max_steps_twice_calls_no_user_code(make):
    make().train(data(), max_steps=2)
    again = make(refuse_to_run_model_fn)
    assert again.train(refuse_to_run, [RefusesToRun()], max_steps=2) is again


def refuse_to_run_model_fn(features):
    refuse_to_run()


@pytest.mark.parametrize(
    "given", [{"steps": 2, "max_steps": 3}, {"steps": 0}, {"max_steps": -1}]
)
def test_steps_that_cannot_be_meant_are_refused(make, given):
    with pytest.raises(SpecError, match="steps"):
        make().train(refuse_to_run, **given)


def test_checkpoints_are_saved_at_start_at_intervals_and_at_the_end(make):
    model = make(save_checkpoints_steps=4, keep_checkpoint_max=3)
    saves = Saves()
    model.train(data(), steps=10, saving_listeners=[saves])
    assert saves.steps == [0, 4, 8, 10]
    assert steps_on_disk(model) == [4, 8, 10]
    # Resumed, the interval counts from where the call began.
    model.train(data(), steps=3, saving_listeners=[saves])
    assert saves.steps == [0, 4, 8, 10, 10, 13]
    assert steps_on_disk(model) == [8, 10, 13]


def test_a_listener_can_stop_training(make):
    class Stops(Saves):
        def after_save(self, step, path):
            return step >= 2

    model = make(save_checkpoints_steps=2)
    model.train(data(), steps=9, saving_listeners=[Stops()])
    assert model.get_variable_value("global_step") == 2


def test_the_end_of_data_is_a_clean_stop_with_a_saved_state(make):
    model, hook = make(), Recorder()
    model.train(once(), hooks=[hook])
    assert hook.log[-1] == ("hook", "end", 4)
    assert steps_on_disk(model) == [0, 4]


def test_training_on_after_the_data_ended_takes_another_pass(make):
    model = make()
    model.train(once()).train(once())
    assert model.get_variable_value("global_step") == 8


def test_steps_of_several_calls_add_up_over_the_end_of_the_data(make):
    model, losses = make(echo_model_fn), Losses()
    for _ in range(4):
        model.train(features_only(repeat=1), hooks=[losses], steps=3)
    assert losses.seen == [0.5, 2.5, 4.5, 6.5] * 3


def test_a_call_without_steps_sees_a_full_pass_wherever_it_starts(make):
    model, losses = make(echo_model_fn), Losses()
    model.train(features_only(repeat=1), steps=3)
    model.train(features_only(repeat=1), hooks=[losses])
    assert losses.seen == [6.5, 0.5, 2.5, 4.5]


def test_an_interrupted_call_that_went_round_ends_where_it_would_have(make):
    model, losses = make(echo_model_fn, save_checkpoints_steps=5), Losses()
    model.train(features_only(repeat=1), steps=3)
    with pytest.raises(InterruptedTrainingError):
        model.train(features_only(repeat=1), hooks=[losses, InterruptsAt(6)])
    # The last checkpoint is at the start of that call, whose interval counts from it.
    assert losses.seen == [6.5, 0.5, 2.5]
    model.train(features_only(repeat=1), hooks=[losses])
    assert losses.seen[3:] == [6.5, 0.5, 2.5, 4.5]


def test_a_call_whose_saves_are_off_leaves_the_mark_of_the_last_checkpoint(make):
    make(echo_model_fn).train(features_only(repeat=1), steps=3)
    unsaved = make(
        echo_model_fn, save_checkpoints_steps=None, save_checkpoints_secs=None
    )
    unsaved.train(features_only(repeat=1), steps=1)
    losses = Losses()
    make(echo_model_fn).train(features_only(repeat=1), hooks=[losses])
    assert losses.seen == [6.5, 0.5, 2.5, 4.5]


def test_an_error_runs_no_end_and_saves_nothing_new(make):
    def broken():
        yield {"x": X[:2]}, X[:2]
        raise RuntimeError("the disk is gone")

    model, hook = make(), Recorder()
    with pytest.raises(RuntimeError, match="the disk is gone"):
        model.train(broken, hooks=[hook])
    assert "end" not in [phase for _, phase, _ in hook.log]
    assert steps_on_disk(model) == [0]


def test_empty_data_trains_nothing_and_does_not_fail(make):
    model, hook = make(), Recorder()
    model.train(lambda: iter([]), hooks=[hook])
    assert model.latest_checkpoint() is None


def test_hooks_are_called_in_order_around_every_step(make):
    log = []

    def model_fn(features, labels, mode):
        spec = line_model_fn(features, labels, mode)
        return spec._replace(
            training_chief_hooks=[Recorder("chief", log)],
            training_hooks=[Recorder("model", log)],
        )

    hooks = (Recorder(name, log) for name in "ab")  # any iterable
    make(model_fn).train(data(), hooks=hooks, steps=2)
    names = ["chief", "a", "b", "model"]
    phases = [("begin", 0), ("before_run", 0), ("after_run", 1)]
    phases += [("before_run", 1), ("after_run", 2), ("end", 2)]
    assert log == [(name, *phase) for phase in phases for name in names]


def test_what_is_no_hook_is_refused_by_type(make):
    with pytest.raises(TypeError, match="hooks"):
        make().train(data(), hooks=[object()], steps=1)
    with pytest.raises(TypeError, match="listeners"):
        make().train(data(), saving_listeners=[object()], steps=1)


def test_a_stop_asked_for_lets_the_other_hooks_finish_the_step(make):
    class Stops(Hook):
        def after_run(self, context, values):
            context.request_stop()

    later = Recorder()
    make().train(data(), hooks=[Stops(), later])
    assert [phase for _, phase, _ in later.log][-2:] == ["after_run", "end"]
    assert later.log[-1] == ("hook", "end", 1)


def test_listeners_without_checkpoints_are_refused(make):
    model = make(save_checkpoints_steps=None, save_checkpoints_secs=None)
    with pytest.raises(ConfigError, match="saving_listeners need checkpoints"):
        model.train(data(), steps=1, saving_listeners=[Saves()])


def test_the_input_goes_on_where_it_was_also_in_another_estimator(make):
    model, losses = make(echo_model_fn), Losses()
    model.train(features_only(), hooks=[losses], steps=3)
    model.train(features_only(), hooks=[losses], steps=2)
    make(echo_model_fn).train(features_only(), hooks=[losses], steps=2)
    assert losses.seen == [0.5, 2.5, 4.5, 6.5, 0.5, 2.5, 4.5]


def test_resume_input_false_starts_the_data_over(make):
    model, losses = make(echo_model_fn, resume_input=False), Losses()
    model.train(features_only(), hooks=[losses], steps=1)
    model.train(features_only(), hooks=[losses], steps=1)
    assert losses.seen == [0.5, 0.5]


def test_arrays_are_one_batch_for_ever(make):
    model = make()
    model.train(lambda: ({"x": X}, X / 2), steps=3)
    assert model.get_variable_value("global_step") == 3


def test_a_changed_model_is_told_by_names_and_shapes(make, tmp_path):
    def build(units):
        column = ex.feature_columns.numeric_column("x")
        config = ex.RunConfig(save_summary_steps=0, log_step_count_steps=None)
        return ex.DNNRegressor([units], [column], tmp_path / "dnn", config=config)

    build(3).train(data(), steps=1)
    with pytest.raises(CheckpointError) as error:
        build(5).train(data(), steps=1)
    assert "dnn/hiddenlayer_0/kernel is float32[1, 3]" in str(error.value)
    assert "float32[1, 5] in the model" in str(error.value)


def test_the_same_seed_gives_the_same_variables_and_another_one_others(make):
    def kernel(name, seed):
        config = ex.RunConfig(tf_random_seed=seed, log_step_count_steps=None)
        model = ex.Estimator(line_model_fn, make().model_dir + name, config)
        model.train(data(), steps=2)
        return model.get_variable_value("line/kernel")

    assert np.array_equal(kernel("a", 5), kernel("b", 5))
    assert not np.array_equal(kernel("c", 5), kernel("d", 6))


def test_a_batch_of_another_kind_trains_in_the_same_call(make):
    # The last batch of a pass is short; it compiles once more and is not dropped.
    def input_fn():
        return Dataset.from_tensor_slices(({"x": X}, X / 2)).batch(3)

    losses = Losses()
    make().train(input_fn, hooks=[losses])
    assert len(losses.seen) == 3


def test_steps_that_are_no_whole_number_are_refused(make):
    # As they come about by dividing: examples / batch size.
    with pytest.raises(ValueError, match=r"max_steps must be a whole number, got 2\.0"):
        make().train(data(), max_steps=2.0)


def test_steps_may_be_a_number_of_numpy(make):
    assert (
        make().train(data(), steps=np.int64(2)).get_variable_value("global_step") == 2
    )
