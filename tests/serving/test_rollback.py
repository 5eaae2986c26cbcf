"""What is asked for holds: rollbacks, refused reloads, storage that fails or hangs."""

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from serving.test_manager import (
    Loader,
    add_version,
    make,
    remove_version,
    settle,
    states,
)

from estimax.serving.config import ModelConfig, VersionPolicy
from estimax.serving.grpc_api import GrpcApi
from estimax.serving.inference import InferenceService
from estimax.serving.lifecycle import StagedReload
from estimax.serving.manager import ModelManager
from estimax.serving.metrics import ServerMetrics
from estimax.serving.protos import message
from estimax.serving.rest import RestApp
from estimax.serving.status import Code, ServingError

pytestmark = pytest.mark.usefixtures("closed_managers")


def specific(base, *numbers, **options):
    policy = VersionPolicy("specific", versions=numbers)
    return ModelConfig("m", str(base), policy, **options)


def answering(manager, name="m"):
    with manager.acquire(name) as served:
        return served.number


def test_a_deleted_version_is_replaced_by_the_one_before(tmp_path):
    add_version(tmp_path, 1)
    manager, loader = make(tmp_path)
    settle(manager)
    add_version(tmp_path, 2)
    settle(manager, lambda: states(manager) == {2: "AVAILABLE", 1: "END"})
    remove_version(tmp_path, 2)
    settle(manager, lambda: states(manager) == {2: "END", 1: "AVAILABLE"})
    assert answering(manager) == 1
    assert loader.loaded["2"].is_closed


def test_a_reload_to_an_earlier_version_loads_it_again(tmp_path):
    for number in (1, 2):
        add_version(tmp_path, number)
    manager = ModelManager([specific(tmp_path, 1)], Loader())
    settle(manager)
    for number in (2, 1, 2):
        manager.reload([specific(tmp_path, number)], timeout=20)
        assert answering(manager) == number


def test_the_last_version_serves_on_without_its_folder(tmp_path):
    add_version(tmp_path, 1)
    manager, _ = make(tmp_path)
    settle(manager)
    remove_version(tmp_path, 1)
    settle(manager)
    assert states(manager) == {1: "AVAILABLE"}


def test_a_version_that_is_wanted_again_while_it_drains_answers_at_once(tmp_path):
    add_version(tmp_path, 1)
    manager, loader = make(tmp_path)
    settle(manager)
    with manager.acquire("m"):
        add_version(tmp_path, 2)
        settle(manager, lambda: states(manager)[1] == "UNLOADING")
        remove_version(tmp_path, 2)
        settle(manager, lambda: states(manager) == {2: "END", 1: "AVAILABLE"})
    assert answering(manager) == 1
    assert not loader.loaded["1"].is_closed


def test_a_repaired_version_is_tried_again(tmp_path):
    add_version(tmp_path, 1)
    manager, loader = make(tmp_path, retries=0)
    loader.broken.add("1")
    settle(manager)
    assert states(manager) == {1: "END"}
    loader.broken.clear()
    (tmp_path / "1" / "manifest.json").write_text("{ }")
    settle(manager, lambda: states(manager) == {1: "AVAILABLE"})


def test_a_broken_version_ends_when_a_newer_one_is_there(tmp_path):
    add_version(tmp_path, 1)
    manager, loader = make(tmp_path)
    settle(manager)
    loader.broken.add("2")
    add_version(tmp_path, 2)
    settle(manager, lambda: states(manager).get(2) == "LOADING")
    add_version(tmp_path, 3)
    settle(manager, lambda: states(manager).get(3) == "AVAILABLE")
    assert states(manager) == {3: "AVAILABLE", 2: "END", 1: "END"}
    (broken,) = manager.versions("m", 2)
    assert "damaged" in str(broken.error)


@pytest.mark.parametrize("failure", ["link to itself", "long name", "zero byte"])
def test_a_folder_that_cannot_be_read_harms_no_other_model(tmp_path, failure):
    base = tmp_path / "bad"
    add_version(tmp_path / "good", 1)
    name = {
        "link to itself": str(base),
        "long name": str(tmp_path / ("a" * 5000)),
        "zero byte": f"{base}\0",
    }[failure]
    os.symlink(base, base)
    configs = [ModelConfig("bad", name), ModelConfig("m", str(tmp_path / "good"))]
    manager = ModelManager(configs, Loader())
    settle(manager)
    assert answering(manager) == 1
    assert str(manager.models()["bad"].listing_error)
    add_version(tmp_path / "good", 2)
    settle(manager, lambda: answering(manager) == 2)
    assert manager.listing_failures["bad"] >= 2


