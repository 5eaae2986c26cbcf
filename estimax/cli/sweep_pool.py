"""Processes that train the trials of a sweep, one trial each at a time.

    with TrialPool(2) as pool:
        pool.start(trial=0, task={…})
        trial, kind, value = pool.receive()       # 0, "done", {…}

A process that has ended fails its trial; the next trial starts a new one.
"""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from estimax.export.scoring.pool import shared_environment

_END_SECONDS = 10.0  # for a process to end after its input was closed


class TrialPool:
    """Up to `processes` processes of `sweep_worker.py`."""

    def __init__(self, processes: int) -> None:
        self._size = processes
        self._idle: list[subprocess.Popen[bytes]] = []
        self._busy: dict[int, subprocess.Popen[bytes]] = {}  # by trial
        self._answers: queue.Queue[tuple[int, dict[str, Any] | None]] = queue.Queue()

    def __enter__(self) -> TrialPool:
        return self

    def __exit__(self, *error: object) -> None:
        for process in [*self._idle, *self._busy.values()]:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()

    @property
    def has_room(self) -> bool:
        """Whether another trial may be started."""
        return len(self._busy) < self._size

    @property
    def is_busy(self) -> bool:
        """Whether a trial is being trained."""
        return bool(self._busy)

    def start(self, trial: int, task: Mapping[str, Any]) -> None:
        """Train a trial in a process that has nothing to do."""
        process = self._idle.pop() if self._idle else self._new()
        self._busy[trial] = process
        assert process.stdin is not None
        # If the process has ended, `receive` says so.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(task).encode() + b"\n")
            process.stdin.flush()
        listener = threading.Thread(
            target=self._listen, args=(trial, process), daemon=True
        )
        listener.start()

    def receive(self) -> tuple[int, str, dict[str, Any]]:
        """Wait for a trial to end; return its number, "done" or "failed", and more."""
        trial, answer = self._answers.get()
        process = self._busy.pop(trial)
        if answer is not None:
            self._idle.append(process)
            ((kind, value),) = answer.items()
            return trial, kind, value
        code = process.wait()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else "ended"
        return trial, "failed", {"error": f"the process of the trial {how} ({code})"}

    def _listen(self, trial: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        line = process.stdout.readline()
        whole = line.endswith(b"\n")  # else the process was killed meanwhile
        self._answers.put((trial, json.loads(line) if whole else None))

    def _new(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "estimax.cli.sweep_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=shared_environment(self._size),
            # A session of its own: Ctrl-C reaches the sweep only, which ends them.
            start_new_session=True,
        )
