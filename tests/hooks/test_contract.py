"""Every public hook through a real, tiny training; none unlisted."""

import inspect
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import estimax as ex
from estimax import checkpoints, hooks
from estimax.hooks import Hook, RunContext, Values
from estimax.hooks.tracking import TrackerHook


def model_fn(features: Any, labels: Any, mode: str) -> ex.EstimatorSpec:
    y = features["x"] * ex.get_variable("w", (), initializer=0.5)
    ex.summary.scalar("mean_y", jnp.mean(y))
    return ex.EstimatorSpec(
        mode,
        predictions={"y": y},
        loss=jnp.mean(jnp.square(y - labels)),
        train_op=ex.optimizers.SGD(0.01),
    )


def input_fn() -> Any:
    x = np.arange(1, 9, dtype=np.float32)
    return ex.input.Dataset.from_tensor_slices(({"x": x}, x)).repeat().batch(2)


def model_at(folder: Path, **settings: Any) -> ex.Estimator:
    settings = {"save_checkpoints_steps": 100, "tf_random_seed": 1} | settings
    return ex.Estimator(model_fn, folder, ex.RunConfig(**settings))


def evaluated() -> Any:
    x = np.arange(1, 5, dtype=np.float32)
    return ex.input.Dataset.from_tensor_slices(({"x": x}, x)).batch(4)


EVERY: dict[str, Any] = {"run_every_secs": None, "run_every_steps": 2}

# How to make each public hook for a model.
HOOKS: dict[str, Any] = {
    "BoardHook": lambda m: hooks.BoardHook(m.model_dir),
    "CheckpointSaverHook": lambda m: hooks.CheckpointSaverHook(
        m.model_dir, save_steps=2
    ),
    "FinalOpsHook": lambda m: hooks.FinalOpsHook(["w", "loss"]),
    "GlobalStepWaiterHook": lambda m: hooks.GlobalStepWaiterHook(0),
    "InMemoryEvaluatorHook": lambda m: hooks.InMemoryEvaluatorHook(
        m, evaluated, every_n_iter=2
    ),
    "LoggingTensorHook": lambda m: hooks.LoggingTensorHook(
        {"w": "w", "y": "mean_y"}, every_n_iter=2, at_end=True
    ),
    "MLflowHook": lambda m: hooks.MLflowHook(
        m.model_dir, tracking_uri=f"sqlite:///{m.model_dir}/mlflow.db"
    ),
    "NanTensorHook": lambda m: hooks.NanTensorHook(every_n_steps=1),
    "ProfilerHook": lambda m: hooks.ProfilerHook(
        save_steps=3, output_dir=m.model_dir, show_dataflow=False
    ),
    "StepCounterHook": lambda m: hooks.StepCounterHook(2, output_dir=m.model_dir),
    "StopAtStepHook": lambda m: hooks.StopAtStepHook(num_steps=100),
    "SummarySaverHook": lambda m: hooks.SummarySaverHook(2, output_dir=m.model_dir),
    "WandbHook": lambda m: hooks.WandbHook(m.model_dir, mode="offline"),
    "make_early_stopping_hook": lambda m: hooks.make_early_stopping_hook(
        m, lambda: False, **EVERY
    ),
    "make_stop_at_checkpoint_step_hook": lambda m: (
        hooks.make_stop_at_checkpoint_step_hook(m, last_step=100)
    ),
    "stop_if_higher_hook": lambda m: hooks.stop_if_higher_hook(m, "loss", 1e9, **EVERY),
    "stop_if_lower_hook": lambda m: hooks.stop_if_lower_hook(m, "loss", -1.0, **EVERY),
    "stop_if_no_decrease_hook": lambda m: hooks.stop_if_no_decrease_hook(
        m, "loss", 1000, **EVERY
    ),
    "stop_if_no_increase_hook": lambda m: hooks.stop_if_no_increase_hook(
        m, "loss", 1000, **EVERY
    ),
}