def test_one_unreadable_version_hides_no_other(tmp_path):
    add_version(tmp_path, 1)
    manager, _ = make(tmp_path, retries=0, policy=VersionPolicy("all"))
    settle(manager)
    (tmp_path / "2").mkdir()
    os.symlink("manifest.json", tmp_path / "2" / "manifest.json")
    add_version(tmp_path, 3)
    settle(manager, lambda: states(manager).get(3) == "AVAILABLE")
    assert answering(manager) == 3
    assert states(manager)[1] == "AVAILABLE"


def test_a_failing_disk_unloads_nothing_and_is_noticed_when_it_is_back(tmp_path):
    base = tmp_path / "models"
    add_version(base, 1)
    manager, _ = make(base)
    settle(manager)
    base.rename(tmp_path / "away")
    os.symlink(base, base)
    settle(manager)
    assert states(manager) == {1: "AVAILABLE"}
    base.unlink()
    (tmp_path / "away").rename(base)
    add_version(base, 2)
    settle(manager, lambda: states(manager) == {2: "AVAILABLE", 1: "END"})
    assert manager.models()["m"].listing_error is None


class Gate(Loader):
    """Loads folders; those whose name is in `hung` wait until they are let go."""

    def __init__(self, *hung):
        super().__init__()
        self.hung = {name: threading.Event() for name in hung}
        self.begun = []

    def __call__(self, path, *rest):
        self.begun.append(path.name)
        if path.name in self.hung:
            assert self.hung[path.name].wait(60)
        return super().__call__(path, *rest)


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_hung_load_does_not_block_other_models(tmp_path):
    for name, number in (("a", 1), ("b", 2)):
        add_version(tmp_path / name, number)
    loader = Gate("1", "2")
    configs = [ModelConfig(n, str(tmp_path / n)) for n in ("a", "b", "c")]
    clock = [0.0]
    manager = ModelManager(
        configs, loader, load_threads=2, load_seconds=100, clock=lambda: clock[0]
    )
    manager.poll()
    wait_for(lambda: len(loader.begun) == 2)
    add_version(tmp_path / "c", 3)
    clock[0] = 61.0  # the two are slow: they hold up nobody any longer
    manager.poll()
    wait_for(lambda: manager.models()["c"].available())
    clock[0] = 101.0  # and they are given up
    manager.poll()
    (version,) = manager.versions("a")
    assert version.error.code is Code.DEADLINE_EXCEEDED
    assert "100 s" in str(version.error)
    clock[0] = 500.0
    manager.poll()
    assert sorted(loader.begun) == ["1", "2", "3"]  # one thread for each folder
    for event in loader.hung.values():
        event.set()
    settle(manager, manager.is_ready)


def test_what_a_load_returns_after_it_was_given_up_is_freed(tmp_path):
    add_version(tmp_path / "a", 1)
    add_version(tmp_path / "b", 2)
    loader = Gate("1")
    manager = ModelManager([ModelConfig("a", str(tmp_path / "a"))], loader)
    manager.poll()
    wait_for(lambda: loader.begun)
    manager.reload([ModelConfig("b", str(tmp_path / "b"))], timeout=20)
    loader.hung["1"].set()
    wait_for(lambda: "1" in loader.loaded and loader.loaded["1"].is_closed)


def test_models_are_loaded_at_the_same_time(tmp_path):
    for name, number in (("a", 1), ("b", 2)):
        add_version(tmp_path / name, number)
    both = threading.Barrier(2)

    class Meeting(Loader):
        def __call__(self, path, *rest):
            both.wait(60)
            return super().__call__(path, *rest)

    loader = Meeting()
    configs = [ModelConfig(n, str(tmp_path / n)) for n in ("a", "b")]
    manager = ModelManager(configs, loader)
    settle(manager, manager.is_ready)
    # Nobody is served before the server is ready: no need to compile in a child.
    assert loader.served_meanwhile == [False, False]


def refused(manager, *configs, code, match):
    before = manager.models()
    with pytest.raises(ServingError, match=match) as raised:
        manager.reload(configs, timeout=20)
    assert raised.value.code is code
    after = manager.models()
    assert {n: m.config for n, m in after.items()} == {
        n: m.config for n, m in before.items()
    }
    assert manager.is_ready()


def test_a_refused_reload_changes_nothing(tmp_path):
    for name, number in (("m", 1), ("m", 2), ("b", 5)):
        add_version(tmp_path / name, number)
    loader = Loader()
    manager = ModelManager([specific(tmp_path / "m", 1)], loader)
    settle(manager)
    loader.broken.add("5")
    broken = ModelConfig("b", str(tmp_path / "b"))
    wanted = specific(tmp_path / "m", 2)
    code = Code.INVALID_ARGUMENT
    refused(manager, wanted, broken, code=code, match="damaged")
    assert answering(manager) == 1
    settle(manager)
    assert states(manager)[1] == "AVAILABLE"
    assert states(manager).get(2, "END") == "END"


