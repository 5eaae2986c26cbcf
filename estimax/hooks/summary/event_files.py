"""Write event files for TensorBoard, and read their scalars.

    with SummaryWriter(model_dir) as writer:
        writer.scalar("loss", 0.25, step=100)
    read_scalars(eval_dir)["accuracy"]      # [(100, 0.91), (200, 0.93)]

A process has one open file per directory: writers of the same directory share it, and a
later writer continues it. The messages are those of tensorboardX. Its writer is not
used, because its `flush` does not wait for queued events and its checksums take
milliseconds.

An event file is a sequence of records (length, checksum, data, checksum), each an
`Event` message. Checksums are written, and not verified.
"""

from __future__ import annotations

import atexit
import itertools
import os
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from estimax.hooks.summary.encoding import Message, encode, encode_hparams
from estimax.native import checksum

FLUSH_SECONDS = 10.0
# How many files without a writer are kept open, for the next evaluation of the model.
MOST_IDLE = 8


class SummaryWriter:
    """Writes scalars, histograms, images, sounds and more to an event file.

    Use it in hooks and in programs of your own; inside a `model_fn`, use
    `ex.summary.scalar` and its siblings. The file is created at the first write. It is
    flushed by writes every ten seconds, by `flush`, by `close`, and when the process
    ends. Use it as a context manager to close it.

    Args:
      logdir: The directory to write to, created if it does not exist.

    Example:
      >>> import tempfile
      >>> from estimax.summary import read_scalars
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     with SummaryWriter(folder) as writer:
      ...         writer.scalar("loss", 0.25, step=100)
      ...     read_scalars(folder)
      {'loss': [(100, 0.25)]}
    """

    def __init__(self, logdir: str | os.PathLike[str]) -> None:
        self.logdir = Path(logdir).absolute()
        self._file: _EventFile | None = None
        self._closed = False

    def add(self, step: int, values: Iterable[tuple[str, str, Any]]) -> None:
        """Write several values as one event.

        Args:
          step: The training step of the values.
          values: `(kind, name, value)` for each. The kinds are "scalar", "histogram",
            "image", "text", "pr_curve" and, for a rate of 16000, "audio/16000"; see the
            methods of these names.

        Raises:
          ValueError: A kind is unknown, or the writer is closed.
        """
        messages = [m for value in values for m in encode(*value)]
        if messages:
            self._open().write(messages, step)

    def scalar(self, name: str, value: ArrayLike, step: int) -> None:
        """Write one number.

        Args:
          name: The tag in TensorBoard. Characters other than letters, digits and `-_./`
            become `_`.
          value: The number, as a Python number or an array of one value.
          step: The training step.
        """
        self.add(step, [("scalar", name, value)])

    def histogram(self, name: str, values: ArrayLike, step: int) -> None:
        """Write the distribution of the finite values of an array.

        Nothing is written if there are none.

        Args:
          name: The tag in TensorBoard.
          values: An array of any shape.
          step: The training step.
        """
        self.add(step, [("histogram", name, values)])

    def image(self, name: str, images: ArrayLike, step: int) -> None:
        """Write images.

        uint8 is written unchanged. Other numbers are scaled to 0…255, each image by
        itself: the largest becomes white, and zero black, or grey if there are negative
        numbers.

        Args:
          name: The tag in TensorBoard.
          images: Images [B, H, W, C], or one [H, W, C], with 1, 3 or 4 channels.
          step: The training step.

        Raises:
          ValueError: `images` has another shape.
        """
        self.add(step, [("image", name, images)])

    def audio(self, name: str, sounds: ArrayLike, sample_rate: int, step: int) -> None:
        """Write sounds, as WAV files of 16 bits.

        Args:
          name: The tag in TensorBoard.
          sounds: Samples within [-1, 1], [B, T] or [B, T, C] for C channels.
          sample_rate: Samples per second.
          step: The training step.

        Raises:
          ValueError: `sounds` has another shape.
        """
        self.add(step, [(f"audio/{int(sample_rate)}", name, sounds)])

    def pr_curve(self, name: str, counts: ArrayLike, step: int) -> None:
        """Write a precision-recall curve.

        `evaluate` does this for binary models. TensorBoard shows precision, recall and
        the four counts of every threshold.

        Args:
          name: The tag in TensorBoard.
          counts: True positives, false positives, true negatives and false negatives,
            [4, T], at T evenly spaced thresholds from 0 to 1.
          step: The training step.

        Raises:
          ValueError: `counts` has another shape.
        """
        self.add(step, [("pr_curve", name, counts)])

    def hparams(self, values: Mapping[str, Any]) -> None:
        """Write the hyper-parameters of a run, for TensorBoard's table of runs.

        `train` does this for `Estimator.params`, and `estimax train` for the run file.
        Give TensorBoard the folder above several runs to compare them.

        Args:
          values: Hyper-parameters by name: numbers, booleans, text. Other values are
            written as text, and None is left out.
        """
        self._open().write(encode_hparams(values), 0)

    def graph(self, graph_def: bytes) -> None:
        """Write the graph of a model.

        Args:
          graph_def: A serialized `GraphDef` message of TensorFlow.
        """
        self._open().write_event(graph_def=graph_def)

    def restart(self, step: int) -> None:
        """Mark that events from a step on are written again.

        Earlier events of this step and of later ones, which a run wrote before it was
        killed, are then hidden by TensorBoard and left out by `read_scalars`.

        Args:
          step: The first step that will be written again.
        """
        from tensorboardX.proto.event_pb2 import SessionLog

        start = SessionLog(status=SessionLog.SessionStatus.Value("START"))
        for _ in range(2):  # TensorBoard takes the first mark of a folder as a start
            self._open().write_event(step=int(step), session_log=start)

    def text(self, name: str, value: str, step: int) -> None:
        """Write a text, which TensorBoard renders as Markdown.

        Args:
          name: The tag in TensorBoard.
          value: The text.
          step: The training step.
        """
        self.add(step, [("text", name, value)])

    def flush(self) -> None:
        """Write what is buffered to the file."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Flush and end writing; a later writer of the directory continues the file."""
        if self._file is not None:
            _release(self._file)
            self._file = None
        self._closed = True

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return f"SummaryWriter({str(self.logdir)!r}{closed})"

    def _open(self) -> _EventFile:
        if self._closed:
            raise ValueError(f"SummaryWriter: the writer of {self.logdir} is closed.")
        if self._file is None:
            self._file = _acquire(self.logdir)
        return self._file


