import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from estimax.storage import atomic


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def leftover(folder: Path, pid: int, *, host: str | None = None) -> Path:
    host = socket.gethostname() if host is None else host
    path = folder / f".estimax-tmp-{host}-{pid}-0-00c0ffee~model.ckpt-5"
    path.mkdir()
    (path / "part").write_bytes(b"x")
    return path


def a_dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_write_bytes_replaces_the_whole_content(tmp_path: Path) -> None:
    atomic.write_bytes(tmp_path / "a", b"a long first content")
    atomic.write_bytes(tmp_path / "a", b"short")
    assert (tmp_path / "a").read_bytes() == b"short"
    assert names(tmp_path) == ["a"]


def test_write_json_can_be_read_back(tmp_path: Path) -> None:
    atomic.write_json(tmp_path / "a.json", {"b": [1, None]})
    assert json.loads((tmp_path / "a.json").read_text()) == {"b": [1, None]}


def test_value_that_is_no_json_leaves_the_old_file(tmp_path: Path) -> None:
    atomic.write_json(tmp_path / "a.json", 1)
    with pytest.raises(TypeError, match="not JSON serializable"):
        atomic.write_json(tmp_path / "a.json", object())
    assert (tmp_path / "a.json").read_text() == "1\n"
    assert names(tmp_path) == ["a.json"]


def test_folder_appears_only_at_the_end(tmp_path: Path) -> None:
    with atomic.folder(tmp_path / "f") as temporary:
        (temporary / "x").write_text("1")
        assert not (tmp_path / "f").exists()
    assert (tmp_path / "f" / "x").read_text() == "1"
    assert names(tmp_path) == ["f"]


def fail_in_folder(path: Path) -> None:
    with atomic.folder(path) as temporary:
        (temporary / "x").write_text("2")
        raise KeyError("boom")


def test_failed_folder_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        fail_in_folder(tmp_path / "f")
    assert names(tmp_path) == []


def test_folder_replaces_one_that_is_there(tmp_path: Path) -> None:
    for name in ("old", "new"):
        with atomic.folder(tmp_path / "f") as temporary:
            (temporary / name).write_text(name)
    assert names(tmp_path / "f") == ["new"]
    assert names(tmp_path) == ["f"]


def test_failed_replacement_keeps_the_old_folder(tmp_path: Path) -> None:
    with atomic.folder(tmp_path / "f") as temporary:
        (temporary / "old").write_text("1")
    with pytest.raises(KeyError):
        fail_in_folder(tmp_path / "f")
    assert names(tmp_path / "f") == ["old"]


def test_folder_replaces_where_the_system_cannot_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "other")
    test_folder_replaces_one_that_is_there(tmp_path)


def test_remove_folder_removes_it(tmp_path: Path) -> None:
    (tmp_path / "f" / "g").mkdir(parents=True)
    atomic.remove_folder(tmp_path / "f")
    assert names(tmp_path) == []


def test_leftovers_of_a_dead_process_go_after_a_minute(tmp_path: Path) -> None:
    path = leftover(tmp_path, a_dead_pid())
    assert atomic.remove_leftovers(tmp_path) == []
    assert atomic.remove_leftovers(tmp_path, now=time.time() + 61) == [path.name]
    assert names(tmp_path) == []


@pytest.mark.parametrize("host", [None, "another-host"])
def test_temporaries_of_others_stay_for_a_day(tmp_path: Path, host: str | None) -> None:
    pid = os.getppid() if host is None else a_dead_pid()
    path = leftover(tmp_path, pid, host=host)
    assert atomic.remove_leftovers(tmp_path, now=time.time() + 3600) == []
    later = time.time() + 25 * 3600
    assert atomic.remove_leftovers(tmp_path, now=later) == [path.name]


def test_temporary_in_use_is_no_leftover(tmp_path: Path) -> None:
    with atomic.folder(tmp_path / "f"):
        assert atomic.remove_leftovers(tmp_path, now=time.time() + 1e6) == []
    assert names(tmp_path) == ["f"]


def test_files_of_others_are_never_leftovers(tmp_path: Path) -> None:
    for name in (".tmp-1", "model.ckpt-1", ".estimax-tmp", "tmp~x"):
        (tmp_path / name).mkdir()
    assert atomic.remove_leftovers(tmp_path, now=time.time() + 1e9) == []
    assert len(names(tmp_path)) == 4


def test_leftovers_of_a_missing_directory_are_none(tmp_path: Path) -> None:
    assert atomic.remove_leftovers(tmp_path / "nowhere") == []


def left_by_a_killed_process(folder: Path) -> Path:
    """A folder that a real process was writing when it was killed."""
    program = (
        "import sys\n"
        "from estimax.storage import atomic\n"
        "with atomic.folder(sys.argv[1]) as temporary:\n"
        "    (temporary / 'part').write_text('x')\n"
        "    print(flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(folder / "model.ckpt-5")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert atomic.remove_leftovers(folder, now=time.time() + 1e9) == []  # it lives
        child.kill()
    (path,) = (p for p in folder.iterdir() if p.name.startswith(".estimax-tmp"))
    return path


def test_leftovers_of_a_killed_process_go_at_once(tmp_path: Path) -> None:
    path = left_by_a_killed_process(tmp_path)
    assert atomic.remove_leftovers(tmp_path) == [path.name]
    assert names(tmp_path) == []


def test_leftovers_in_folders_inside_are_found_to_a_depth(tmp_path: Path) -> None:
    inner = tmp_path / "export" / "final"
    inner.mkdir(parents=True)
    (tmp_path / "link").symlink_to(inner)
    path = left_by_a_killed_process(inner)
    assert atomic.remove_leftovers(tmp_path, depth=1) == []
    assert atomic.remove_leftovers(tmp_path, depth=2) == [path.name]


def test_a_sole_writer_removes_what_others_left_of_its_files(tmp_path: Path) -> None:
    path = leftover(tmp_path, a_dead_pid(), host="another-host")
    other = path.with_name(path.name.replace("model.ckpt-5", "evaluation"))
    other.mkdir()
    found = atomic.remove_leftovers(
        tmp_path, sole_writer_of=lambda name: name.startswith("model.ckpt-")
    )
    assert found == [path.name]
    with atomic.folder(tmp_path / "model.ckpt-7"):
        found = atomic.remove_leftovers(tmp_path, sole_writer_of=lambda name: True)
    assert found == [other.name]
