import os
from pathlib import Path

import pytest

from estimax.storage import files


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../a", "a/../b", "/etc/passwd", "a//b", "a\\b", "a\0b"]
)
def test_names_that_are_not_inside_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not a relative path inside"):
        files.regular_file(tmp_path, name)


def test_links_may_lead_about_inside_but_not_out(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "secret").write_text("s")
    (folder / "inside").write_text("i")
    (folder / "near").symlink_to("inside")
    (folder / "far").symlink_to(tmp_path / "secret")
    (folder / "above").symlink_to("..")
    (folder / "round").symlink_to("round")
    assert files.regular_file(folder, "near").read_text() == "i"
    (tmp_path / "link").symlink_to(folder)
    assert files.regular_file(tmp_path / "link", "near").read_text() == "i"
    for name in ("far", "above/secret"):
        with pytest.raises(ValueError, match="leads out of the folder"):
            files.regular_file(folder, name)
    with pytest.raises(ValueError, match="round"):
        files.regular_file(folder, "round")


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(ValueError, match="is not a regular file"):
            files.regular_file(tmp_path, name)


def test_a_file_that_is_not_there_has_a_path(tmp_path: Path) -> None:
    assert files.regular_file(tmp_path, "a/b") == tmp_path / "a/b"
