import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from estimax.core.errors import InUseError, MissingFileError
from estimax.storage import locks, processes

HOLDING = """
import os, sys
from estimax.storage import locks
with locks.hold(sys.argv[1], "train"):
    {inside}
    print(os.getpid(), flush=True)
    sys.stdin.read()
"""


def holder(folder: Path, inside: str = "pass") -> subprocess.Popen[bytes]:
    """Start a process that holds the lock until its input ends."""
    program = HOLDING.format(inside=inside)
    command = [sys.executable, "-c", program, str(folder)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline()
    return child


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def write_lock(folder: Path, **changes: Any) -> Path:
    """A lock file as another process would have written it."""
    me = dataclasses.asdict(processes.current())
    content = {**me, "boot": processes.boot(), "since": "then", "token": "x", **changes}
    path = folder / locks.FILE
    path.write_text(json.dumps(content))
    return path


def test_a_lock_is_there_while_it_is_held(tmp_path: Path) -> None:
    with locks.hold(tmp_path / "new", "train"):
        content = json.loads((tmp_path / "new" / locks.FILE).read_text())
        assert content["pid"] == os.getpid()
    assert names(tmp_path / "new") == []


def test_it_can_be_held_again_and_again(tmp_path: Path) -> None:
    for _ in range(3):
        with locks.hold(tmp_path, "train"):
            pass


def test_it_is_released_by_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), locks.hold(tmp_path, "train"):
        raise KeyError
    assert names(tmp_path) == []


def test_another_process_is_refused_at_once_and_told_by_whom(tmp_path: Path) -> None:
    with holder(tmp_path) as child:
        words = rf"in use: process {child.pid} on .*use another model_dir"
        with pytest.raises(InUseError, match=words), locks.hold(tmp_path, "train"):
            pass
        child.communicate()
    with locks.hold(tmp_path, "train"):
        pass


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_leaves_no_lock(tmp_path: Path, number: int) -> None:
    with holder(tmp_path) as child:
        child.send_signal(number)
    assert names(tmp_path) == [locks.FILE]
    with locks.hold(tmp_path, "train"):
        pass
    assert names(tmp_path) == []


def test_a_child_that_outlives_the_holder_does_not_keep_it(tmp_path: Path) -> None:
    forking = "if os.fork() == 0: print(os.getpid(), flush=True); os.read(0, 1)"
    with holder(tmp_path, forking) as child:
        assert child.stdout is not None
        child.stdout.readline()  # both have spoken
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        with locks.hold(tmp_path, "train"):
            pass
        assert child.stdin is not None
        child.stdin.close()


def test_another_thread_is_refused(tmp_path: Path) -> None:
    refused = []

    def take() -> None:
        try:
            with locks.hold(tmp_path, "train"):
                pass
        except InUseError as error:
            refused.append(str(error))

    with locks.hold(tmp_path, "train"):
        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
    assert "this process is training here already" in refused[0]


def test_a_thread_takes_it_again_for_another_purpose_only(tmp_path: Path) -> None:
    with locks.hold(tmp_path, "train_and_evaluate"):
        with locks.hold(tmp_path, "train"):
            with (
                pytest.raises(InUseError, match="is training here already"),
                locks.hold(tmp_path, "train"),
            ):
                pass
            locks.check_held(tmp_path)
        assert names(tmp_path) == [locks.FILE]
        with locks.hold(tmp_path, "train"):
            pass


def test_a_reused_process_id_is_not_the_holder(tmp_path: Path) -> None:
    write_lock(tmp_path, pid=os.getppid(), started="1")
    with locks.hold(tmp_path, "train"):
        pass


def test_a_holder_without_flock_is_known_by_its_start_time(tmp_path: Path) -> None:
    with holder(tmp_path) as child:
        content = (tmp_path / locks.FILE).read_text()
        (tmp_path / locks.FILE).unlink()  # and with it the lock of the kernel
        (tmp_path / locks.FILE).write_text(content)
        with (
            pytest.raises(InUseError, match=f"process {child.pid}"),
            locks.hold(tmp_path, "train"),
        ):
            pass


