"""Versions are found, loaded, replaced and drained as TensorFlow Serving does it."""

import shutil
import threading
import time
from pathlib import Path

import pytest

from estimax.core.errors import BundleError
from estimax.serving.config import ModelConfig, VersionPolicy
from estimax.serving.lifecycle import VersionState
from estimax.serving.manager import ModelManager
from estimax.serving.status import Code, ServingError

pytestmark = pytest.mark.usefixtures("closed_managers")


class Loaded:
    """Stands for a loaded bundle: the manager only closes it."""

    def __init__(self, path):
        self.path = path
        self.is_closed = False

    def close(self):
        self.is_closed = True


class Loader:
    """Loads folders; those whose name is in `broken` fail."""

    def __init__(self):
        self.broken = set()
        self.loaded = {}
        self.served_meanwhile = []

    def __call__(self, path, is_serving, *rest):
        self.served_meanwhile.append(is_serving)
        if path.name in self.broken:
            raise BundleError(f"{path}: damaged")
        self.loaded[path.name] = Loaded(path)
        return self.loaded[path.name]


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def add_version(base: Path, number) -> None:
    folder = base / str(number)
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")


def remove_version(base: Path, number) -> None:
    shutil.rmtree(base / str(number))


def make(base, *, policy=VersionPolicy(), labels=None, **options):  # noqa: B008
    loader = Loader()
    config = ModelConfig("m", str(base), policy, labels or {})
    return ModelManager([config], loader, **options), loader


def settle(manager, condition=lambda: True) -> None:
    """Poll until nothing changes and a condition holds."""
    for _ in range(2000):
        manager.poll()
        busy = [
            version
            for model in manager.models().values()
            for version in model.versions.values()
            if version.state in (VersionState.START, VersionState.LOADING)
            and not version.failures
        ]
        if not busy and condition():
            return
        time.sleep(0.005)
    raise AssertionError("the manager did not settle")


def states(manager):
    return {v.number: v.state.name for v in manager.versions("m")}


def test_the_highest_version_is_loaded_and_answers(tmp_path):
    for number in (1, 2, 10):
        add_version(tmp_path, number)
    manager, loader = make(tmp_path)
    settle(manager)
    assert states(manager) == {10: "AVAILABLE"}
    with manager.acquire("m") as served:
        assert served.number == 10
        assert served.loaded is loader.loaded["10"]


def test_a_folder_without_a_manifest_is_still_being_copied(tmp_path):
    add_version(tmp_path, 1)
    (tmp_path / "2").mkdir()
    manager, _ = make(tmp_path)
    settle(manager)
    assert states(manager) == {1: "AVAILABLE"}
    (tmp_path / "2" / "manifest.json").write_text("{}")
    settle(manager, lambda: states(manager) == {2: "AVAILABLE", 1: "END"})


def test_the_new_version_is_loaded_before_the_old_one_is_unloaded(tmp_path):
    add_version(tmp_path, 1)
    manager, loader = make(tmp_path)
    settle(manager)
    loader.broken.add("2")
    add_version(tmp_path, 2)
    settle(manager)
    assert states(manager)[1] == "AVAILABLE"
    assert loader.served_meanwhile == [False, True]


def test_a_version_is_unloaded_after_its_last_request(tmp_path):
    add_version(tmp_path, 1)
    manager, loader = make(tmp_path)
    settle(manager)
    with manager.acquire("m") as served:
        add_version(tmp_path, 2)
        settle(manager, lambda: states(manager)[1] == "UNLOADING")
        assert not served.loaded.is_closed
        with manager.acquire("m") as newer:
            assert newer.number == 2
    assert states(manager)[1] == "END"
    assert loader.loaded["1"].is_closed


def test_a_failed_load_is_tried_again_and_then_ends(tmp_path):
    add_version(tmp_path, 1)
    clock = Clock()
    manager, loader = make(tmp_path, retries=1, retry_seconds=60, clock=clock)
    loader.broken.add("1")
    settle(manager)
    (version,) = manager.versions("m")
    assert (version.state, version.failures) == (VersionState.LOADING, 1)
    clock.now = 59.0
    settle(manager)
    assert manager.versions("m")[0].failures == 1
    clock.now = 61.0
    settle(manager, lambda: manager.versions("m")[0].failures == 2)
    (version,) = manager.versions("m")
    assert version.state is VersionState.END
    assert version.error.code is Code.INVALID_ARGUMENT
    assert "damaged" in str(version.error)


