"""Worker processes that exchange JSON messages with the process that started them.

    with WorkerPool("estimax.export.scoring.worker", 4) as pool:
        pool.send(0, {"shard": 3})
        number, message = pool.receive()     # 0, {"done": {"rows": 131072}}

    pipe = ParentPipe()                      # in the worker
    task = pipe.receive()
    pipe.send({"done": {"rows": 131072}})

A message is a line of JSON on the standard input or output of the worker. A worker ends
when its standard input is closed, so also if the process that started it is killed.
Only light modules are imported here: workers start at once, and load jax while the
process that started them goes on.
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

_END_SECONDS = 10.0  # for a worker to end after its standard input was closed


class WorkerPool:
    """Up to `size` processes that run a module; each starts with its first message.

    Args:
      module: The module that a worker runs as its main program.
      size: The number of workers, which are numbered from 0.
      finds_local_modules: Whether workers import modules from the working directory. In
        a program that is installed they do not.
    """

    def __init__(
        self, module: str, size: int, *, finds_local_modules: bool = False
    ) -> None:
        self.size = size
        options = () if finds_local_modules else ("-P",)
        self._command = [sys.executable, *options, "-m", module]
        self._environment = shared_environment(size)
        self._messages: queue.Queue[tuple[int, dict[str, Any] | None]] = queue.Queue()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._listeners: list[threading.Thread] = []

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *others: object) -> None:
        # After an error, do not wait for a worker that is still importing jax: it reads
        # its standard input only after that.
        self.close(at_once=kind is not None)

    def send(self, number: int, message: Mapping[str, Any]) -> None:
        """Send a message to a worker; start the worker if it does not run."""
        process = self._processes.get(number) or self._start(number)
        assert process.stdin is not None
        # If the worker has ended, `receive` says so.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()

    def receive(
        self, timeout: float | None = None
    ) -> tuple[int, dict[str, Any] | WorkerEnd]:
        """Wait for a message; return the number of the worker and the message.

        A worker that has ended gives a `WorkerEnd`. The next message to its number
        starts a new process.

        Raises:
          queue.Empty: No message came within `timeout` seconds.
        """
        number, message = self._messages.get(timeout=timeout)
        if message is not None:
            return number, message
        process = self._processes.pop(number)
        code = process.wait()
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # a message that nobody has read
            process.stdin.close()
        return number, WorkerEnd(process.pid, code)

    def close(self, *, at_once: bool = False) -> None:
        """End all workers; what they have not sent is lost.

        `at_once` kills them, and does not wait for one that is still starting.
        """
        for process in self._processes.values():
            assert process.stdin is not None
            if at_once:
                process.kill()
            with contextlib.suppress(OSError):
                process.stdin.close()
        for process in self._processes.values():
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for listener in self._listeners:
            listener.join()

    def forget(self) -> None:
        """Close the pipes in a forked process, so that it does not keep workers alive.

        The workers are those of the process that was forked. The pool must not be used
        any more.
        """
        for process in self._processes.values():
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    # Not `close`, which waits for a thread that reads the pipe: the
                    # fork has not copied the thread.
                    with contextlib.suppress(OSError):
                        os.close(pipe.fileno())
        self._processes.clear()

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environment,
            # A session of its own: Ctrl-C reaches this process only, which ends the
            # workers.
            start_new_session=True,
        )
        self._processes[number] = process
        listener = threading.Thread(
            target=self._listen, args=(number, process), daemon=True
        )
        listener.start()
        self._listeners.append(listener)
        return process

    def _listen(self, number: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if line.endswith(b"\n"):  # else the worker was killed meanwhile
                    self._messages.put((number, json.loads(line)))
        self._messages.put((number, None))


class WorkerEnd:
    """The end of a worker: its process id and exit status.

    Args:
      pid: The id of the process that has ended.
      status: Its exit status; the negative number of the signal that killed it.
    """

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.status = status

    @property
    def signal(self) -> str | None:
        """The name of the signal that killed the worker; None if none did."""
        return signal.Signals(-self.status).name if self.status < 0 else None


class ParentPipe:
    """The messages between this worker and the process that has started it.

    Make it once, first of all: from then on, what libraries print on standard output
    goes to standard error, so that only messages are in the pipe.
    """

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._messages: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def receive(self) -> dict[str, Any]:
        """Wait for the next message; the process ends if there are no more."""
        return self._messages.get()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; end this process if nobody reads it."""
        try:
            self._out.write(json.dumps(message) + "\n")
            self._out.flush()
        except BrokenPipeError:
            os._exit(1)

    def _listen(self) -> None:
        for line in sys.stdin:
            self._messages.put(json.loads(line))
        # At once, also in the middle of a task: the process that started this one has
        # ended or was killed, and another one may go on with the same files.
        os._exit(0)


def shared_environment(processes: int) -> dict[str, str]:
    """Return the environment of workers, which share the processors."""
    # The same estimax, also if it is not installed.
    places = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
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
