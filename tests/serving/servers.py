"""Start real servers, in processes of their own, for tests."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import xla_flags

ESTIMAX = str(Path(sys.executable).parent / "estimax")


class RunningServer:
    """A server process and its two ports."""

    def __init__(self, process, rest_port, grpc_port, log, trusted=None):
        self.process = process
        self.rest_port = rest_port
        self.grpc_port = grpc_port
        self.log = log
        self._trusted = trusted  # the context of a client of TLS
        self._scheme = "http" if trusted is None else "https"

    def request(self, path, body=None, *, method=None, headers=None):
        """Send a request; return the status, the JSON or bytes, and the headers."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body)
        request = urllib.request.Request(
            f"{self._scheme}://127.0.0.1:{self.rest_port}{path}",
            data=data.encode() if isinstance(data, str) else data,
            method=method or ("GET" if body is None else "POST"),
            headers=headers or {},
        )
        try:
            with urllib.request.urlopen(
                request, timeout=60, context=self._trusted
            ) as response:
                return response.status, _decoded(response), response.headers
        except urllib.error.HTTPError as error:
            return error.code, _decoded(error), error.headers

    def stop(self):
        """Send SIGTERM; return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


def _decoded(response):
    data = response.read()
    if response.headers.get("Content-Encoding") == "gzip":
        data = gzip.decompress(data)
    if data and "json" in (response.headers.get("Content-Type") or ""):
        return json.loads(data)
    return data


@contextlib.contextmanager
def running_server(folder: Path, *arguments: str, trusted=None, until: str = "/readyz"):
    """Start `estimax serve` and wait until it answers 200 on a path."""
    rest_port, grpc_port = free_port(), free_port()
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                ESTIMAX,
                "serve",
                *("--host", "127.0.0.1", "--drain-delay", "0"),
                *arguments,
                *("--port", str(grpc_port), "--rest-api-port", str(rest_port)),
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "JAX_PLATFORMS": "cpu",
                "XLA_FLAGS": xla_flags.ONE_DEVICE,
            },
        )
    server = RunningServer(process, rest_port, grpc_port, log, trusted)
    try:
        _wait_until(server, until)
        yield server
    finally:
        process.kill()
        process.wait()


def _wait_until(server, path):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            break
        with contextlib.suppress(OSError):
            if server.request(path)[0] == 200:
                return
        time.sleep(0.1)
    raise AssertionError(f"the server did not start:\n{server.log.read_text()}")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
