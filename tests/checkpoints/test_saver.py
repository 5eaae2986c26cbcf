import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from estimax import checkpoints
from estimax.checkpoints import Saver
from estimax.core.errors import CheckpointError, ConfigError, MissingFileError

ARRAYS = {"w": np.arange(4.0)}


def steps(model_dir: Path) -> list[int]:
    found = checkpoints.all_checkpoints(model_dir)
    return [checkpoints.step_of(path) for path in found]


def save(saver: Saver, *steps: int) -> None:
    for step in steps:
        saver.save(step, ARRAYS)
    saver.wait()


def test_saved_checkpoint_can_be_read(tmp_path: Path) -> None:
    saver = Saver(tmp_path / "new" / "dir")
    path = saver.save(3, ARRAYS, {"input": [1]})
    saver.close()
    assert checkpoints.read(path).extra == {"input": [1]}


def test_excess_goes_all_at_once(tmp_path: Path) -> None:
    save(Saver(tmp_path, keep_max=None), 1, 2, 3, 4, 5)
    save(Saver(tmp_path, keep_max=2), 6)
    assert steps(tmp_path) == [5, 6]


@pytest.mark.parametrize("count", range(1, 6))
def test_up_to_the_limit_all_stay(tmp_path: Path, count: int) -> None:
    save(Saver(tmp_path, keep_max=5), *range(count))
    assert steps(tmp_path) == list(range(count))


@pytest.mark.parametrize("keep_max", [0, None])
def test_no_limit_keeps_all(tmp_path: Path, keep_max: int | None) -> None:
    save(Saver(tmp_path, keep_max=keep_max), *range(8))
    assert steps(tmp_path) == list(range(8))


def test_the_one_just_written_stays_below_higher_steps(tmp_path: Path) -> None:
    save(Saver(tmp_path, keep_max=None), 100, 200, 300)
    save(Saver(tmp_path, keep_max=1), 50)
    assert steps(tmp_path) == [50]


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    saver = Saver(tmp_path, keep_max=2)
    save(saver, 1, 2)
    saver.save(2, {"v": np.zeros(1)})
    saver.close()
    assert steps(tmp_path) == [1, 2]
    assert checkpoints.names(tmp_path / "model.ckpt-2") == ("v",)


def test_saving_the_same_again_writes_nothing(tmp_path: Path) -> None:
    save(Saver(tmp_path), 1)
    before = (tmp_path / "model.ckpt-1").stat()
    save(Saver(tmp_path), 1)
    assert (tmp_path / "model.ckpt-1").stat() == before


def test_same_arrays_at_another_input_position_are_written(tmp_path: Path) -> None:
    saver = Saver(tmp_path)
    for position in (1, 2):
        saver.save(1, ARRAYS, {"input": position})
    saver.close()
    assert checkpoints.read(tmp_path / "model.ckpt-1").extra == {"input": 2}


def test_damaged_checkpoint_is_written_again(tmp_path: Path) -> None:
    save(Saver(tmp_path), 1)
    (tmp_path / "model.ckpt-1" / "manifest.json").write_text("{")
    save(Saver(tmp_path), 1)
    assert steps(tmp_path) == [1]


def test_one_every_few_hours_stays_for_good(tmp_path: Path) -> None:
    # A clock one and a half hours ago: what is written now comes after the first hour.
    saver = Saver(
        tmp_path, keep_max=1, keep_every_n_hours=1, clock=lambda: time.time() - 5400
    )
    save(saver, 1, 2, 3, 4)
    assert steps(tmp_path) == [1, 4]
    save(Saver(tmp_path, keep_max=1), 5, 6)
    assert steps(tmp_path) == [1, 6]


def test_hours_go_on_after_a_restart(tmp_path: Path) -> None:
    hours_ago = time.time() - 5400
    options = {"keep_max": 1, "keep_every_n_hours": 1}
    save(Saver(tmp_path, clock=lambda: hours_ago, **options), 1)
    save(Saver(tmp_path, **options), 2)
    assert steps(tmp_path) == [1, 2]


def test_hand_marked_checkpoint_stays(tmp_path: Path) -> None:
    saver = Saver(tmp_path, keep_max=1)
    save(saver, 1)
    (tmp_path / "model.ckpt-1" / "keep").touch()
    save(saver, 1, 2, 3)
    assert steps(tmp_path) == [1, 3]


def test_state_file_lists_relative_names(tmp_path: Path) -> None:
    save(Saver(tmp_path, keep_max=2), 1, 2, 3)
    assert json.loads((tmp_path / "checkpoint").read_text()) == {
        "latest": "model.ckpt-3",
        "all": ["model.ckpt-2", "model.ckpt-3"],
    }


def test_lost_state_file_loses_nothing(tmp_path: Path) -> None:
    save(Saver(tmp_path), 1, 2)
    (tmp_path / "checkpoint").unlink()
    assert checkpoints.latest(tmp_path) == tmp_path / "model.ckpt-2"


