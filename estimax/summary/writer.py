"""Event files for TensorBoard.

    with SummaryWriter(model_dir) as writer:
        writer.scalar("loss", 0.25, step=100)

A process has one open file per directory: writers of the same directory share it, and a
later one continues it. Messages are tensorboardX's; its writer is left aside, because
its `flush` does not wait for what is queued and its checksums take milliseconds.
"""

from __future__ import annotations

import atexit
import itertools
import os
import socket
import struct
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from estimax.native import checksum
from estimax.summary.encoding import Message, encode

FLUSH_SECONDS = 10.0
# Files that nobody uses at the moment, kept open for the next evaluation of the model.
MOST_IDLE = 8


class SummaryWriter:
    """Writes scalars, histograms, images and texts to a directory.

    The file is made at the first write. It is flushed every ten seconds of writing, by
    `flush`, by `close` and when the process ends.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with SummaryWriter(folder) as writer:
    ...         writer.scalar("loss", 0.25, step=100)
    ...     len(os.listdir(folder))
    1
    """

    def __init__(self, logdir: str | os.PathLike[str]) -> None:
        self.logdir = Path(logdir).absolute()
        self._file: _EventFile | None = None
        self._closed = False

    def add(self, step: int, values: Iterable[tuple[str, str, Any]]) -> None:
        """Write several values as one event: (kind, name, value) each.

        Kinds are scalar, histogram, image and text, as the methods below.
        """
        messages = [m for value in values for m in encode(*value)]
        if messages:
            self._write(messages, step)

    def scalar(self, name: str, value: ArrayLike, step: int) -> None:
        """Write one number."""
        self.add(step, [("scalar", name, value)])

    def histogram(self, name: str, values: ArrayLike, step: int) -> None:
        """Write the distribution of an array's finite values; none, and nothing is."""
        self.add(step, [("histogram", name, values)])

    def image(self, name: str, images: ArrayLike, step: int) -> None:
        """Write images [B, H, W, C], or one without B; C is 1, 3 or 4.

        Bytes are written as they are. Numbers are scaled image by image: without a
        negative one, so that the largest is white; else so that zero is grey.
        """
        self.add(step, [("image", name, images)])

    def text(self, name: str, value: str, step: int) -> None:
        """Write a text, which TensorBoard renders as Markdown."""
        self.add(step, [("text", name, value)])

    def flush(self) -> None:
        """Put on disk what was written."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Flush; the file stays open for a later writer of the same directory."""
        if self._file is not None:
            _release(self._file)
            self._file = None
        self._closed = True

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, messages: list[Message], step: int) -> None:
        if self._closed:
            raise ValueError(f"the SummaryWriter of {self.logdir} is closed.")
        if self._file is None:
            self._file = _acquire(self.logdir)
        self._file.write(messages, step)


class Output:
    """Where a hook writes: a folder of which it opens a writer, or a writer of others.

    >>> Output(None, None).writer is None
    True
    """

    def __init__(
        self, logdir: str | os.PathLike[str] | None, writer: SummaryWriter | None
    ) -> None:
        self._logdir = logdir
        self.writer = writer

    def open(self) -> None:
        """Open the folder."""
        if self._logdir is not None:
            self.writer = SummaryWriter(self._logdir)

    def close(self) -> None:
        """Close what was opened here; a writer of others is flushed."""
        if self.writer is None:
            return
        if self._logdir is not None:
            self.writer.close()
        else:
            self.writer.flush()


def times_written(logdir: Path) -> int:
    """How often writers of this process have been closed on a folder (absolute).

    Tells a reader that there may be something new, for the price of a comparison.
    """
    return _times_written.get(logdir, 0)


class _EventFile:
    """One open file of records, and how many writers use it."""

    def __init__(self, logdir: Path) -> None:
        logdir.mkdir(parents=True, exist_ok=True)
        # The second and the host alone would not do: a file opened within the same
        # second would overwrite the one before.
        self._suffix = f".{os.getpid()}.{next(_numbers)}"
        name = f"{int(time.time()):010d}.{socket.gethostname()}{self._suffix}"
        self.logdir = logdir
        self.users = 0
        self._file = open(logdir / f"events.out.tfevents.{name}", "wb")  # noqa: SIM115
        self._next_flush = time.monotonic() + FLUSH_SECONDS
        self._write_event(file_version="brain.Event:2")

    def write(self, messages: list[Message], step: int) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        self._write_event(step=int(step), summary=Summary(value=messages))
        if time.monotonic() >= self._next_flush:
            self.flush()

    def flush(self) -> None:
        self._next_flush = time.monotonic() + FLUSH_SECONDS
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _write_event(self, **fields: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        data = Event(wall_time=time.time(), **fields).SerializeToString()
        length = struct.pack("<Q", len(data))
        crcs = map(checksum.masked_crc32c, (length, data))
        sums = [struct.pack("<I", crc) for crc in crcs]
        # In one piece: two threads may be writing.
        self._file.write(length + sums[0] + data + sums[1])

    def is_there(self) -> bool:
        """Whether nobody removed it: writing on would then be lost in silence."""
        return any(self.logdir.glob(f"events.out.tfevents.*{self._suffix}"))


_numbers = itertools.count()
_lock = threading.Lock()
_times_written: dict[Path, int] = {}
# Least recently used first. A forked child has its own, by process id.
_files: dict[tuple[int, Path], _EventFile] = {}


def _acquire(logdir: Path) -> _EventFile:
    key = (os.getpid(), logdir)
    with _lock:
        file = _files.pop(key, None)
        if file is not None and not file.is_there():
            if file.users == 0:
                file.close()
            file = None
        if file is None:
            file = _EventFile(logdir)
        _files[key] = file
        file.users += 1
        return file


def _release(file: _EventFile) -> None:
    with _lock:
        file.users -= 1
        file.flush()
        _times_written[file.logdir] = times_written(file.logdir) + 1
        if file not in _files.values():  # its folder was removed meanwhile
            if file.users == 0:
                file.close()
            return
        idle = [key for key, other in _files.items() if other.users == 0]
        for key in idle[: max(0, len(idle) - MOST_IDLE)]:
            _files.pop(key).close()


@atexit.register
def _close_all() -> None:
    for (pid, _), file in _files.items():
        if pid == os.getpid():
            file.close()
