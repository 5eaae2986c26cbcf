from pathlib import Path

import pytest
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto import event_pb2
from tensorboardX.proto.summary_pb2 import Summary

from estimax.hooks.summary import read_scalars


def write_file(logdir: Path, suffix: str, *values: tuple[str, int, float]) -> Path:
    before = set(logdir.iterdir())
    writer = EventsWriter(str(logdir / "events"), suffix)
    for tag, step, number in values:
        value = Summary.Value(tag=tag, simple_value=number)
        event = event_pb2.Event(step=step, summary=Summary(value=[value]))
        writer.write_event(event)
    writer.close()
    (path,) = set(logdir.iterdir()) - before
    return path


def test_directory_without_files_has_no_scalars(tmp_path: Path) -> None:
    assert read_scalars(tmp_path) == {}
    assert read_scalars(tmp_path / "nowhere") == {}


def test_steps_are_sorted(tmp_path: Path) -> None:
    write_file(tmp_path, ".1", ("a", 300, 3.0), ("a", 5, 1.0), ("b", 1, 0.0))
    assert read_scalars(tmp_path) == {"a": [(5, 1.0), (300, 3.0)], "b": [(1, 0.0)]}


def test_later_file_wins_a_step_written_twice(tmp_path: Path) -> None:
    write_file(tmp_path, ".9", ("a", 1, 1.0), ("a", 2, 2.0))
    write_file(tmp_path, ".10", ("a", 2, 20.0))
    assert read_scalars(tmp_path) == {"a": [(1, 1.0), (2, 20.0)]}


def test_zero_at_step_zero_is_a_value(tmp_path: Path) -> None:
    write_file(tmp_path, ".1", ("a", 0, 0.0))
    assert read_scalars(tmp_path) == {"a": [(0, 0.0)]}


@pytest.mark.parametrize("cut", [1, 4, 5, 20, 30])
def test_cut_last_record_is_passed_over(tmp_path: Path, cut: int) -> None:
    path = write_file(tmp_path, ".1", ("a", 1, 1.0), ("a", 2, 2.0))
    path.write_bytes(path.read_bytes()[:-cut])
    assert read_scalars(tmp_path) == {"a": [(1, 1.0)]}