def test_error_of_the_thread_comes_at_the_next_call(tmp_path: Path) -> None:
    saver = Saver(tmp_path)
    saver.save(1, {"w": np.array(["text"])})
    with pytest.raises(CheckpointError, match="'w' has dtype"):
        saver.save(2, ARRAYS)
    save(saver, 3)
    assert steps(tmp_path) == [3]


def test_error_of_the_thread_comes_at_wait(tmp_path: Path) -> None:
    saver = Saver(tmp_path)
    saver.save(1, {"w": np.array(["text"])})
    with pytest.raises(CheckpointError, match="'w' has dtype"):
        saver.wait()
    saver.close()


def test_error_of_the_disk_names_the_checkpoint(tmp_path: Path) -> None:
    saver = Saver(tmp_path)
    (tmp_path / "model.ckpt-1").write_text("a file is in the way")
    saver.save(1, ARRAYS)
    with pytest.raises(NotADirectoryError) as caught:
        saver.wait()
    assert f"while writing the checkpoint {tmp_path}" in caught.value.__notes__[0]


def test_save_does_not_wait_for_its_own_write(tmp_path: Path) -> None:
    release = threading.Event()

    class Waiting(dict[str, np.ndarray]):
        """Gives its arrays out only when they are let go."""

        def __iter__(self) -> Iterator[str]:
            release.wait()
            return super().__iter__()

    saver = Saver(tmp_path)
    saver.save(1, Waiting(ARRAYS))
    assert steps(tmp_path) == []
    release.set()
    saver.close()
    assert steps(tmp_path) == [1]


@pytest.mark.parametrize(
    ("options", "words"),
    [({"keep_max": -1}, "keep_max"), ({"keep_every_n_hours": 0}, "above 0")],
)
def test_impossible_retention_is_refused(
    tmp_path: Path, options: dict[str, int], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        Saver(tmp_path, **options)


WRITER = """
import sys, numpy as np
from estimax.checkpoints import Saver
saver = Saver(sys.argv[1], keep_max=2)
step = int(sys.argv[2])
while True:
    step += 1
    saver.save(step, {"w": np.full(200_000, step, np.int64)}, {"step": step})
    print(step, flush=True)
"""


def test_kill_at_any_moment_leaves_sound_checkpoints(tmp_path: Path) -> None:
    step = 0
    for delay in np.linspace(0.0, 0.03, 4):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(step)],
            stdout=subprocess.PIPE,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )
        assert child.stdout is not None
        for _ in range(3):
            child.stdout.readline()
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        found = checkpoints.restore_latest(tmp_path)
        assert found is not None
        # The third had started, so the second was done.
        assert found.step >= step + 2
        assert found.extra == {"step": found.step}
        assert (found.arrays["w"] == found.step).all()
        step = found.step


def test_a_directory_that_is_deleted_is_not_made_again(tmp_path: Path) -> None:
    saver = Saver(tmp_path / "run")
    (tmp_path / "run").rmdir()
    saver.save(1, {"n": np.array(3)})
    with pytest.raises(MissingFileError, match="run was deleted while it was trained"):
        saver.close()
    assert not (tmp_path / "run").exists()


class Watched(dict):  # type: ignore[type-arg]
    """Arrays that note while they are being written."""

    def __init__(self, mine: threading.Event, other: threading.Event) -> None:
        super().__init__(ARRAYS)
        self.mine, self.other = mine, other
        self.overlaps: list[bool] = []

    def __iter__(self) -> Iterator[str]:
        self.mine.set()
        # Wait for the other writer, which must not come.
        self.overlaps.append(self.other.wait(0.3))
        self.mine.clear()
        return super().__iter__()


def test_two_savers_of_one_folder_write_one_after_the_other(tmp_path: Path) -> None:
    first, second = threading.Event(), threading.Event()
    one, two = Watched(first, second), Watched(second, first)
    (tmp_path / "link").symlink_to(tmp_path)
    savers = Saver(tmp_path), Saver(tmp_path / "link", keep_max=1)
    savers[0].save(1, one)
    savers[1].save(2, two)
    for saver in savers:
        saver.close()
        saver.close()
    assert set(one.overlaps) == set(two.overlaps) == {False}
    assert steps(tmp_path) == [2]
    with pytest.raises(RuntimeError, match="closed"):
        savers[0].save(3, ARRAYS)


def test_a_damaged_checkpoint_is_written_again(tmp_path: Path) -> None:
    saver = Saver(tmp_path)
    path = saver.save(1, ARRAYS)
    saver.wait()
    file = path / "state-00000-of-00001.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    save(saver, 1)  # the same arrays, as of a run that resumed before the damage
    np.testing.assert_array_equal(checkpoints.read(path).arrays["w"], ARRAYS["w"])