def test_another_host_is_believed_while_it_touches_its_lock(tmp_path: Path) -> None:
    elsewhere = {"host": "another-host", "system": "00000000", "boot": "00000000"}
    path = write_lock(tmp_path, **elsewhere)
    words = r"on another-host .*cannot see whether .*or remove .*training\.lock"
    with pytest.raises(InUseError, match=words), locks.hold(tmp_path, "train"):
        pass
    assert names(tmp_path) == [locks.FILE]
    long_ago = time.time() - locks.STALE_SECONDS - 60
    os.utime(path, (long_ago, long_ago))
    with locks.hold(tmp_path, "train"):
        pass


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"system": "00000000"},  # another container, or before a reboot
        {"system": "00000000", "host": "another-container"},
    ],
)
def test_an_earlier_container_or_boot_holds_nothing(
    tmp_path: Path, elsewhere: dict[str, str]
) -> None:
    write_lock(tmp_path, **elsewhere)
    with locks.hold(tmp_path, "train"):
        pass


def test_a_lock_is_touched_while_it_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "TOUCH_SECONDS", 0.01)
    with locks.hold(tmp_path, "train"):
        path = tmp_path / locks.FILE
        os.utime(path, (0, 0))
        end = time.monotonic() + 60
        while path.stat().st_mtime == 0:
            assert time.monotonic() < end


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', "x" * 100_000])
def test_what_says_nothing_holds_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / locks.FILE).write_text(content)
    with locks.hold(tmp_path, "train"):
        locks.check_held(tmp_path)


def lose(folder: Path, how: Callable[[], object]) -> None:
    """Hold the lock while it is taken away."""
    with locks.hold(folder, "train"):
        (folder / locks.FILE).unlink()
        how()


def test_a_deleted_directory_is_said_to_be(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with pytest.raises(MissingFileError, match="model was deleted during training"):
        lose(folder, folder.rmdir)
    with pytest.raises(MissingFileError, match=r"training\.lock is gone"):
        lose(folder, lambda: None)


def test_who_was_taken_over_is_told(tmp_path: Path) -> None:
    with pytest.raises(InUseError, match="was taken over by another training"):
        lose(tmp_path, lambda: write_lock(tmp_path, token="another"))


def test_what_is_not_held_needs_no_check(tmp_path: Path) -> None:
    locks.check_held(tmp_path)
    locks.check_free(tmp_path)
    with holder(tmp_path), pytest.raises(InUseError):
        locks.check_free(tmp_path)
    assert not Path("nowhere").exists()
    locks.check_free("nowhere")
    assert not Path("nowhere").exists()


def test_of_many_that_start_at_once_one_holds_it(tmp_path: Path) -> None:
    program = HOLDING.format(inside="pass").replace("print(", "print('held', ")
    command = [sys.executable, "-c", program, str(tmp_path)]
    pipe = subprocess.PIPE
    children = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        for _ in range(6)
    ]
    firsts = [c.stdout.readline() for c in children if c.stdout]  # all have decided
    for child in children:
        child.communicate()
    assert sum(line.startswith(b"held") for line in firsts) == 1
    assert sum(child.returncode == 0 for child in children) == 1


def test_two_activities_in_a_directory_have_a_lock_each(tmp_path: Path) -> None:
    other = dataclasses.replace(locks.TRAINING, file="other.lock", name="scoring")
    with locks.hold(tmp_path, "same", other), locks.hold(tmp_path, "same"):
        assert {"other.lock", locks.FILE} <= set(os.listdir(tmp_path))
    assert os.listdir(tmp_path) == []


def test_a_lost_lock_is_that_of_its_activity(tmp_path: Path) -> None:
    other = dataclasses.replace(locks.TRAINING, file="other.lock", name="scoring")

    def lose_one() -> None:
        with locks.hold(tmp_path, "score", other), locks.hold(tmp_path, "train"):
            (tmp_path / "other.lock").unlink()
            locks.check_held(tmp_path)
            (tmp_path / "checked").touch()

    with pytest.raises(MissingFileError, match=r"other\.lock is gone"):
        lose_one()
    assert (tmp_path / "checked").exists()
