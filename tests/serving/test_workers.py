"""Several workers on one port act as one server, and one that dies comes back."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import sys
import time

import grpc
import pytest
from serving.bundles import export_clicks
from serving.servers import running_server

from estimax.cli.serve_workers import Keeper
from estimax.serving import ModelConfig, Server, ServerConfig
from estimax.serving.config import models_from_json, models_to_json
from estimax.serving.protos import message
from estimax.serving.workers import Channel, ChannelError, WorkerLink

ROW = {"age": 1.5, "hours": 2, "city": "Oslo", "tags": ["a"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workers")
    shutil.copytree(export_clicks(folder / "exported"), folder / "clicks" / "1")
    return folder


def ask(server, name="clicks"):
    # A new connection each time, so that the kernel chooses a worker.
    return server.request(f"/v1/models/{name}:predict", {"instances": [ROW]})[0]


def reload(server, base, *names):
    request = message("ReloadConfigRequest")()
    for name in names:
        request.config.model_config_list.config.add(
            name=name, base_path=str(base), model_platform="tensorflow"
        )
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        run = channel.unary_unary(
            "/tensorflow.serving.ModelService/HandleReloadConfigRequest"
        )
        run(request.SerializeToString(), timeout=120)


def metric(server, pattern):
    try:
        text = server.request("/monitoring/prometheus/metrics")[1].decode()
    except OSError:  # the connection was that of a worker which has been killed
        return None
    found = re.search(rf"^{pattern} (\S+)$", text, re.MULTILINE)
    return None if found is None else float(found[1])


def workers_of(server):
    children = f"/proc/{server.process.pid}/task/{server.process.pid}/children"
    with open(children) as file:
        return [int(pid) for pid in file.read().split()]


def wait_for(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
def test_workers_share_configuration_metrics_and_come_back(folder):
    arguments = (f"clicks={folder / 'clicks'}", "--batch-sizes", "1")
    with running_server(folder, *arguments, "--workers", "2") as server:
        wait_for(lambda: metric(server, "estimax_workers") == 2)
        ok = ':tensorflow:serving:request_count{model_name="clicks",status="OK"}'
        for _ in range(20):
            assert ask(server) == 200
        assert metric(server, re.escape(ok)) == 20

        # A new configuration is that of all workers when the call returns.
        reload(server, folder / "clicks", "clicks", "other")
        assert {ask(server, "other") for _ in range(12)} == {200}

        # A configuration that is refused is that of none.
        with pytest.raises(grpc.RpcError):
            reload(server, folder / "none", "clicks", "third")
        assert {ask(server, "other") for _ in range(12)} == {200}

        before = metric(server, re.escape(ok))
        first, second = workers_of(server)
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: metric(server, "estimax_worker_restarts_total") == 1)
        wait_for(lambda: len(workers_of(server)) == 2)
        wait_for(
            lambda: (
                metric(server, r'process_open_fds{worker="0"}') is not None
                and metric(server, r'process_open_fds{worker="1"}') is not None
            )
        )
        # Counters do not fall, and the new worker has the new configuration.
        assert metric(server, re.escape(ok)) >= before
        os.kill(second, signal.SIGKILL)
        wait_for(lambda: metric(server, "estimax_worker_restarts_total") == 2)
        assert {ask(server, "other") for _ in range(12)} == {200}
        assert server.stop() == 0
    assert "worker 0 ended with status -9; starting it again" in server.log.read_text()


# Worker 0 takes a configuration and cannot go back; worker 1 refuses it.
WORKER = """
import asyncio, json, os, socket, sys
from estimax.cli.tf_serving_flags import WORKER
from estimax.serving.workers import Channel, ChannelError

index, descriptor = os.environ[WORKER].split(":")
told = open(sys.argv[1] + index, "a", buffering=1)

async def reload(request):
    print(json.dumps(request), file=told)
    if index == "0" and request["models"] == ["new"]:
        return ["before"]
    raise ChannelError("refused", 5)

async def run():
    sock = socket.socket(fileno=int(descriptor))
    channel = await Channel.open(sock, {"reload": reload})
    print(json.dumps(await channel.call("begin", timeout=60)), file=told)
    await channel.closed

asyncio.run(run())
"""


def test_a_worker_that_cannot_go_back_is_started_again(tmp_path):
    async def until(condition):
        while not condition():
            await asyncio.sleep(0.01)

    async def run():
        keeper = Keeper([sys.executable, "-c", WORKER, f"{tmp_path}/"], 2)
        running = asyncio.create_task(keeper.run())
        try:
            await until(lambda: len(keeper._channels()) == 2)
            first = keeper._workers[0].process
            with pytest.raises(ChannelError, match="refused"):
                await keeper._reload({"models": ["new"], "seconds": 0.01})
            await until(lambda: len(keeper._channels()) == 2 and keeper._restarts)
            assert keeper._workers[0].process is not first
        finally:
            keeper._pass_on(signal.SIGTERM)
            await running
        return (tmp_path / "0").read_text().splitlines()

    told = list(map(json.loads, asyncio.run(asyncio.wait_for(run(), 100))))
    assert told[:2] == [None, {"models": ["new"], "seconds": 0.01}]
    assert told[2]["models"] == ["before"]
    assert told[2]["seconds"] >= 60  # the client's few seconds are not for this
    assert told[3:] in ([None], [])  # started again, with the models in force


def test_a_worker_that_begins_again_waits_for_the_models_of_the_others(tmp_path):
    """Their folder is away for a moment: it does not serve those at the start."""
    (tmp_path / "first").mkdir()
    config = ServerConfig(models=(ModelConfig("first", str(tmp_path / "first")),))
    current = [ModelConfig("current", str(tmp_path / "away"))]

    async def run():
        ours, theirs = socket.socketpair()

        async def begin(_):
            return models_to_json(current)

        keeper = await Channel.open(ours, {"begin": begin})
        server = Server(config, WorkerLink(0, theirs))
        try:
            await asyncio.wait_for(server._join_workers(), 60)
            assert list(server.manager.models()) == ["current"]
            server.manager.poll()
            assert server.manager.models()["current"].listing_error is not None
            # And from here on they can be replaced.
            asked = {"models": models_to_json([]), "seconds": 10}
            before = await keeper.call("reload", asked, timeout=60)
            assert models_from_json(before) == tuple(current)
        finally:
            keeper.close()
            await server._keeper_gone
            server._link._channel.close()
            await keeper.closed
            server.manager.close()
            server._scheduler.close()

    asyncio.run(asyncio.wait_for(run(), 100))


def test_a_mistake_ends_all_workers(folder):
    import subprocess

    from serving.servers import ESTIMAX

    done = subprocess.run(
        [
            *(ESTIMAX, "serve", f"clicks={folder / 'clicks'}", "--workers", "2"),
            *("--ssl-key", "none.pem", "--ssl-certificate", "none.pem"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert "none.pem cannot be read" in done.stderr
    assert "Traceback" not in done.stderr
