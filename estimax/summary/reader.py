"""Scalars read back from event files.

    read_scalars(eval_dir)["accuracy"]      # [(100, 0.91), (200, 0.93)]

The two formats are simple enough to be read here: records (length, checksum, data,
checksum) of `Event` messages, of which only steps and plain numbers are looked at.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from estimax.wire import messages

_HEADER = struct.Struct("<QI")
_FOOTER = 4
# Field numbers of Event, Summary and Summary.Value.
_STEP, _SUMMARY = 2, 5
_VALUE = 1
_TAG, _SIMPLE_VALUE = 1, 2


def read_scalars(logdir: str | os.PathLike[str]) -> dict[str, list[tuple[int, float]]]:
    """Read every scalar of a directory's event files, by tag, in order of steps.

    A step that was written twice, as after a resume, has its later value. The last
    record of a file may be cut: its writer was killed or is still at work. A record
    that is damaged is left out.
    """
    found: dict[str, dict[int, float]] = {}
    for path in sorted(Path(logdir).glob("*.tfevents.*"), key=_age):
        for event in _records(path.read_bytes()):
            try:
                step, values = _scalars(event)
            except (ValueError, TypeError, AttributeError, struct.error):
                continue
            for tag, value in values:
                found.setdefault(tag, {})[step] = value
    return {tag: sorted(by_step.items()) for tag, by_step in found.items()}


def _age(path: Path) -> tuple[int, str]:
    """Order of creation: the second in the name, then the rest of the name."""
    second = path.name.partition(".tfevents.")[2].partition(".")[0]
    return (int(second) if second.isdigit() else 0, _padded_numbers(path.name))


def _padded_numbers(name: str) -> str:
    return ".".join(
        part.zfill(20) if part.isdigit() else part for part in name.split(".")
    )


def _records(data: bytes) -> Iterator[bytes]:
    place = 0
    while place + _HEADER.size <= len(data):
        length, _ = _HEADER.unpack_from(data, place)
        start = place + _HEADER.size
        place = start + length + _FOOTER
        if place > len(data):
            return
        yield data[start : start + length]


def _scalars(event: bytes) -> tuple[int, list[tuple[str, float]]]:
    step = 0
    values: list[tuple[str, float]] = []
    for number, content in messages.fields(event):
        if number == _STEP:
            step = content
        elif number == _SUMMARY:
            for inner, value in messages.fields(content):
                if inner == _VALUE:
                    values += _scalar(value)
    return step, values


def _scalar(value: bytes) -> list[tuple[str, float]]:
    """The tag and number of a Summary.Value, or nothing for another kind."""
    fields = dict(messages.fields(value))
    if _SIMPLE_VALUE not in fields or _TAG not in fields:
        return []
    return [(fields[_TAG].decode(), struct.unpack("<f", fields[_SIMPLE_VALUE])[0])]