class Output:
    """Where a hook writes summaries: to a directory, or to a writer that it was given.

    Use it in hooks that take both `output_dir` and `summary_writer`. A writer that
    `open` created is closed by `close`; a given writer is only flushed.

    Args:
      logdir: The directory to write to, or None.
      writer: The writer to use if `logdir` is None, or None to write nothing.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     output = Output(folder, None)
      ...     output.open()
      ...     output.writer.scalar("loss", 0.25, step=100)
      ...     output.close()
      >>> Output(None, None).writer is None
      True
    """

    def __init__(
        self, logdir: str | os.PathLike[str] | None, writer: SummaryWriter | None
    ) -> None:
        self._logdir = logdir
        self.writer = writer

    def __repr__(self) -> str:
        return f"Output({self.writer or self._logdir!r})"

    def open(self) -> None:
        """Create a writer for the directory, if one was given."""
        if self._logdir is not None:
            self.writer = SummaryWriter(self._logdir)

    def close(self) -> None:
        """Close the writer that `open` created; flush a writer that was given."""
        if self.writer is None:
            return
        if self._logdir is not None:
            self.writer.close()
        else:
            self.writer.flush()


def times_written(logdir: Path) -> int:
    """Return how often writers of a directory have been closed in this process.

    Readers compare it with an earlier count, to read event files again only if there
    may be something new.

    Args:
      logdir: The absolute path of the directory.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     with SummaryWriter(folder) as writer:
      ...         writer.scalar("loss", 0.25, step=100)
      ...     times_written(Path(folder))
      1
    """
    return _times_written.get(logdir, 0)


