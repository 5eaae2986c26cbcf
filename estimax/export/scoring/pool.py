"""Processes that score shards, each with the bundle loaded from disk by itself.

    with ScoringPool(4, {"bundle": path, "signature": None, "keep": []}) as pool:
        number, kind, value = pool.receive()        # 0, "ready", {…}
        pool.send(number, {"shard": …})

A process runs `worker.py`. It reads JSON lines from its standard input and writes JSON
lines to its standard output. It ends when its input is closed, so also if this process
is killed. Only light modules are imported here: the processes start at once, and load
jax while this one reads the input files.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import estimax
from estimax.core import errors
from estimax.core.errors import EstimaxError

_END_SECONDS = 10.0  # for a process to end after its input was closed


class ScoringError(EstimaxError, RuntimeError):
    """A scoring process has ended before its work was done.

    The shards that are complete stay. The same call continues with the others.
    """


class ScoringPool:
    """Processes of `worker.py`, and their messages."""

    def __init__(self, processes: int, setup: Mapping[str, Any]) -> None:
        self._messages: queue.Queue[tuple[int, dict[str, Any] | None]] = queue.Queue()
        environment = shared_environment(processes)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._listeners: list[threading.Thread] = []
        try:
            for number in range(processes):
                process = _start(environment)
                self._processes.append(process)
                listener = threading.Thread(
                    target=self._listen, args=(number, process), daemon=True
                )
                listener.start()
                self._listeners.append(listener)
                self.send(number, setup)
        except BaseException:
            self.close(at_once=True)
            raise

    def __enter__(self) -> ScoringPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *others: object) -> None:
        self.close(at_once=kind is not None)

    @property
    def size(self) -> int:
        """The number of processes."""
        return len(self._processes)

    def send(self, number: int, message: Mapping[str, Any]) -> None:
        """Send a message to a process."""
        pipe = self._processes[number].stdin
        assert pipe is not None
        # If the process has ended, `receive` says so.
        with contextlib.suppress(BrokenPipeError):
            pipe.write(json.dumps(message).encode() + b"\n")
            pipe.flush()

    def receive(self) -> tuple[int, str, Any]:
        """Return the next message: the number of the process, its kind, its content.

        Raises:
          EstimaxError, OSError: The process reports an error.
          ScoringError: The process has ended, or reports another error.
        """
        number, message = self._messages.get()
        if message is None:
            raise self._ended(number)
        ((kind, value),) = message.items()
        if kind == "error":
            raise _error(value)
        return number, kind, value

    def _listen(self, number: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if line.endswith(b"\n"):  # else the process was killed meanwhile
                    self._messages.put((number, json.loads(line)))
        self._messages.put((number, None))

    def _ended(self, number: int) -> ScoringError:
        process = self._processes[number]
        code = process.wait()
        if code < 0:
            name = signal.Signals(-code).name
            how = f"was killed by {name}"
            advice = (
                " If the machine ran out of memory, use fewer processes."
                if name == "SIGKILL"
                else ""
            )
        else:
            how, advice = f"ended with status {code}", " Its messages are above."
        return ScoringError(
            f"scoring process {number + 1} of {len(self._processes)} (process id "
            f"{process.pid}) {how}.{advice} The shards that are complete stay; run the "
            "same again to continue."
        )

    def close(self, *, at_once: bool = False) -> None:
        """End all processes; what they have not completed is lost.

        `at_once` does not wait for a process that is still starting.
        """
        for process in self._processes:
            assert process.stdin is not None
            if at_once:
                process.kill()
            with contextlib.suppress(OSError):
                process.stdin.close()
        for process in self._processes:
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for listener in self._listeners:
            listener.join()


def _start(environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # -P: as in a program that is installed, the working directory holds no modules.
        [sys.executable, "-P", "-m", "estimax.export.scoring.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        # A session of its own: Ctrl-C reaches this process only, which ends the others.
        start_new_session=True,
    )


def shared_environment(processes: int) -> dict[str, str]:
    """Return the environment of the processes, which share the processors."""
    # The same estimax, also if it is not installed.
    places = [str(Path(estimax.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    added = {"PYTHONPATH": os.pathsep.join(filter(None, places))}
    if processes > 1:
        threads = str(max(1, available_processors() // processes))
        defaults = {
            "NPROC": threads,  # of XLA on the CPU
            "OMP_NUM_THREADS": threads,  # of pyarrow
            # Otherwise the first process on a GPU takes three quarters of its memory.
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }
        added |= {n: v for n, v in defaults.items() if n not in os.environ}
    return {**os.environ, **added}


def available_processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _error(value: Mapping[str, Any]) -> Exception:
    """Return the error of a process: ours and those of the system as they are."""
    kind = getattr(errors, value["kind"], None)
    if isinstance(kind, type) and issubclass(kind, EstimaxError):
        return kind(value["message"])
    if "system" in value:  # such as a full disk
        return OSError(*value["system"])
    return ScoringError(
        f"a scoring process failed: {value['kind']}: {value['message']}\n"
        f"{value['traceback']}"
    )
