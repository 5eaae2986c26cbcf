"""Patterns in URLs, on the local file system, one in memory and others of pyarrow."""

import sys
from datetime import UTC, datetime

import pytest
from pyarrow import fs

from estimax.core.errors import InputError
from estimax.input import Dataset, csv_files
from estimax.storage import files
from estimax.storage.url_patterns import find, has_pattern, matching


@pytest.fixture(params=["fsspec", "pyarrow"])
def library(request, monkeypatch):
    """Which library opens URLs."""
    if request.param == "pyarrow":
        monkeypatch.setitem(sys.modules, "fsspec", None)
        monkeypatch.setitem(sys.modules, "fsspec.core", None)
    else:
        pytest.importorskip("fsspec")
    return request.param


@pytest.fixture
def days(tmp_path):
    for day in ("day=2", "day=1", "other"):
        (tmp_path / day / "below").mkdir(parents=True)
        for name in ("b 1.csv", "a.csv", "a.txt", ".hidden.csv"):
            (tmp_path / day / name).write_text(f"x\n{day[-1:] if '=' in day else 9}\n")
        (tmp_path / day / "folder.csv").mkdir()
    return f"file://{tmp_path}"


def test_files_of_all_folders_are_sorted_and_can_be_read(days, library):
    found = matching(f"{days}/day=*/*.csv")
    assert len(found) == 4
    assert found[::2] == [f"{days}/day=1/a.csv", f"{days}/day=2/a.csv"]
    data = csv_files(f"{days}/day=*/*.csv")
    assert [int(row["x"]) for row in data] == [1, 1, 2, 2]
    assert matching(f"{days}/*/a.csv")[-1] == f"{days}/other/a.csv"
    assert len(matching(f"{days}/day=[13]/[ab]*.csv")) == 2


def test_the_readers_of_tensorflow_take_them_too(days):
    paths = [path.decode() for path in Dataset.list_files(f"{days}/*/a.csv", False)]
    assert paths == matching(f"{days}/*/a.csv")


def test_no_match_is_an_error_that_names_the_pattern(days, library):
    with pytest.raises(InputError, match=r"no file matches 'file://.*/day=\*/z\*"):
        csv_files(f"{days}/day=*/z*.csv")
    with pytest.raises(InputError, match=r"no file matches 'file:///nowhere/\*'"):
        matching("file:///nowhere/*")


def test_a_store_that_is_not_known_is_an_error(library):
    with pytest.raises(InputError, match=r"cannot be listed: .*none://a"):
        matching("none://a/*.csv")
    with pytest.raises(InputError, match=r"cannot be read: .*none://a"):
        files.open_to_read("none://a/b.csv")
    with pytest.raises(InputError, match="expected the name of a bucket"):
        csv_files("s3://*/a.csv")


def test_a_question_mark_begins_the_query_of_a_url():
    assert not has_pattern("s3://bucket/a.csv?endpoint_override=[::1]:9000")
    assert has_pattern("s3://bucket/*.csv?region=eu-west-1")


def test_a_file_system_in_memory():
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    for day in (2, 1):
        store.pipe(f"/bucket/day={day}/part-0.csv", b"x\n%d\n" % day)
    pattern = "memory://bucket/day=*/part-*.csv"
    assert [int(row["x"]) for row in csv_files(pattern)] == [1, 2]
    store.rm("/bucket", recursive=True)


def test_only_folders_that_match_are_listed(tmp_path):
    store = fs._MockFileSystem(datetime.now(UTC))
    for path in ("b/day=1/x/a.csv", "b/day=2/x/a.csv", "b/other/x/a.csv"):
        store.create_dir(path.rpartition("/")[0])
        store.open_output_stream(path).close()
    assert list(find(store, "b", ["day=*", "x", "*.csv"])) == [
        "day=1/x/a.csv",
        "day=2/x/a.csv",
    ]
    below = fs.SubTreeFileSystem("b/day=2", store)
    assert list(find(below, "", ["*", "a.csv"])) == ["x/a.csv"]


def test_a_store_that_cannot_be_reached_ends_within_a_limit(monkeypatch):
    """Port 9 of this machine refuses; without a limit pyarrow tries for 15 minutes."""
    monkeypatch.setattr(files, "_GCS_SECONDS", 1)
    url = "gs://anonymous@bucket/a.csv?scheme=http&endpoint_override=127.0.0.1:9"
    with pytest.raises(InputError, match=r"cannot be read: .*Check the name, the netw"):
        files.open_to_read(url)


def test_the_user_may_set_the_limit_of_a_store():
    url = "gs://bucket/a?retry_limit_seconds=600"
    assert files._limit_retries(url) == url
    assert files._limit_retries("s3://bucket/a") == "s3://bucket/a"
