"""A run that was interrupted, and whose data has changed when it goes on."""

import logging
import os
import signal
import subprocess
import sys

import pytest
from tiny_models import (
    InterruptedTrainingError,
    InterruptsAt,
    Losses,
    echo_model_fn,
)

import estimax as ex
from estimax.input import ChangedInputError, csv_files


def write(path, rows):
    path.write_text("x\n" + "".join(f"{i}.0\n" for i in range(rows)))


def lines(*paths):
    def input_fn():
        data = csv_files(paths, dtypes={"x": "float32"}).repeat().batch(1)
        return data.map(lambda row: {"x": row["x"][:, None]})

    return input_fn


def seen(model, input_fn, steps):
    losses = Losses()
    model.train(input_fn, hooks=[losses], steps=steps)
    return losses.seen


@pytest.fixture
def interrupted(make, tmp_path):
    """A run over rows 0.0 to 9.0 that ended in an error at step 5, saved at 4."""
    write(tmp_path / "a.csv", 10)
    model = make(echo_model_fn, save_checkpoints_steps=2)
    with pytest.raises(InterruptedTrainingError):
        model.train(lines(tmp_path / "a.csv"), hooks=[InterruptsAt(5)])
    return model


def test_unchanged_data_goes_on_where_it_was(interrupted, tmp_path):
    os.utime(tmp_path / "a.csv", (1, 1))
    assert seen(interrupted, lines(tmp_path / "a.csv"), 2) == [4, 5]


def test_changed_data_is_an_error_that_says_how_to_go_on(interrupted, tmp_path):
    write(tmp_path / "a.csv", 9)
    with pytest.raises(ChangedInputError) as caught:
        seen(interrupted, lines(tmp_path / "a.csv"), 2)
    words = str(caught.value)
    assert f"{tmp_path / 'a.csv'} had 42 bytes" in words
    assert "has 38 now" in words
    assert 'RunConfig(resume_input="restart")' in words


def test_another_file_is_an_error_and_not_a_new_beginning(interrupted, tmp_path):
    write(tmp_path / "b.csv", 10)
    with pytest.raises(ChangedInputError, match=r"had 1 files .* has 2 now"):
        seen(interrupted, lines(tmp_path / "a.csv", tmp_path / "b.csv"), 2)


def test_restart_begins_the_data_anew_and_keeps_the_step(interrupted, make, tmp_path):
    write(tmp_path / "a.csv", 9)
    model = make(echo_model_fn, resume_input="restart")
    assert seen(model, lines(tmp_path / "a.csv"), 2) == [0, 1]
    assert model.get_variable_value("global_step") == 6


def test_unchecked_goes_on_at_the_position_in_changed_data(interrupted, make, tmp_path):
    write(tmp_path / "a.csv", 9)
    model = make(echo_model_fn, resume_input="unchecked")
    assert seen(model, lines(tmp_path / "a.csv"), 2) == [4, 5]
    assert seen(make(echo_model_fn), lines(tmp_path / "a.csv"), 1) == [6]


def test_a_restart_is_saved_with_the_new_data(interrupted, make, tmp_path):
    write(tmp_path / "a.csv", 9)
    seen(make(echo_model_fn, resume_input="restart"), lines(tmp_path / "a.csv"), 2)
    assert seen(make(echo_model_fn), lines(tmp_path / "a.csv"), 1) == [2]


def test_other_data_after_a_normal_end_starts_from_its_beginning(
    make, tmp_path, caplog
):
    write(tmp_path / "a.csv", 10)
    write(tmp_path / "b.csv", 20)
    model = make(echo_model_fn, save_checkpoints_steps=2)
    assert seen(model, lines(tmp_path / "a.csv"), 4) == [0, 1, 2, 3]
    with caplog.at_level(logging.INFO, "estimax"):
        assert seen(model, lines(tmp_path / "b.csv"), 2) == [0, 1]
    assert "the data starts from its beginning" in caplog.text
    assert "missing: a.csv; new: b.csv" in caplog.text


def test_refuse_raises_for_other_data_after_a_normal_end(make, tmp_path):
    write(tmp_path / "a.csv", 10)
    model = make(echo_model_fn, resume_input="refuse")
    seen(model, lines(tmp_path / "a.csv"), 4)
    write(tmp_path / "a.csv", 9)
    with pytest.raises(ChangedInputError, match="has 38 now"):
        seen(model, lines(tmp_path / "a.csv"), 2)


def test_a_run_ended_by_a_signal_is_an_interrupted_one(tmp_path):
    write(tmp_path / "a.csv", 10)
    code = f"""
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {str(os.path.dirname(__file__))!r})
from test_changed_data import lines
from tiny_models import echo_model_fn
import estimax as ex
from estimax.hooks import Hook

class Kills(Hook):
    def after_run(self, context, values):
        if context.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

model = ex.Estimator(echo_model_fn, {str(tmp_path / "model")!r})
model.train(lines(Path({str(tmp_path / "a.csv")!r})), hooks=[Kills()])
"""
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == 128 + signal.SIGTERM
    model = ex.Estimator(echo_model_fn, tmp_path / "model")
    write(tmp_path / "a.csv", 9)
    with pytest.raises(ChangedInputError, match="has 38 now"):
        seen(model, lines(tmp_path / "a.csv"), 2)