def test_a_version_that_ended_is_tried_again_after_it_left_and_came_back(tmp_path):
    add_version(tmp_path, 1)
    manager, loader = make(tmp_path, retries=0)
    loader.broken.add("1")
    settle(manager)
    loader.broken.clear()
    settle(manager)
    assert states(manager) == {1: "END"}
    (tmp_path / "1").rename(tmp_path / "away")
    add_version(tmp_path, 2)
    settle(manager)
    (tmp_path / "2").rename(tmp_path / "gone")
    (tmp_path / "away").rename(tmp_path / "1")
    settle(manager, lambda: states(manager)[1] == "AVAILABLE")


def test_storage_that_goes_away_unloads_nothing(tmp_path):
    base = tmp_path / "models"
    add_version(base, 1)
    manager, _ = make(base)
    settle(manager)
    base.rename(tmp_path / "away")
    settle(manager)
    assert states(manager) == {1: "AVAILABLE"}


def test_policies_choose_versions(tmp_path):
    for number in (1, 2, 3):
        add_version(tmp_path, number)
    everything, _ = make(tmp_path, policy=VersionPolicy("all"))
    settle(everything)
    assert states(everything).keys() == {1, 2, 3}
    some, _ = make(tmp_path, policy=VersionPolicy("specific", versions=(1, 3, 9)))
    settle(some)
    assert states(some).keys() == {1, 3}


def test_labels_name_versions_and_wait_for_them(tmp_path):
    add_version(tmp_path, 1)
    both = VersionPolicy("all")
    manager, _ = make(tmp_path, policy=both, labels={"stable": 1, "canary": 2})
    settle(manager)
    with manager.acquire("m", label="stable") as served:
        assert served.number == 1
    with pytest.raises(ServingError, match="version 2") as raised:
        manager.acquire("m", label="canary").__enter__()
    assert raised.value.code is Code.NOT_FOUND
    add_version(tmp_path, 2)
    settle(manager)
    with manager.acquire("m", label="canary") as served:
        assert served.number == 2


@pytest.mark.parametrize(
    ("name", "version", "label", "code"),
    [
        ("other", None, None, Code.NOT_FOUND),
        ("m", 7, None, Code.NOT_FOUND),
        ("m", None, "new", Code.INVALID_ARGUMENT),
    ],
)
def test_what_is_not_there_has_a_status_code(tmp_path, name, version, label, code):
    add_version(tmp_path, 1)
    manager, _ = make(tmp_path)
    settle(manager)
    with pytest.raises(ServingError) as raised:
        manager.acquire(name, version, label).__enter__()
    assert raised.value.code is code


def test_a_reload_replaces_all_models(tmp_path):
    add_version(tmp_path / "a", 1)
    add_version(tmp_path / "b", 1)
    manager, loader = make(tmp_path / "a")
    settle(manager)
    manager.reload([ModelConfig("other", str(tmp_path / "b"))], timeout=20)
    assert list(manager.models()) == ["other"]
    assert manager.is_ready()
    assert len(loader.served_meanwhile) == 2


def test_a_reload_of_a_model_that_cannot_be_loaded_says_why(tmp_path):
    add_version(tmp_path / "a", 1)
    add_version(tmp_path / "b", 5)
    manager, loader = make(tmp_path / "a")
    settle(manager)
    loader.broken.add("5")
    with pytest.raises(ServingError, match="damaged"):
        manager.reload([ModelConfig("b", str(tmp_path / "b"))], timeout=20)


def test_a_label_in_use_does_not_move_to_a_version_that_is_not_ready(tmp_path):
    add_version(tmp_path, 1)
    manager, _ = make(tmp_path, labels={"stable": 1})
    settle(manager)
    moved = ModelConfig("m", str(tmp_path), version_labels={"stable": 9})
    with pytest.raises(ServingError, match="cannot move to version 9") as raised:
        manager.reload([moved], timeout=20)
    assert raised.value.code is Code.FAILED_PRECONDITION


def test_requests_during_many_swaps_always_find_a_version(tmp_path):
    add_version(tmp_path, 1)
    manager, _ = make(tmp_path)
    settle(manager)
    failures, stop = [], threading.Event()

    def ask():
        while not stop.is_set():
            try:
                with manager.acquire("m") as served:
                    assert not served.loaded.is_closed
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(2, 12):
        add_version(tmp_path, number)
        settle(manager, lambda n=number: states(manager).get(n) == "AVAILABLE")
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