def test_versions_of_a_reload_answer_only_when_all_of_it_holds(tmp_path):
    add_version(tmp_path / "m", 1)
    add_version(tmp_path / "m", 2)
    add_version(tmp_path / "b", 5)
    loader = Gate("5")
    manager = ModelManager([specific(tmp_path / "m", 1)], loader)
    settle(manager)
    configs = [specific(tmp_path / "m", 2), ModelConfig("b", str(tmp_path / "b"))]
    reload = threading.Thread(target=manager.reload, args=(configs, 60))
    reload.start()
    wait_for(lambda: "2" in loader.loaded and "5" in loader.begun)
    assert answering(manager) == 1
    assert manager.is_ready()
    loader.hung["5"].set()
    reload.join(60)
    assert answering(manager) == 2
    assert answering(manager, "b") == 5


def test_a_specific_version_without_a_folder_is_refused(tmp_path):
    add_version(tmp_path, 1)
    manager = ModelManager([specific(tmp_path, 1)], Loader())
    settle(manager)
    missing = specific(tmp_path, 1, 5)
    refused(manager, missing, code=Code.NOT_FOUND, match="version 5 .*found: 1")


def test_a_reload_that_takes_too_long_is_refused(tmp_path):
    add_version(tmp_path, 1)
    add_version(tmp_path, 2)
    loader = Gate("2")
    manager = ModelManager([specific(tmp_path, 1)], loader)
    settle(manager)
    with pytest.raises(ServingError, match="still being loaded") as raised:
        manager.reload([specific(tmp_path, 2)], timeout=0.1)
    assert raised.value.code is Code.DEADLINE_EXCEEDED
    assert answering(manager) == 1
    loader.hung["2"].set()
    wait_for(lambda: "2" in loader.loaded and loader.loaded["2"].is_closed)


def test_another_folder_with_the_same_version_numbers_is_loaded(tmp_path):
    add_version(tmp_path / "a", 1)
    add_version(tmp_path / "b", 1)
    manager = ModelManager([ModelConfig("m", str(tmp_path / "a"))], Loader())
    settle(manager)
    manager.reload([ModelConfig("m", str(tmp_path / "b"))], timeout=20)
    with manager.acquire("m") as served:
        assert served.loaded.path.parent.name == "b"


def test_a_label_moves_together_with_the_version_it_names(tmp_path):
    for number in (1, 2):
        add_version(tmp_path, number)
    first = specific(tmp_path, 1, version_labels={"stable": 1})
    manager = ModelManager([first], Loader())
    settle(manager)
    second = specific(tmp_path, 2, version_labels={"stable": 2})
    manager.reload([second], timeout=20)
    with manager.acquire("m", label="stable") as served:
        assert served.number == 2


def test_closing_does_not_wait_for_a_hung_load(tmp_path):
    add_version(tmp_path, 1)
    loader = Gate("1")
    manager = ModelManager([ModelConfig("m", str(tmp_path))], loader)
    manager.poll()
    wait_for(lambda: loader.begun)
    waiting = threading.Thread(target=manager.wait_until_ready)
    waiting.start()
    assert not manager.close(timeout=0.01)
    waiting.join(60)
    assert not waiting.is_alive()
    loader.hung["1"].set()
    assert manager.close(timeout=60)
    assert loader.loaded["1"].is_closed


def test_loads_unloads_and_reloads_are_logged(tmp_path, caplog):
    caplog.set_level("INFO", logger="estimax.serving")
    for number in (1, 2):
        add_version(tmp_path, number)
    manager = ModelManager([specific(tmp_path, 1)], Loader())
    settle(manager)
    manager.reload([specific(tmp_path, 2)], timeout=20)
    with pytest.raises(ServingError):
        manager.reload([specific(tmp_path, 9)], timeout=20)
    told = caplog.text
    assert "version 1 is ready" in told
    assert "version 1 is unloaded" in told
    assert "new configuration: m" in told
    assert "new configuration is refused" in told


def test_what_failed_while_the_disk_failed_is_tried_again_when_it_is_back(tmp_path):
    base = tmp_path / "models"
    add_version(base, 1)
    manager, loader = make(base, retries=0)
    loader.broken.add("1")
    settle(manager)
    base.rename(tmp_path / "away")
    settle(manager)
    loader.broken.clear()
    (tmp_path / "away").rename(base)
    settle(manager, lambda: states(manager) == {1: "AVAILABLE"})


