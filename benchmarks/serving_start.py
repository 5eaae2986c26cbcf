"""Start a server for a benchmark, and end it.

    with serving(base, folder, with_grpc=True) as server:
        server.rest, server.grpc, server.process.pid

The server is on the loopback address, and its output goes to `folder/server.log`.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_SECONDS_TO_START = 180.0


@dataclass(frozen=True)
class Server:
    """A process that answers, and its ports."""

    process: subprocess.Popen[Any]
    rest: int
    grpc: int = 0


@contextlib.contextmanager
def serving(
    base: Path, folder: Path, *arguments: str, with_grpc: bool = False
) -> Iterator[Server]:
    """Serve the versions in `base` as the model "m", over REST and maybe gRPC."""
    rest, grpc = free_port(), free_port() if with_grpc else 0
    program = Path(sys.executable).parent / "estimax"
    command = [str(program), "serve", f"m={base}", "--host", "127.0.0.1"]
    command += ["--rest-api-port", str(rest), "--port", str(grpc), *arguments]
    path = folder / "server.log"
    with path.open("ab") as log, started(command, rest, log) as process:
        yield Server(process, rest, grpc)


@contextlib.contextmanager
def started(
    command: Sequence[str], port: int, log: IO[bytes] | None = None
) -> Iterator[subprocess.Popen[Any]]:
    """Run a program that serves REST until the block ends; enter it when it is ready.

    Args:
      command: The program and its arguments.
      port: The port on which it answers `/readyz`.
      log: Where its output goes; None for that of this process.
    """
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + _SECONDS_TO_START
        while not _is_ready(port):
            if process.poll() is not None or time.monotonic() > deadline:
                shown = "" if log is None else Path(log.name).read_text()
                raise SystemExit(f"the server did not start\n{shown}")
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


def _is_ready(port: int) -> bool:
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz"),
    ):
        return True
    return False


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
