import logging
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from estimax import checkpoints
from estimax.core.errors import ConfigError, SpecError
from estimax.hooks import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    RunContext,
    StopAtStepHook,
)


def steps(model_dir: Path) -> list[int]:
    found = checkpoints.all_checkpoints(model_dir)
    return [checkpoints.step_of(path) for path in found]


class Recorder(CheckpointSaverListener):
    def __init__(self, model_dir: Path, stop_at: int | None = None) -> None:
        self.calls: list[Any] = []
        self.model_dir = model_dir
        self.stop_at = stop_at

    def begin(self) -> None:
        self.calls.append("begin")

    def before_save(self, step: int) -> None:
        self.calls.append(("before", step))

    def after_save(self, step: int, path: str) -> bool:
        assert checkpoints.read(path).step == step
        self.calls.append(("after", step))
        return step == self.stop_at

    def end(self, step: int) -> None:
        self.calls.append(("end", step))


def test_saves_start_cadence_and_end(tmp_path: Path, run: Any) -> None:
    run([CheckpointSaverHook(tmp_path, save_steps=4)], steps=10)
    assert steps(tmp_path) == [0, 4, 8, 10]


def test_cadence_counts_from_the_start_of_the_run(tmp_path: Path, run: Any) -> None:
    run([], steps=3)
    run([CheckpointSaverHook(tmp_path, save_steps=10)], steps=14)
    assert steps(tmp_path) == [3, 13, 17]


def test_multiples_are_saved_as_well_and_do_not_move_the_interval(
    tmp_path: Path, run: Any
) -> None:
    hook = CheckpointSaverHook(tmp_path, save_steps=5, also_every_steps=[3])
    run([hook], 12)
    assert steps(tmp_path) == [5, 6, 9, 10, 12]
    with pytest.raises(ConfigError, match="also_every_steps must be above 0"):
        CheckpointSaverHook(tmp_path, save_steps=5, also_every_steps=[0])


def test_last_step_is_not_saved_twice(tmp_path: Path, run: Any) -> None:
    recorder = Recorder(tmp_path)
    run([CheckpointSaverHook(tmp_path, save_steps=2, listeners=[recorder])], steps=2)
    assert recorder.calls == [
        "begin",
        ("before", 0),
        ("after", 0),
        ("before", 2),
        ("after", 2),
        ("end", 2),
    ]


def test_run_without_a_step_saves_its_start(tmp_path: Path, run: Any) -> None:
    run([CheckpointSaverHook(tmp_path, save_steps=2)], steps=0)
    assert steps(tmp_path) == [0]


def test_checkpoint_holds_state_and_input_of_its_step(tmp_path: Path, run: Any) -> None:
    run([CheckpointSaverHook(tmp_path, save_steps=4)], steps=10)
    found = checkpoints.read(tmp_path / "model.ckpt-4")
    assert found.extra == {"input": {"position": 4}}
    assert found.arrays["global_step"] == 4
    np.testing.assert_array_equal(found.arrays["dnn/w"], np.ones(3))


def test_listener_can_stop_training(tmp_path: Path, run: Any) -> None:
    recorder = Recorder(tmp_path, stop_at=4)
    hook = CheckpointSaverHook(tmp_path, save_steps=2, listeners=[recorder])
    assert run([hook], steps=100).step == 4


def test_listener_must_be_one(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="must be CheckpointSaverListeners, got int"):
        CheckpointSaverHook(tmp_path, save_steps=1, listeners=[3])  # type: ignore[list-item]


def test_seconds_save_when_they_have_passed(tmp_path: Path, run: Any) -> None:
    now = [0.0]

    def tick(step: int) -> None:
        now[0] = 10.0 * step

    run.on_step = tick
    hook = CheckpointSaverHook(tmp_path, save_secs=35, clock=lambda: now[0])
    run([hook], steps=10)
    # The time is looked at before a step: 35 seconds have passed before step 5.
    assert steps(tmp_path) == [0, 5, 10]
    assert run.fetches == [5, 10]


def test_one_interval_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exactly one"):
        CheckpointSaverHook(tmp_path)


def test_nan_loss_is_not_saved(
    tmp_path: Path, run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    run.nan_from = 5
    with caplog.at_level(logging.WARNING, "estimax"):
        run([CheckpointSaverHook(tmp_path, save_steps=2)], steps=8)
    assert steps(tmp_path) == [0, 2, 4]
    assert "not saving step 6: the loss is nan" in caplog.text


def test_nan_of_the_update_is_not_saved_though_the_loss_was_fine(
    tmp_path: Path, run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    run.nan_from = 4  # the loss of step 4 was computed before its update
    with caplog.at_level(logging.WARNING, "estimax"):
        run([CheckpointSaverHook(tmp_path, save_steps=4)], steps=4)
    assert steps(tmp_path) == [0]
    assert "not saving step 4: dnn/w holds NaN" in caplog.text


def test_nan_is_not_saved_at_the_end(tmp_path: Path, run: Any) -> None:
    run.nan_from = 3
    run([CheckpointSaverHook(tmp_path, save_steps=100)], steps=5)
    assert steps(tmp_path) == [0]


def test_nan_that_a_model_keeps_on_purpose_is_saved(tmp_path: Path, run: Any) -> None:
    object.__setattr__(run.state, "model_state", {"cache": {"x": jnp.array(jnp.nan)}})
    run([CheckpointSaverHook(tmp_path, save_steps=100)], steps=1)
    assert steps(tmp_path) == [0, 1]


def test_context_without_state_is_refused(tmp_path: Path) -> None:
    hook = CheckpointSaverHook(tmp_path, save_steps=1)
    hook.begin(RunContext(step=0))
    with pytest.raises(SpecError, match="no training state"):
        hook.after_create_session(RunContext(step=0))


def test_second_run_saves_its_start_again(tmp_path: Path, run: Any) -> None:
    recorder = Recorder(tmp_path)
    for _ in range(2):
        hook = CheckpointSaverHook(
            tmp_path, save_steps=100, listeners=[recorder], keep_max=3
        )
        run([hook, StopAtStepHook(num_steps=30)])
    saved = [call[1] for call in recorder.calls if call[0] == "after"]
    assert saved == [0, 30, 30, 60]
    assert steps(tmp_path) == [0, 30, 60]
