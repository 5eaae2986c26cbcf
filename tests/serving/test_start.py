"""A server that cannot start ends with the reason."""

import subprocess
import sys

import pytest

from estimax.serving import Code, ModelConfig, ServingError
from estimax.serving.manager import ModelManager
from estimax.serving.server import _check_labels


def test_a_failure_of_the_http_stack_ends_the_start(tmp_path):
    code = f"""
import uvicorn
from estimax.serving import ModelConfig, Server, ServerConfig

async def fail(self, sockets=None):
    raise OSError("the HTTP stack is broken")

uvicorn.Server.startup = fail
model = ModelConfig("m", {str(tmp_path)!r})
config = ServerConfig(models=(model,), host="127.0.0.1", rest_port=PORT, grpc_port=0)
Server(config).run()
"""
    from serving.servers import free_port

    done = subprocess.run(
        [sys.executable, "-c", code.replace("PORT", str(free_port()))],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert "OSError: the HTTP stack is broken" in done.stderr


def test_a_label_of_a_version_that_is_not_loaded_can_be_refused():
    manager = ModelManager([], load=None)
    _check_labels(manager, [ModelConfig("m", "/models/m")])
    config = ModelConfig("m", "/models/m", version_labels={"stable": 1})
    with pytest.raises(ServingError, match="label 'stable' is for version 1") as raised:
        _check_labels(manager, [config])
    assert raised.value.code is Code.FAILED_PRECONDITION
