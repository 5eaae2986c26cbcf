"""Scalars read back from event files.

    read_scalars(eval_dir)["accuracy"]      # [(100, 0.91), (200, 0.93)]

An event file is a sequence of records (length, checksum, data, checksum), each an
`Event` message of tensorboardX. Checksums are not verified.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

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
