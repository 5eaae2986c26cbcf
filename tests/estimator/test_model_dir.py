"""A model directory that cannot be written to, or vanishes."""

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest
from tiny_models import data, line_model_fn, once

import estimax as ex
from estimax.core.errors import MissingFileError

NOBODY = 65534


@pytest.fixture
def open_folder():
    """A folder that other users may read, unlike pytest's."""
    folder = tempfile.mkdtemp(prefix="estimax-test-")
    os.chmod(folder, 0o755)
    yield Path(folder)
    shutil.rmtree(folder)


@contextlib.contextmanager
def read_only(folder):
    """Make a folder unwritable; root, whom no mode binds, becomes another user."""
    folders = [folder, *(p for p in folder.rglob("*") if p.is_dir())]
    for each in folders:
        each.chmod(0o555)
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        for each in folders:
            each.chmod(0o755)


def test_a_read_only_model_dir_is_evaluated_with_a_warning(open_folder, caplog):
    model_dir = open_folder / "model"
    ex.Estimator(line_model_fn, str(model_dir)).train(data(), max_steps=3)
    before = {path: path.stat().st_mtime_ns for path in model_dir.rglob("*")}
    with read_only(model_dir):
        assert not os.access(model_dir, os.W_OK, effective_ids=True)
        estimator = ex.Estimator(line_model_fn, str(model_dir))
        metrics = estimator.evaluate(once())
        (prediction,) = estimator.predict(once(batch=1, rows=1))
    assert metrics["global_step"] == 3
    assert metrics["error"] > 0
    assert prediction.keys() == {"y", "twice"}
    assert "step 3 is not written for TensorBoard" in caplog.text
    assert before == {path: path.stat().st_mtime_ns for path in model_dir.rglob("*")}


class Deletes(ex.hooks.Hook):
    """Deletes the model directory in the middle of the training."""

    def __init__(self, folder):
        self._folder = folder

    def after_run(self, context, values):
        if context.step == 5:
            # In one step: a save may be under way in its thread.
            self._folder.rename(self._folder.with_name("deleted"))

    def next_step(self, step):
        return step + 1


@pytest.mark.parametrize("summaries", [None, 1])
def test_a_model_dir_that_is_deleted_while_training_is_an_error(tmp_path, summaries):
    model_dir = tmp_path / "model"
    config = ex.RunConfig(save_checkpoints_steps=4, save_summary_steps=summaries)
    estimator = ex.Estimator(line_model_fn, str(model_dir), config)
    with pytest.raises(MissingFileError, match="was deleted, or its checkpoints were"):
        estimator.train(data(), hooks=[Deletes(model_dir)], max_steps=20)


def test_a_model_dir_deleted_after_the_last_periodic_save_is_an_error(tmp_path):
    model_dir = tmp_path / "model"
    config = ex.RunConfig(save_checkpoints_steps=1000)
    estimator = ex.Estimator(line_model_fn, str(model_dir), config)
    with pytest.raises(MissingFileError, match="was deleted"):
        estimator.train(data(), hooks=[Deletes(model_dir)], max_steps=7)


def test_files_have_the_modes_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        ex.Estimator(line_model_fn, str(tmp_path / "model")).train(data(), max_steps=2)
    finally:
        os.umask(before)
    for path in (tmp_path / "model").rglob("*"):
        expected = 0o750 if path.is_dir() else 0o640
        assert stat.S_IMODE(path.stat().st_mode) == expected, path
