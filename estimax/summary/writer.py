"""Event files for TensorBoard.

    with SummaryWriter(model_dir) as writer:
        writer.scalar("loss", 0.25, step=100)

A process has one open file per directory: writers of the same directory share it, and a
later one continues it. tensorboardX encodes; its own writer is left aside because its
`flush` does not wait for what is still queued.
"""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from estimax.summary.images import images_summary

FLUSH_SECONDS = 10.0
# Files that nobody uses at the moment, kept open for the next evaluation of the model.
MOST_IDLE = 8
_BUCKETS = 30  # as many as TensorBoard draws


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

    def scalar(self, name: str, value: ArrayLike, step: int) -> None:
        """Write one number."""
        from tensorboardX import summary

        self._write(summary.scalar(name, np.asarray(value, np.float64)), step)

    def histogram(self, name: str, values: ArrayLike, step: int) -> None:
        """Write the distribution of an array's finite values; none, and nothing is."""
        from tensorboardX import summary

        flat = np.asarray(values).astype(np.float64).reshape(-1)
        finite = flat[np.isfinite(flat)]
        if finite.size:
            self._write(summary.histogram(name, finite, _BUCKETS), step)

    def text(self, name: str, value: str, step: int) -> None:
        """Write a text, which TensorBoard renders as Markdown."""
        from tensorboardX import summary

        self._write(summary.text(name, value), step)

    def image(self, name: str, images: ArrayLike, step: int) -> None:
        """Write images [B, H, W, C], or one without B; C is 1, 3 or 4.

        Bytes are written as they are. Numbers are scaled image by image: without a
        negative one, so that the largest is white; else so that zero is grey.
        """
        self._write(images_summary(name, np.asarray(images)), step)

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

    def _write(self, proto: Any, step: int) -> None:
        if self._closed:
            raise ValueError(f"the SummaryWriter of {self.logdir} is closed.")
        if self._file is None:
            self._file = _acquire(self.logdir)
        self._file.write(proto, step)


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
    """One open file, written by tensorboardX, and how many writers use it."""

    def __init__(self, logdir: Path) -> None:
        from tensorboardX.event_file_writer import EventsWriter

        logdir.mkdir(parents=True, exist_ok=True)
        # Names hold the second and the host only: without a number, a file opened
        # within the same second would overwrite the one before.
        self._suffix = f".{os.getpid()}.{next(_numbers)}"
        self.logdir = logdir
        self.users = 0
        self._writer = EventsWriter(str(logdir / "events"), self._suffix)
        self._next_flush = time.monotonic() + FLUSH_SECONDS

    def write(self, proto: Any, step: int) -> None:
        from tensorboardX.proto import event_pb2

        event = event_pb2.Event(wall_time=time.time(), step=int(step), summary=proto)
        self._writer.write_event(event)
        if time.monotonic() >= self._next_flush:
            self.flush()

    def flush(self) -> None:
        self._next_flush = time.monotonic() + FLUSH_SECONDS
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

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
