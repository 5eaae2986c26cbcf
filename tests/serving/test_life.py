"""A real server process: health follows the models, rollbacks, reloads and its end."""

import http.client
import json
import logging
import shutil
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from serving.bundles import export_clicks
from serving.servers import free_port, running_server
from serving.test_manager import Loaded, add_version, settle

from estimax.serving.config import BatchingConfig, ModelConfig
from estimax.serving.manager import ModelManager
from estimax.serving.protos import message
from estimax.serving.server import learned_shapes
from estimax.serving.threads import LoadStoppedError, StopSignal
from estimax.serving.versions import compile_in_child

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return export_clicks(tmp_path_factory.mktemp("exported"))


def publish(exported, base, number):
    base.mkdir(exist_ok=True)
    shutil.copytree(exported, base / "temporary")
    (base / "temporary").rename(base / str(number))


def wait_for(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Client:
    """Asks a server for its health, its version, and for another configuration."""

    def __init__(self, server, channel):
        self.server = server
        self._channel = channel
        self.health = health_pb2_grpc.HealthStub(channel)

    def serves(self, service=""):
        request = health_pb2.HealthCheckRequest(service=service)
        return self.health.Check(request, timeout=60).status == SERVING

    def is_ready(self):
        return self.server.request("/readyz")[0] == 200

    def agrees(self, *, is_ready):
        return (self.is_ready(), self.serves(), self.serves("clicks")) == (
            is_ready,
        ) * 3

    def version(self, name="clicks"):
        path = f"/v1/models/{name}/metadata"
        status, found, _ = self.server.request(path)
        return int(found["model_spec"]["version"]) if status == 200 else None

    def reload(self, **models):
        request = message("ReloadConfigRequest")()
        for name, (base, *versions) in models.items():
            config = request.config.model_config_list.config.add()
            config.name, config.base_path = name, str(base)
            config.model_version_policy.specific.versions.extend(versions)
        self._channel.unary_unary(
            "/tensorflow.serving.ModelService/HandleReloadConfigRequest",
            request_serializer=lambda r: r.SerializeToString(),
        )(request, timeout=120)


def test_health_answers_and_reloads_during_the_life_of_a_server(tmp_path, exported):
    (tmp_path / "clicks").mkdir()
    models = tmp_path / "models.yaml"
    write_models(models, clicks={})
    arguments = ("--model-config-file", str(models), "--batch-sizes", "1")
    arguments += ("--file_system_poll_wait_seconds", "0.1", "--drain-delay", "600")
    with (
        running_server(tmp_path, *arguments, until="/livez") as running,
        grpc.insecure_channel(f"127.0.0.1:{running.grpc_port}") as channel,
    ):
        client = Client(running, channel)
        health_of_an_empty_server_follows_its_first_version(client, exported)
        a_deleted_version_is_rolled_back(client, exported)
        a_reload_answers_when_it_holds_and_changes_nothing_when_refused(
            client, exported
        )
        a_file_of_models_is_applied_or_refused_as_a_whole(client, models)
        a_server_that_drains_tells_probes_and_closes_connections(client)


def write_models(path, **policies):
    """Write a file of models whose folders are beside it."""
    models = [
        {
            "name": name,
            "base_path": str(path.parent / name),
            "model_version_policy": policy,
        }
        for name, policy in policies.items()
    ]
    temporary = path.with_suffix(".temporary")
    temporary.write_text(json.dumps({"model_config_list": {"config": models}}))
    temporary.rename(path)


def health_of_an_empty_server_follows_its_first_version(client, exported):
    base = client.server.log.parent / "clicks"
    assert client.agrees(is_ready=False)
    request = health_pb2.HealthCheckRequest(service="clicks")
    watched = client.health.Watch(request, timeout=120)
    assert next(watched).status == NOT_SERVING
    publish(exported, base, 1)
    assert next(watched).status == SERVING
    assert client.agrees(is_ready=True)
    watched.cancel()
    with pytest.raises(grpc.RpcError) as raised:
        client.serves("unknown")
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND


def a_deleted_version_is_rolled_back(client, exported):
    base = client.server.log.parent / "clicks"
    publish(exported, base, 2)
    wait_for(lambda: client.version() == 2)
    shutil.rmtree(base / "2")
    wait_for(lambda: client.version() == 1)
    assert client.agrees(is_ready=True)


def a_reload_answers_when_it_holds_and_changes_nothing_when_refused(client, exported):
    folder = client.server.log.parent
    publish(exported, folder / "clicks", 3)
    publish(exported, folder / "other", 5)
    for number in (3, 1, 3):
        client.reload(clicks=(folder / "clicks", number))
        assert client.version() == number
    client.reload(clicks=(folder / "clicks", 3), other=(folder / "other", 5))
    assert client.serves("other")
    assert client.version("other") == 5
    with pytest.raises(grpc.RpcError, match="version 6") as raised:
        client.reload(clicks=(folder / "clicks", 1), other=(folder / "other", 6))
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND
    assert (client.version(), client.version("other")) == (3, 5)
    assert client.agrees(is_ready=True)
    client.reload(clicks=(folder / "clicks", 3))
    with pytest.raises(grpc.RpcError):
        client.serves("other")


def a_file_of_models_is_applied_or_refused_as_a_whole(client, models):
    log = client.server.log
    write_models(models, clicks={"specific": {"versions": [1, 9]}}, other={"all": {}})
    wait_for(lambda: "expected version 9" in log.read_text())
    assert (client.version(), client.version("other")) == (3, None)
    assert client.agrees(is_ready=True)
    write_models(models, clicks={"specific": {"versions": [1]}}, other={"all": {}})
    wait_for(lambda: client.version() == 1)
    assert client.version("other") == 5


def a_server_that_drains_tells_probes_and_closes_connections(client):
    server = client.server
    with server.log.open() as log:
        kept = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)
        kept.request("GET", "/v1/models/clicks")
        answer = kept.getresponse()
        assert answer.read()
        assert answer.getheader("Connection") != "close"
        server.process.terminate()
        wait_for(lambda: not client.is_ready())
        assert client.agrees(is_ready=False)
        kept.request("GET", "/v1/models/clicks")
        answer = kept.getresponse()
        assert answer.status == 200
        assert answer.read()
        assert answer.getheader("Connection") == "close"
        assert client.version() == 1  # over a new connection
        told = log.read()
    assert "version 2 is unloaded" in told
    assert "new configuration is refused" in told