@pytest.mark.parametrize("name", sorted(HOOKS))
def test_the_repr_of_a_hook_is_its_settings(name: str, tmp_path: Path) -> None:
    hook = HOOKS[name](model_at(tmp_path))
    shown = repr(hook)
    assert shown.startswith(f"{type(hook).__name__}(")
    assert shown.endswith(")")
    assert "object at" not in shown


def test_no_public_hook_is_unlisted() -> None:
    public = {
        name
        for name in hooks.__all__
        if name.endswith("_hook")
        or (inspect.isclass(value := getattr(hooks, name)) and issubclass(value, Hook))
    }
    assert public - {"Hook", "SessionRunHook"} == HOOKS.keys()


class Plain(Hook):
    """Counts the steps that it is called for."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def after_run(self, context: RunContext, values: Values) -> None:
        self.steps.append(context.step)


@pytest.fixture(scope="module")
def unwatched(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The weight after nine steps that no hook of ours has seen."""
    model = model_at(tmp_path_factory.mktemp("alone")).train(input_fn, steps=9)
    return model.get_variable_value("w")


@pytest.mark.parametrize("name", sorted(HOOKS))
def test_a_hook_serves_two_trainings_and_changes_nothing(
    name: str, tmp_path: Path, unwatched: Any
) -> None:
    model = model_at(tmp_path)
    hook, plain = HOOKS[name](model), Plain()
    if isinstance(hook, TrackerHook):
        pytest.skip("trackers are no dependency; tests/hooks/test_tracking.py has one")
    assert isinstance(hook, Hook)
    model.train(input_fn, [hook, plain], steps=5)
    model.train(input_fn, [hook, plain], steps=4)
    assert plain.steps == list(range(1, 10))
    assert model.get_variable_value("w") == unwatched


@pytest.mark.parametrize("name", sorted(HOOKS))
def test_a_hook_only_moves_forward(name: str, tmp_path: Path) -> None:
    hook = HOOKS[name](model_at(tmp_path))
    assert hook.next_step(7) >= 7


def test_a_saver_that_is_given_is_the_only_one_and_has_the_listeners(
    tmp_path: Path,
) -> None:
    class Saves(hooks.CheckpointSaverListener):
        def __init__(self) -> None:
            self.calls: list[tuple[str, int]] = []

        def before_save(self, step: int) -> None:
            self.calls.append(("before", step))

        def after_save(self, step: int, path: str) -> None:
            self.calls.append(("after", step))

        def end(self, step: int) -> None:
            self.calls.append(("end", step))

    saves = Saves()
    hook = hooks.CheckpointSaverHook(tmp_path, save_steps=2)
    model = model_at(tmp_path, save_checkpoints_steps=1)
    for _ in range(2):
        model.train(input_fn, [hook], steps=3, saving_listeners=[saves])
    expected = [
        (phase, step) for step in (0, 2, 3, 3, 5, 6) for phase in ("before", "after")
    ]
    assert [call for call in saves.calls if call[0] != "end"] == expected
    assert saves.calls.count(("end", 3)) == saves.calls.count(("end", 6)) == 1


def test_a_listener_can_stop_training(tmp_path: Path) -> None:
    class Stops(hooks.CheckpointSaverListener):
        def after_save(self, step: int, path: str) -> bool:
            return step >= 4

    model = model_at(tmp_path, save_checkpoints_steps=2)
    model.train(input_fn, steps=10, saving_listeners=[Stops()])
    assert model.get_variable_value("global_step") == 4


def test_final_values_come_in_the_form_they_were_asked_for(tmp_path: Path) -> None:
    model = model_at(tmp_path)
    one = hooks.FinalOpsHook("w")
    named = hooks.FinalOpsHook({"weight": "w", "y": "mean_y"})
    made = hooks.FinalOpsHook(lambda context: context.step * 10)
    assert one.final_ops_values is None
    model.train(input_fn, [one, named, made], steps=3)
    weight = model.get_variable_value("w")
    assert one.final_ops_values == weight
    assert named.final_ops_values["weight"] == weight
    # The third batch is x = 5, 6.
    np.testing.assert_allclose(named.final_ops_values["y"], 5.5 * weight, rtol=1e-6)
    assert made.final_ops_values == 30