class _EventFile:
    """One open event file, and the number of writers that use it."""

    def __init__(self, logdir: Path) -> None:
        logdir.mkdir(parents=True, exist_ok=True)
        # The time and the host are not enough: a file opened within the same second
        # would overwrite the one before.
        self._suffix = f".{os.getpid()}.{next(_numbers)}"
        name = f"{int(time.time()):010d}.{socket.gethostname()}{self._suffix}"
        self.logdir = logdir
        self.users = 0
        self._file = open(logdir / f"events.out.tfevents.{name}", "wb")  # noqa: SIM115
        self._next_flush = time.monotonic() + FLUSH_SECONDS
        self.write_event(file_version="brain.Event:2")

    def write(self, messages: list[Message], step: int) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        self.write_event(step=int(step), summary=Summary(value=messages))
        if time.monotonic() >= self._next_flush:
            self.flush()

    def flush(self) -> None:
        self._next_flush = time.monotonic() + FLUSH_SECONDS
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def write_event(self, **fields: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        data = Event(wall_time=time.time(), **fields).SerializeToString()
        length = struct.pack("<Q", len(data))
        crcs = map(checksum.masked_crc32c, (length, data))
        sums = [struct.pack("<I", crc) for crc in crcs]
        # One call for the whole record, because two threads may be writing.
        self._file.write(length + sums[0] + data + sums[1])

    def is_there(self) -> bool:
        """Return whether the file still exists; writes to a removed file are lost."""
        return any(self.logdir.glob(f"events.out.tfevents.*{self._suffix}"))


_numbers = itertools.count()
_lock = threading.Lock()
_times_written: dict[Path, int] = {}
# By process id and directory, because a forked child must not share files with its
# parent. The least recently used file comes first.
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
        if file not in _files.values():  # the folder was removed meanwhile
            if file.users == 0:
                file.close()
            return
        idle = [key for key, other in _files.items() if other.users == 0]
        for key in idle[: max(0, len(idle) - MOST_IDLE)]:
            _files.pop(key).close()


def flush_all() -> None:
    """Write what all event files of this process have buffered."""
    with _lock:
        for file in _own_files():
            file.flush()


@atexit.register
def _close_all() -> None:
    for file in _own_files():
        file.close()


def _own_files() -> list[_EventFile]:
    """Return the open files of this process, without those of a parent."""
    return [file for (pid, _), file in _files.items() if pid == os.getpid()]


_HEADER = struct.Struct("<QI")
_FOOTER = 4


def read_scalars(logdir: str | os.PathLike[str]) -> dict[str, list[tuple[int, float]]]:
    """Read all scalars from the event files of a directory.

    Use it to plot or test what a training logged, without TensorBoard. If a step was
    written twice, the later value counts; values behind the step at which a run was
    resumed are left out. The last record of a file
    may be incomplete, because its writer was killed or is still writing: it is left
    out, and so is a damaged record.

    Args:
      logdir: The directory with the event files: the model directory for training, its
        `eval` folder for evaluations.

    Returns:
      `(step, value)` pairs in the order of steps, by tag. Empty if there are no files.

    Example:
      >>> import tempfile
      >>> from estimax.summary import SummaryWriter
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     with SummaryWriter(folder) as writer:
      ...         writer.scalar("loss", 0.5, step=100)
      ...         writer.scalar("loss", 0.25, step=200)
      ...     read_scalars(folder)
      {'loss': [(100, 0.5), (200, 0.25)]}
    """
    from google.protobuf.message import DecodeError

    found: dict[str, dict[int, float]] = {}
    for path in sorted(Path(logdir).glob("*.tfevents.*"), key=_age):
        for record in _records(path.read_bytes()):
            try:
                step, values, is_restart = _scalars(record)
            except DecodeError:
                continue
            if is_restart:
                found = {t: _before(step, by_step) for t, by_step in found.items()}
            for tag, value in values:
                found.setdefault(tag, {})[step] = value
    return {tag: sorted(by_step.items()) for tag, by_step in found.items() if by_step}


def _age(path: Path) -> tuple[int, str]:
    """Return a key that sorts by creation: the second in the name, then the name."""
    second = path.name.partition(".tfevents.")[2].partition(".")[0]
    return (int(second) if second.isdigit() else 0, _pad_numbers(path.name))


def _pad_numbers(name: str) -> str:
    """Return a file name with its numbers padded, so that ".10" sorts after ".9"."""
    return ".".join(
        part.zfill(20) if part.isdigit() else part for part in name.split(".")
    )


def _records(data: bytes) -> Iterator[bytes]:
    """Yield the complete records of a file."""
    start = 0
    while start + _HEADER.size <= len(data):
        length, _ = _HEADER.unpack_from(data, start)
        first = start + _HEADER.size
        start = first + length + _FOOTER
        if start > len(data):
            return
        yield data[first : first + length]


def _before(step: int, by_step: dict[int, float]) -> dict[int, float]:
    return {at: value for at, value in by_step.items() if at < step}


def _scalars(record: bytes) -> tuple[int, list[tuple[str, float]], bool]:
    """Return the step of an event, the tags and values of its scalars.

    The last value is whether a run was resumed at this step.
    """
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    event = Event.FromString(record)
    values = [
        (value.tag, value.simple_value)
        for value in event.summary.value
        if value.tag and value.HasField("simple_value")
    ]
    start = SessionLog.SessionStatus.Value("START")
    is_restart = event.HasField("session_log") and event.session_log.status == start
    return event.step, values, is_restart
