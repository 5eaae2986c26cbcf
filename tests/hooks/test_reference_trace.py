"""The hooks of one run together, against what TensorFlow 2.15.1 was seen to do."""

import logging
from pathlib import Path
from typing import Any

import pytest

from estimax import checkpoints
from estimax.hooks import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    Hook,
    LoggingTensorHook,
    NanTensorHook,
    StepCounterHook,
    StopAtStepHook,
    SummarySaverHook,
    summary,
)


class Saves(CheckpointSaverListener):
    def __init__(self) -> None:
        self.steps: list[int] = []

    def after_save(self, step: int, path: str) -> None:
        self.steps.append(step)


def hooks(model_dir: Path, steps: int, saves: Saves) -> list[Hook]:
    return [
        CheckpointSaverHook(model_dir, save_steps=100, listeners=[saves], keep_max=3),
        StepCounterHook(40, output_dir=model_dir),
        SummarySaverHook(50, output_dir=model_dir),
        StopAtStepHook(num_steps=steps),
        NanTensorHook(),
        LoggingTensorHook(["loss"], every_n_iter=40),
    ]


def kept(model_dir: Path) -> list[int]:
    found = checkpoints.all_checkpoints(model_dir)
    return [checkpoints.step_of(path) for path in found]


def test_two_runs_do_what_tensorflow_did(
    tmp_path: Path, run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "estimax")
    saves = Saves()
    assert run(hooks(tmp_path, 250, saves)).step == 250
    assert saves.steps == [0, 100, 200, 250]
    assert kept(tmp_path) == [100, 200, 250]
    scalars = summary.read_scalars(tmp_path)
    assert [step for step, _ in scalars["loss"]] == [1, 51, 101, 151, 201]
    speeds = [step for step, _ in scalars["global_step/sec"]]
    assert speeds == [41, 81, 121, 161, 201, 241]
    lines = [r.getMessage() for r in caplog.records if "loss = " in r.getMessage()]
    logged = [int(line.split("step = ")[1].split(" ")[0]) for line in lines]
    assert logged == [0, 40, 80, 120, 160, 200, 240]

    saves.steps.clear()
    assert run(hooks(tmp_path, 30, saves)).step == 280
    assert saves.steps == [250, 280]
    assert kept(tmp_path) == [200, 250, 280]