def test_a_folder_that_hangs_blocks_neither_requests_nor_other_models(
    tmp_path, monkeypatch
):
    for name in ("a", "b"):
        add_version(tmp_path / name, 1)
    configs = [ModelConfig(n, str(tmp_path / n)) for n in ("a", "b")]
    manager = ModelManager(configs, Loader(), listing_seconds=0.05)
    settle(manager)
    is_back, listdir = threading.Event(), os.listdir

    def hang(path):
        if path == tmp_path / "a":
            assert is_back.wait(60)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", hang)
    for name in ("a", "b"):
        add_version(tmp_path / name, 2)
    settle(manager, lambda: answering(manager, "b") == 2)
    assert answering(manager, "a") == 1
    settle(manager, lambda: manager.models()["a"].listing_error)
    assert "the storage hangs" in str(manager.models()["a"].listing_error)
    with pytest.raises(ServingError, match="hangs") as raised:
        manager.reload(
            [ModelConfig("a", configs[0].base_path, VersionPolicy("all"))], timeout=0.05
        )
    assert raised.value.code is Code.DEADLINE_EXCEEDED
    threads = threading.active_count()
    settle(manager)
    assert threading.active_count() == threads  # one for the folder that hangs
    is_back.set()
    settle(manager, lambda: answering(manager, "a") == 2)
    assert manager.models()["a"].listing_error is None


def test_a_reload_tries_a_version_again_that_failed_before(tmp_path):
    add_version(tmp_path, 1)
    manager, loader = make(tmp_path, retries=0, policy=VersionPolicy("all"))
    settle(manager)
    loader.broken.add("2")
    add_version(tmp_path, 2)
    settle(manager, lambda: states(manager).get(2) == "END")
    loader.broken.clear()
    manager.reload([specific(tmp_path, 2)], timeout=20)
    assert answering(manager) == 2


def test_labels_move_while_a_newer_version_is_broken(tmp_path):
    for number in (1, 2):
        add_version(tmp_path, number)
    everything = VersionPolicy("all")
    manager, loader = make(tmp_path, policy=everything, labels={"stable": 1})
    settle(manager)
    loader.broken.add("3")
    add_version(tmp_path, 3)
    settle(manager)
    moved = ModelConfig("m", str(tmp_path), everything, {"stable": 2})
    manager.reload([moved], timeout=20)
    with manager.acquire("m", label="stable") as served:
        assert served.number == 2


def test_reloads_that_wait_are_few_and_keep_no_thread_from_others(tmp_path):
    add_version(tmp_path / "a", 1)
    add_version(tmp_path / "b", 2)
    loader = Gate("2")
    manager = ModelManager([ModelConfig("m", str(tmp_path / "a"))], loader)
    settle(manager)
    request = message("ReloadConfigRequest")()
    model = request.config.model_config_list.config.add()
    model.name, model.base_path = "m", str(tmp_path / "b")
    model.model_platform = "tensorflow"

    async def ask():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        service, sent = InferenceService(manager), []

        async def families():
            return []

        api = GrpcApi(service)
        rest = RestApp(service, ServerMetrics(), families=families)
        ways = [asyncio.create_task(api.reload_config(request, 20)) for _ in range(4)]
        while "2" not in loader.begun:
            await asyncio.sleep(0.001)

        async def send(event):
            sent.append(event)

        path = "/monitoring/prometheus/metrics"
        scope = {"type": "http", "method": "GET", "path": path, "headers": []}
        await asyncio.wait_for(rest(scope, None, send), 10)
        assert sent[0]["status"] == 200
        with pytest.raises(ServingError, match="4 other") as raised:
            await api.reload_config(request, 20)
        assert raised.value.code is Code.ABORTED
        loader.hung["2"].set()
        await asyncio.gather(*ways)
        await api.reload_config(request, 20)

    asyncio.run(ask())
    assert answering(manager) == 2


def test_a_reload_to_another_folder_leaves_no_moment_without_a_version(
    tmp_path, monkeypatch
):
    add_version(tmp_path / "a", 1)
    add_version(tmp_path / "b", 2)
    manager, _ = make(tmp_path / "a")
    settle(manager)
    seen, withdraw = [], StagedReload.withdraw

    def look(staged):  # called after the lock was free once
        seen.append(answering(manager))
        withdraw(staged)

    monkeypatch.setattr(StagedReload, "withdraw", look)
    manager.reload([ModelConfig("m", str(tmp_path / "b"))], timeout=20)
    assert seen == [2]


def test_more_failed_versions_than_are_listed_are_not_forgotten(tmp_path):
    for number in range(1, 31):
        add_version(tmp_path, number)
    manager, loader = make(tmp_path, policy=VersionPolicy("all"), retries=0)
    loader.broken.update(map(str, range(1, 31)))
    settle(manager, lambda: len(manager.versions("m")) == 30)
    add_version(tmp_path, 31)
    settle(manager, lambda: 31 in states(manager))
    assert answering(manager) == 31
    assert states(manager).keys() == set(range(1, 32))
    assert len(loader.served_meanwhile) == 31  # each was tried once