def test_a_profile_is_written_after_an_interval(tmp_path: Path) -> None:
    model = model_at(tmp_path / "m")
    hook = hooks.ProfilerHook(
        save_steps=2, output_dir=tmp_path / "p", show_dataflow=False, show_memory=True
    )
    model.train(input_fn, [hook], steps=3)
    traces = list((tmp_path / "p").glob("plugins/profile/*/*.xplane.pb"))
    assert len(traces) == 1
    assert (tmp_path / "p" / "memory-2.prof").stat().st_size > 0


def test_a_run_that_failed_leaves_no_trace_running(tmp_path: Path) -> None:
    class Fails(Hook):
        def after_run(self, context: RunContext, values: Values) -> None:
            raise RuntimeError("broken")

    model = model_at(tmp_path)
    hook = hooks.ProfilerHook(1, output_dir=tmp_path, show_dataflow=False)
    with pytest.raises(RuntimeError, match="broken"):
        model.train(input_fn, [Fails(), hook], steps=1)
    model.train(input_fn, [hook], steps=2)


def test_waiting_ends_when_another_run_has_got_there(tmp_path: Path) -> None:
    other = model_at(tmp_path / "other").train(input_fn, steps=2)
    polls: list[float] = []

    def sleep(seconds: float) -> None:
        polls.append(seconds)
        other.train(input_fn, steps=2)

    hook = hooks.GlobalStepWaiterHook(5, other.model_dir, sleep=sleep)
    model_at(tmp_path / "m").train(input_fn, [hook], steps=1)
    assert polls == [0.5, 0.5]


def test_waiting_for_nobody_is_told_and_does_not_wait(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model_at(tmp_path).train(input_fn, [hooks.GlobalStepWaiterHook(5)], steps=1)
    assert "nothing to wait for" in caplog.text


def test_who_does_not_save_stops_when_the_checkpoint_is_there(tmp_path: Path) -> None:
    from estimax.hooks.stopping import StopAtCheckpointStepHook

    chief = model_at(tmp_path / "chief").train(input_fn, steps=1)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        chief.train(input_fn, steps=1)

    hook = StopAtCheckpointStepHook(chief.model_dir, 3, 30, sleep=sleep)
    worker = model_at(tmp_path / "worker").train(input_fn, [hook], steps=100)
    assert waits == [30, 30]
    assert worker.get_variable_value("global_step") == 5


def test_names_of_tensorflow_that_are_gone_say_what_to_use() -> None:
    with pytest.raises(AttributeError, match="no placeholders to feed"):
        _ = hooks.FeedFnHook
    with pytest.raises(AttributeError, match=r"no attribute 'Nothing'$"):
        _ = hooks.Nothing


def test_a_checkpoint_is_never_made_of_a_loss_that_is_not_finite(
    tmp_path: Path,
) -> None:
    def blows_up(features: Any, labels: Any, mode: str) -> ex.EstimatorSpec:
        w = ex.get_variable("w", (), initializer=1.0)
        # Infinite from the third step on, without a gradient: variables stay finite.
        seen = ex.get_variable("seen", (), initializer=0.0)
        loss = w + seen
        loss = loss + jnp.where(seen > 1.5, jnp.inf, 0.0)
        return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.SGD(-1.0))

    config = ex.RunConfig(save_checkpoints_steps=2)
    model = ex.Estimator(blows_up, tmp_path, config)
    model.train(input_fn, steps=3)
    kept = [checkpoints.step_of(p) for p in checkpoints.all_checkpoints(tmp_path)]
    assert kept == [0, 2]
