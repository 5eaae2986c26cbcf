"""A sample of the requests and their answers, as JSON lines in rotating files.

    log = RequestLog("requests.jsonl", rate=0.01)
    log.record(answer, columns)

A line has the time, the model, its version and signature, and `inputs`, which can be
sent again as the body of a request, with the `outputs` that were answered. Of a large
request, a line has the first rows, and in `rows` how many there were. A thread converts
and writes them, so that no request waits for it. If the disk is full or slow, lines are
left out and counted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from estimax.core.errors import ConfigError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.streams.columns import slice_rows
from estimax.serving import json_bodies
from estimax.serving.inference import Answer, RequestColumns
from estimax.serving.requests import PendingRows

_log = logging.getLogger("estimax.serving")
_MOST_ROWS: Final = 100  # of a request, in its line
_MOST_WAITING: Final = 100  # requests that have not been written yet
_CLOSE_SECONDS: Final = 10.0  # to write what waits, at the end
_LOG_SECONDS: Final = 60.0  # a line about lost requests at most this often
_Recorded = tuple[float, Answer, RequestColumns]  # when


class RequestLog:
    """Writes some of the requests that were answered.

    Args:
      path: The file. Older ones have a number after the name.
      rate: The part of the requests that is written, from 0 to 1.
      max_bytes: A new file is begun when the file is this large.
      files: How many older files are kept.
      on_lost: Called for every request that could not be written.

    Raises:
      ConfigError: The rate is not in [0, 1], or the file cannot be written.
    """

    def __init__(
        self,
        path: str,
        rate: float,
        *,
        max_bytes: int = 100 * 1024 * 1024,
        files: int = 5,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        if not 0 <= rate <= 1:
            raise ConfigError(f"request log: expected a rate in [0, 1], found {rate}.")
        self._rate = rate
        self._on_lost = on_lost
        self._said = -_LOG_SECONDS  # when losses were last logged
        self._lost = 0  # since then
        try:
            self._file = _RotatingFile(Path(path), max_bytes, files)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}.") from None
        self._waiting: queue.Queue[_Recorded | None] = queue.Queue(_MOST_WAITING)
        self._writer = threading.Thread(
            target=self._write, name="request-log", daemon=True
        )
        self._writer.start()

    def record(self, answer: Answer, columns: RequestColumns) -> None:
        """Write a request soon, or not, at random."""
        if random.random() >= self._rate:
            return
        try:
            self._waiting.put_nowait((time.time(), answer, columns))
        except queue.Full:
            self._lose("the disk is too slow")

    def close(self) -> None:
        """Write what waits, if that does not take long, and close the file."""
        deadline = time.monotonic() + _CLOSE_SECONDS
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=_CLOSE_SECONDS)
        self._writer.join(max(deadline - time.monotonic(), 0.0))
        if self._writer.is_alive():  # it uses the file
            count = self._waiting.qsize()
            _log.error("request log: %d requests not written: the disk hangs", count)
            return
        self._file.close()

    def _write(self) -> None:
        while (recorded := self._waiting.get()) is not None:
            try:
                self._file.write(_line(*recorded))
            except Exception as error:  # a full disk must not end the log for ever
                self._lose(str(error))

    def _lose(self, why: str) -> None:
        self._on_lost()
        self._lost += 1
        now = time.monotonic()
        if now - self._said >= _LOG_SECONDS:
            _log.error("request log: %d requests not written: %s", self._lost, why)
            self._said, self._lost = now, 0


class _RotatingFile:
    """Whole lines in a file; when it is large, it is renamed and a new one begun."""

    def __init__(self, path: Path, max_bytes: int, files: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._files = files
        self._descriptor = self._open()

    def write(self, line: bytes) -> None:
        """Append a line; raise OSError if it does not fit, and leave none of it."""
        size = os.fstat(self._descriptor).st_size
        if size and size + len(line) > self._max_bytes:
            self._rotate()
            size = 0
        written = 0
        try:
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, size)
            raise

    def close(self) -> None:
        os.close(self._descriptor)

    def _open(self) -> int:
        # Readable by the group, as log files are; requests may be confidential.
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)

    def _rotate(self) -> None:
        for number in range(self._files, 0, -1):
            older = f"{self._path}.{number - 1}" if number > 1 else str(self._path)
            if os.path.exists(older):
                os.replace(older, f"{self._path}.{number}")
        descriptor = self._open()
        os.close(self._descriptor)
        self._descriptor = descriptor


def _line(at: float, answer: Answer, columns: RequestColumns) -> bytes:
    rows = min(answer.rows, _MOST_ROWS)
    if isinstance(columns, PendingRows):
        columns = columns.slice_rows(0, rows).by_name()
    line = {
        "time": at,
        "model": answer.model,
        "version": answer.version,
        "signature_name": answer.signature,
        "rows": answer.rows,
        "inputs": _first_rows(columns, rows),
        "outputs": _first_rows(answer.outputs, rows),
    }
    return json_bodies.dumps(line, is_finite=False) + b"\n"


def _first_rows(columns: Mapping[str, Any], rows: int) -> dict[str, Any]:
    return {name: _plain(slice_rows(v, 0, rows)) for name, v in columns.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Sparse):
        return _rows(value)
    if isinstance(value, Strings):
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and value.dtype == object:
        return json_bodies.texts_json(value, is_bytes=False)
    return value


def _rows(value: Sparse) -> Any:
    """Return the values of every row of a sparse feature."""
    return [_plain(value.rows(i, i + 1).values) for i in range(len(value))]
