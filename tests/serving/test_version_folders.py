"""Versions in an object store: listed there, copied to the disk, and served."""

import os
import shutil
import threading
import time

import fsspec
import pytest
from serving.bundles import export_clicks, probability
from serving.servers import running_server

from estimax.core.errors import BundleError, ConfigError
from estimax.export.manifest import MANIFEST
from estimax.serving.config import ModelConfig
from estimax.serving.manager import ModelManager
from estimax.serving.threads import LoadStoppedError, StopSignal
from estimax.serving.version_folders import check_store, list_versions, local_folder

pytestmark = pytest.mark.usefixtures("closed_managers")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setattr(
        "estimax.serving.version_folders.user_cache_folder", lambda: folder
    )
    return folder


@pytest.fixture
def store():
    """A store without folders of its own, as fsspec has it in memory."""
    system = fsspec.filesystem("memory")
    yield system
    system.rm("/", recursive=True)


def put(store, number, content=b"{}", **files):
    store.pipe(f"/bucket/ctr/{number}/{MANIFEST}", content)
    for name, data in files.items():
        store.pipe(f"/bucket/ctr/{number}/assets/{name}.txt", data)


def test_versions_of_a_store_are_copied_once(cache, store):
    put(store, 3, words=b"Oslo")
    put(store, 12)
    store.pipe("/bucket/ctr/13/weights.bin", b"still being copied")
    store.pipe("/bucket/ctr/notes/readme.txt", b"")
    found = list_versions("memory://bucket/ctr/")
    assert list(found) == [3, 12]
    assert str(found[3]) == "memory://bucket/ctr/3"
    found[3].fetch()
    assert (found[3].path / "assets" / "words.txt").read_bytes() == b"Oslo"
    assert found[3].path.parent == local_folder("memory://bucket/ctr")
    store.rm("/bucket/ctr/3/assets", recursive=True)
    found[3].fetch()  # the copy is complete, so that the store is not read
    assert (found[3].path / "assets" / "words.txt").is_file()


def test_a_version_that_is_replaced_gets_a_copy_of_its_own(cache, store):
    put(store, 3, b"{}")
    (old,) = list_versions("memory://bucket/ctr").values()
    old.fetch()
    put(store, 3, b'{"a": 1}')
    (new,) = list_versions("memory://bucket/ctr").values()
    assert new.stamp != old.stamp
    new.fetch()
    assert (old.path / MANIFEST).read_bytes() == b"{}"
    assert (new.path / MANIFEST).read_bytes() == b'{"a": 1}'


def test_copies_of_versions_that_left_the_store_are_removed(cache, store, monkeypatch):
    put(store, 3)
    put(store, 4)
    for version in list_versions("memory://bucket/ctr").values():
        version.fetch()
    store.rm("/bucket/ctr/3", recursive=True)
    kept = local_folder("memory://bucket/ctr")
    list_versions("memory://bucket/ctr")
    assert len(os.listdir(kept)) == 2  # another server may need it
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 2 * 24 * 3600)
    list_versions("memory://bucket/ctr")
    assert [name.partition("-")[0] for name in os.listdir(kept)] == ["4"]


def test_a_copy_that_fails_or_is_stopped_leaves_nothing(cache, store):
    put(store, 3)
    (version,) = list_versions("memory://bucket/ctr").values()
    stop = StopSignal()
    stop.stop()
    with pytest.raises(LoadStoppedError):
        version.fetch(stop.check)
    assert os.listdir(version.path.parent) == []
    shutil.rmtree(cache)
    cache.write_text("no folder")
    with pytest.raises(BundleError, match="memory://bucket/ctr/3: the version cannot"):
        version.fetch()


def test_a_store_that_nothing_reads_is_refused():
    check_store("s3://bucket/models")
    with pytest.raises(ConfigError, match="no installed package reads shop://"):
        check_store("shop://bucket/models")


def test_the_manager_serves_and_refreshes_a_store(cache, store):
    put(store, 3)
    loads = []

    class Loaded:
        def close(self):
            pass

    def load(path, *_):
        loads.append((path / MANIFEST).read_bytes())
        return Loaded()

    now = [0.0]
    config = ModelConfig("ctr", "memory://bucket/ctr")
    manager = ModelManager([config], load, clock=lambda: now[0])
    manager.poll()
    assert manager.wait_until_ready(30)
    put(store, 4, b'{"b": 2}')
    manager.poll()  # listed a moment ago
    assert loads == [b"{}"]
    now[0] = 31.0
    changed = threading.Event()
    manager.add_listener(
        lambda: (
            4 in [v.number for v in manager.models()["ctr"].available()]
            and changed.set()
        )
    )
    manager.poll()
    assert changed.wait(30)
    assert loads == [b"{}", b'{"b": 2}']


@pytest.mark.slow
def test_a_server_answers_from_a_store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(export_clicks(tmp_path / "exported"), tmp_path / "clicks" / "7")
    model = f"clicks={(tmp_path / 'clicks').as_uri()}"
    with running_server(tmp_path, model, "--batch-sizes", "1") as server:
        row = {"age": 0.5, "hours": 1, "city": "Oslo", "tags": ["a"]}
        body = {"instances": [row]}
        status, answer, _ = server.request("/v1/models/clicks:predict", body)
        assert status == 200, answer
        (found,) = answer["predictions"]
        assert found["scores"][1] == pytest.approx(probability(0.5, 1, 1))
        status, answer, _ = server.request("/v1/models/clicks")
        assert [v["version"] for v in answer["model_version_status"]] == ["7"]
