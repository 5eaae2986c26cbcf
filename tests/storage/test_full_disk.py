"""An error of a disk that takes no more bytes names the file that was written."""

import resource
from pathlib import Path

import pytest

from estimax.storage import atomic, locks

MUCH = b"x" * 100_000


@pytest.fixture
def small_files():
    """No file may grow beyond 1,000 bytes: the system's error then names no file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_files")
def test_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"File too large: '.*/model/weights'"):
        atomic.write_bytes(_folder(tmp_path) / "weights", MUCH)
    assert list((tmp_path / "model").iterdir()) == []


@pytest.mark.usefixtures("small_files")
def test_folder_that_cannot_be_filled_is_named(tmp_path: Path) -> None:
    path = _folder(tmp_path) / "bundle"
    with (
        pytest.raises(OSError, match=r"File too large: '.*/model/bundle'"),
        atomic.folder(path) as temporary,
    ):
        (temporary / "weights").write_bytes(MUCH)
    assert list((tmp_path / "model").iterdir()) == []


@pytest.fixture
def tiny_files():
    """No file may grow beyond 10 bytes; the first of them are written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("tiny_files")
def test_lock_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match=r"File too large: '.*/model/training\.lock'"),
        locks.hold(tmp_path / "model", "train"),
    ):
        pass


def test_half_a_lock_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / locks.FILE).write_text('{"host": ')
    with locks.hold(tmp_path, "train"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_error_that_names_a_file_keeps_it(tmp_path: Path) -> None:
    with (
        pytest.raises(FileNotFoundError, match="no-such-file"),
        atomic.folder(tmp_path / "bundle"),
    ):
        (tmp_path / "no-such-file").read_bytes()


def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    return folder
