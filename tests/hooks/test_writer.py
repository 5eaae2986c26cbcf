import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tensorboardX.proto import event_pb2

from estimax.hooks.summary import SummaryWriter, event_files, read_scalars


def events(logdir: Path) -> list[event_pb2.Event]:
    data = [path.read_bytes() for path in sorted(logdir.iterdir())]
    found = [record for file in data for record in event_files._records(file)]
    return [event_pb2.Event.FromString(record) for record in found]


def test_scalar_comes_back(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path / "deep" / "dir") as out:
        out.scalar("global_step/sec", np.float32(12.5), 41)
    assert read_scalars(tmp_path / "deep" / "dir") == {"global_step/sec": [(41, 12.5)]}


def test_flush_puts_everything_on_disk(tmp_path: Path) -> None:
    out = SummaryWriter(tmp_path)
    for step in range(100):
        out.scalar("loss", step, step)
    out.flush()
    assert len(read_scalars(tmp_path)["loss"]) == 100
    out.close()


def test_writer_without_writes_makes_no_file(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as out:
        out.flush()
    assert list(tmp_path.iterdir()) == []


def test_writers_of_a_directory_share_one_file(tmp_path: Path) -> None:
    first, second = SummaryWriter(tmp_path), SummaryWriter(str(tmp_path))
    first.scalar("a", 1, 1)
    second.scalar("b", 2, 1)
    first.close()
    second.scalar("b", 3, 2)
    second.close()
    with SummaryWriter(tmp_path) as third:
        third.scalar("a", 4, 2)
    assert len(list(tmp_path.iterdir())) == 1
    assert read_scalars(tmp_path) == {"a": [(1, 1), (2, 4)], "b": [(1, 2), (2, 3)]}


def test_removed_directory_is_made_again(tmp_path: Path) -> None:
    for step in (1, 2):
        with SummaryWriter(tmp_path / "run") as out:
            out.scalar("a", step, step)
        assert read_scalars(tmp_path / "run") == {"a": [(step, step)]}
        shutil.rmtree(tmp_path / "run")


def test_few_idle_files_stay_open(tmp_path: Path) -> None:
    for number in range(30):
        with SummaryWriter(tmp_path / str(number)) as out:
            out.scalar("a", 1, 1)
    assert (
        sum(file.users == 0 for file in event_files._files.values())
        <= event_files.MOST_IDLE
    )


def test_files_of_one_second_do_not_overwrite_each_other(tmp_path: Path) -> None:
    for step in range(20):
        with SummaryWriter(tmp_path / "a") as out:
            out.scalar("x", step, step)
        for other in range(10):  # pushes the file above out
            with SummaryWriter(tmp_path / f"other{other}") as out:
                out.scalar("x", step, step)
    assert len(read_scalars(tmp_path / "a")["x"]) == 20


def test_closed_writer_refuses(tmp_path: Path) -> None:
    out = SummaryWriter(tmp_path)
    out.close()
    with pytest.raises(ValueError, match="is closed"):
        out.scalar("a", 1, 1)


def test_histogram_counts_the_finite_values(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as out:
        out.histogram("h", np.array([[1.0, 3.0], [np.nan, np.inf]]), 7)
        out.histogram("empty", np.array([np.nan]), 7)
    (value,) = events(tmp_path)[-1].summary.value
    assert value.tag == "h"
    assert (value.histo.num, value.histo.min, value.histo.max) == (2, 1, 3)
    assert sum(value.histo.bucket) == 2


def test_text_is_written(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as out:
        out.text("checkpoint_path", "model.ckpt-7", 7)
    event = events(tmp_path)[-1]
    assert event.step == 7
    assert event.summary.value[0].tensor.string_val[0] == b"model.ckpt-7"


def test_process_that_ends_without_close_loses_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from estimax.summary import SummaryWriter\n"
        "SummaryWriter(sys.argv[1]).scalar('loss', 0.5, 3)\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)
    assert read_scalars(tmp_path) == {"loss": [(3, 0.5)]}


def test_tensorboard_is_not_imported_before_the_first_write(tmp_path: Path) -> None:
    code = (
        "import sys; from estimax.summary import SummaryWriter\n"
        "SummaryWriter(sys.argv[1])\n"
        "assert 'tensorboardX' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)
