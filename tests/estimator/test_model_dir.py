"""The folder of a model: one trainer at a time, swept at the start, and missed."""

import ctypes
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import estimax as ex
from estimax.core.errors import InUseError, MissingFileError
from estimax.hooks import Hook
from estimax.storage import locks

sys.path.insert(0, str(Path(__file__).parent))
from tiny_models import data, once

FOLDER = Path(__file__).parent
PROGRAM = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
import estimax as ex
from tiny_models import data, line_model_fn, once
class Wait(ex.hooks.Hook):
    def after_run(self, context, values):
        print("training", flush=True)
        sys.stdin.read(1)
"""


class Act(Hook):
    """Calls a function once, after the second step."""

    def __init__(self, act):
        self.act = act

    def after_run(self, context, values):
        if context.step == 2:
            self.act()


def train_elsewhere(model_dir):
    """Start a process that trains in the folder until it is told to go on."""
    program = PROGRAM + (
        "model = ex.Estimator(line_model_fn, sys.argv[1])\n"
        "model.train(data(), hooks=[Wait()], steps=1)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(model_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout.readline() == b"training\n"
    return child


def test_a_second_process_that_trains_is_refused_at_once(make):
    model = make()
    with train_elsewhere(model.model_dir) as child:
        words = f"is in use: process {child.pid} on"
        with pytest.raises(InUseError, match=words):
            model.train(data(), steps=1)
        with pytest.raises(InUseError, match=words):
            ex.train_and_evaluate(
                model, ex.TrainSpec(data(), max_steps=2), ex.EvalSpec(once())
            )
        assert model.evaluate(once())["global_step"] == 0
        assert len(list(model.predict(once()))) == 8
        child.communicate(b"x")
        assert child.returncode == 0
    model.train(data(), steps=1)
    assert model.evaluate(once())["global_step"] == 2


def test_a_killed_training_can_be_continued_at_once(make):
    model = make()
    with train_elsewhere(model.model_dir) as child:
        child.kill()
    model.train(data(), steps=1)
    assert not os.path.exists(os.path.join(model.model_dir, locks.FILE))


def test_a_second_thread_that_trains_is_refused(make):
    model = make()
    errors = []

    def train_too():
        try:
            make().train(data(), steps=1)
        except InUseError as error:
            errors.append(error)

    def start():
        thread = threading.Thread(target=train_too)
        thread.start()
        thread.join()

    model.train(data(), hooks=[Act(start)], steps=3)
    assert len(errors) == 1
    assert model.evaluate(once())["global_step"] == 3


def test_a_hook_cannot_train_the_folder_that_is_being_trained(make):
    with pytest.raises(InUseError, match="this process is training here already"):
        make().train(
            data(), hooks=[Act(lambda: make().train(data(), steps=1))], steps=3
        )


def test_estimators_of_one_process_train_one_after_the_other(make):
    first, second = make(), make()
    for model in (first, second, first):
        model.train(data(), steps=1)
    ex.train_and_evaluate(
        second, ex.TrainSpec(data(), max_steps=5), ex.EvalSpec(once())
    )
    assert first.evaluate(once())["global_step"] == 5


def test_what_a_killed_training_left_is_gone_after_the_next_start(make):
    model = make()
    model.train(data(), steps=1)
    folder = Path(model.model_dir)
    export = folder / "export" / "final"
    export.mkdir(parents=True)
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from estimax.storage import atomic\n"
        "folder, export = map(Path, sys.argv[1:])\n"
        "with atomic.folder(folder / 'model.ckpt-9'), atomic.folder(export / '17'):\n"
        "    with atomic.file(folder / 'example.json'):\n"
        "        with atomic.file(folder / 'model.ckpt-1' / 'keep'):\n"
        "            print(flush=True)\n"
        "            sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, folder, export]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        model.train(data(), steps=1)
        assert len(list(folder.rglob(".estimax-tmp*"))) == 4  # its maker lives
        child.kill()
    model.train(data(), steps=1)
    assert list(folder.rglob(".estimax-tmp*")) == []


def test_a_checkpoint_half_written_on_another_host_is_gone_as_well(make):
    model = make()
    model.train(data(), steps=1)
    left = Path(model.model_dir, ".estimax-tmp-other-7-0-00c0ffee~model.ckpt-9")
    left.mkdir()
    model.train(data(), steps=1)
    assert not left.exists()


@pytest.mark.parametrize("settings", [{}, {"save_checkpoints_steps": 3}, "no saves"])
def test_a_folder_that_is_deleted_while_it_is_trained_in_is_said_to_be(make, settings):
    if settings == "no saves":
        settings = {"save_checkpoints_steps": None, "save_checkpoints_secs": None}
    model = make(**settings)
    act = Act(lambda: delete(model.model_dir))
    with pytest.raises(MissingFileError, match="was deleted"):
        model.train(data(), hooks=[act], steps=9)
    assert not os.path.exists(model.model_dir)


def delete(folder):
    """Delete a folder at once; rmtree alone fails if a thread writes meanwhile."""
    doomed = f"{folder}-deleted"
    os.rename(folder, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def test_a_folder_that_is_replaced_while_it_is_trained_in_is_said_to_be(make):
    model = make(save_checkpoints_steps=3)

    def replace():
        os.mkdir(f"{model.model_dir}-new")
        exchange(model.model_dir, f"{model.model_dir}-new")

    with pytest.raises(MissingFileError, match="deleted, emptied or replaced"):
        model.train(data(), hooks=[Act(replace)], steps=9)
    assert os.listdir(model.model_dir) == []


def exchange(one, other):
    """Exchange two folders in one operation, so that no thread finds neither."""
    at, exchange_flag = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of renameat2(2)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(at, os.fsencode(one), at, os.fsencode(other), exchange_flag):
        raise OSError(ctypes.get_errno(), "renameat2", one)


def without_privileges(command):
    """A command that permissions bind: those of files do not bind root otherwise."""
    if os.getuid() != 0:
        return command
    if shutil.which("setpriv") is None:
        pytest.skip("root may write anywhere, and there is no setpriv to give that up")
    rights = "-dac_override,-dac_read_search"
    return ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}", *command]


@pytest.fixture
def read_only():
    """Make a folder one in which nothing can be written, until the test has ended."""
    made = []

    def change(folder):
        made.extend(path for path in (folder, *folder.rglob("*")) if path.is_dir())
        for path in made:
            path.chmod(0o555)

    yield change
    for path in made:
        path.chmod(0o755)


def test_evaluating_where_nothing_can_be_written_gives_metrics(make, read_only):
    model = make()
    expected = model.train(data(), steps=2).evaluate(once(), report=False)["loss"]
    read_only(Path(model.model_dir))
    program = PROGRAM + (
        "import logging; logging.basicConfig()\n"
        "model = ex.Estimator(line_model_fn, sys.argv[1])\n"
        "print(model.evaluate(once())['loss'], len(list(model.predict(once()))))\n"
        "model.train(data(), steps=1)\n"
    )
    done = subprocess.run(
        without_privileges([sys.executable, "-c", program, model.model_dir]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == [str(expected), "8"], done.stderr
    assert "the metrics were not written" in done.stderr
    assert "training must write here" in done.stderr
    assert not Path(model.model_dir, "eval").exists()