def test_sigterm_waits_for_no_load_and_for_no_watcher(tmp_path, exported):
    publish(exported, tmp_path / "clicks", 1)
    sizes = ",".join(map(str, range(1, 400)))  # minutes, without a cache
    arguments = (f"clicks={tmp_path / 'clicks'}", "--batch-sizes", sizes)
    arguments += ("--compilation-cache-dir", "", "--shutdown-grace", "500")
    with (
        running_server(tmp_path, *arguments, until="/livez") as running,
        grpc.insecure_channel(f"127.0.0.1:{running.grpc_port}") as channel,
    ):
        wait_for(lambda: "loading version 1" in running.log.read_text())
        watched = Client(running, channel).health.Watch(
            health_pb2.HealthCheckRequest(), timeout=600, wait_for_ready=True
        )
        assert next(watched).status == NOT_SERVING
        assert running.stop() == 0
        assert list(watched) == []  # ended without an error
        assert "version 1 is ready" not in running.log.read_text()


def test_a_child_that_compiles_is_killed_when_the_load_stops(tmp_path, exported):
    stop = StopSignal()
    before = set(subprocess._active)
    timer = threading.Timer(0.1, stop.stop)
    timer.start()
    with pytest.raises(LoadStoppedError):
        compile_in_child(exported, BatchingConfig(batch_sizes=(1,)), stop)
    assert set(subprocess._active) == before  # it was waited for


def test_a_child_takes_more_shapes_than_fit_into_an_argument(exported, caplog):
    shapes = [{f"feature {i}": (1, i)} for i in range(10_000)]  # fit no argument
    assert len(json.dumps(shapes)) > 131_072
    with caplog.at_level(logging.INFO, "estimax.serving"):
        compile_in_child(
            exported, BatchingConfig(batch_sizes=(1,)), StopSignal(), shapes
        )
    assert not caplog.messages


def test_without_a_child_the_load_goes_on(exported, caplog, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))  # there is no `nice`
    compile_in_child(exported, BatchingConfig(batch_sizes=(1,)), StopSignal())
    assert "No such file or directory: 'nice'" in caplog.text


def test_shapes_are_learned_from_the_same_folder_and_once(tmp_path):
    configs = []
    for name in ("a", "b"):  # each is a single bundle, and they are neighbours
        add_version(tmp_path, name)
        configs += [ModelConfig(name + n, str(tmp_path / name)) for n in "12"]

    def load(path, *_):
        loaded = Loaded(path)
        shapes = [{"x": (1, ord(path.name))}, {"x": (2, 3)}]
        loaded.programs = SimpleNamespace(learned=lambda: shapes)
        return loaded

    manager = ModelManager(configs, load)
    try:
        settle(manager)
        found = learned_shapes(manager, tmp_path / "b")
        assert found == [{"x": (1, ord("b"))}, {"x": (2, 3)}]
        assert len(learned_shapes(manager, tmp_path / "b" / "2")) == 2
        assert learned_shapes(manager, tmp_path / "c") == []
    finally:
        manager.close()


@pytest.mark.slow
def test_a_load_that_hangs_does_not_keep_the_server_from_ending(tmp_path, exported):
    publish(exported, tmp_path / "clicks", 1)
    code = f"""
import sys, threading
from estimax.cli.main import main
from estimax.serving import server
server.load_version = lambda *_: threading.Event().wait()  # a disk that hangs
sys.argv = ["estimax", "serve", "clicks={tmp_path / "clicks"}", "--port", "0",
    "--rest-api-port", "{free_port()}", "--drain-delay", "0", "--shutdown-grace", "1"]
main()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True
    )
    line = ""
    while "REST on port" not in line:
        line = process.stderr.readline()
        assert line
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.slow
def test_a_child_that_compiles_ends_with_the_server(exported):
    command = [sys.executable, "-m", "estimax.serving.precompile", str(exported)]
    sizes = json.dumps({"batch_sizes": list(range(1, 400))})
    child = subprocess.Popen(
        [*command, sizes], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    _, told = child.communicate(b"[]\n", timeout=120)
    assert (child.returncode, told) == (1, b"")
