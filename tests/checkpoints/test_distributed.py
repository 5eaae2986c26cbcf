"""Checkpoints that several processes write and read, with threads in their place."""

import json

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from process_threads import in_threads, processes_of

from estimax import checkpoints
from estimax.checkpoints import Saver
from estimax.checkpoints import format as formats
from estimax.checkpoints.distributed import (
    Rows,
    _check_names,
    local_rows,
    write_distributed,
)
from estimax.core.errors import CheckpointError, ClusterError

TABLE = np.arange(14, dtype=np.float32).reshape(7, 2)
W = np.ones(3, np.float32)


def held(index):
    """Process 0 holds "w" and the first rows of "table", process 1 the others."""
    rows = slice(0, 4) if index == 0 else slice(4, 7)
    whole = [Rows(W, 0, W.shape)] if index == 0 else []
    return {"table": [Rows(TABLE[rows], rows.start, TABLE.shape)], "w": whole}


def write(peers, folder, extra=None):
    extra = extra or (lambda index: {"input": 3})
    return in_threads(
        peers,
        lambda one: write_distributed(
            one, folder, 5, held(one.index), extra(one.index)
        ),
    )


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "model.ckpt-5"


def test_rows_of_two_processes_are_one_checkpoint(folder):
    assert write(processes_of(2), folder) == [True, True]
    found = checkpoints.read(folder)
    np.testing.assert_array_equal(found.arrays["table"], TABLE)
    np.testing.assert_array_equal(found.arrays["w"], W)
    assert (found.step, found.extra) == (5, {"input": 3})
    np.testing.assert_array_equal(checkpoints.read_array(folder, "table"), TABLE)
    assert sorted(path.name for path in folder.iterdir()) == [
        "manifest.json",
        "state-00000-of-00002.safetensors",
        "state-00001-of-00002.safetensors",
    ]


def test_the_same_checkpoint_is_not_written_again(folder):
    peers = processes_of(2)
    write(peers, folder)
    before = (folder / "manifest.json").stat().st_mtime_ns
    assert write(peers, folder) == [False, False]
    assert (folder / "manifest.json").stat().st_mtime_ns == before
    assert write(peers, folder, lambda index: {"input": 4}) == [True, True]
    assert checkpoints.read(folder).extra == {"input": 4}


def test_positions_of_shares_are_saved_together(folder):
    write(processes_of(2), folder, lambda index: {"input": {"share": [index]}})
    assert checkpoints.read(folder).extra == {"inputs": [[0], [1]]}


def test_processes_that_read_different_data_cannot_save(folder):
    with pytest.raises(ClusterError, match="do not read the same data"):
        write(processes_of(2), folder, lambda index: {"input": index})


def test_a_process_that_cannot_write_fails_all_of_them(folder):
    peers = processes_of(2)

    def attempt(one):
        rows = held(one.index)
        if one.index == 1:
            rows["bad"] = [Rows(np.array(["text"], object), 0, (1,))]
        with pytest.raises(CheckpointError, match=r"worker 0 \(process 1 of 2\): .*"):
            write_distributed(one, folder, 5, rows, {"input": 3})

    in_threads(peers, attempt)
    assert list(folder.parent.iterdir()) == []


def table(start, stop, shape=TABLE.shape):
    return {"table": [Rows(TABLE[start:stop], start, shape)]}


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (table(0, 3), table(4, 7), "rows 3 to 4 of table were written by no process"),
        (table(0, 4), table(4, 6), "rows 6 to 7 of table were written by no process"),
        (table(1, 4), table(4, 7), "rows 0 to 1 of table were written by no process"),
        (table(0, 5), table(4, 7), r"row 4 of table was written by chief .*worker 0"),
        (table(0, 7), table(0, 7), r"row 0 of table was written by chief .*worker 0"),
        (table(0, 4), table(4, 7, (8, 2)), r"table is \[7, 2\] in chief .*\[8, 2\] in"),
        ({"w": []}, {"w": []}, "w was written by no process"),
        (table(0, 7), {"table": [], "w": []}, r"chief .* has no w, which others save"),
    ],
    ids=["gap", "end", "start", "overlap", "twice", "shape", "nobody", "names"],
)
def test_pieces_that_are_not_all_rows_are_not_saved(folder, first, second, words):
    def save(one):
        rows = second if one.index else first
        with pytest.raises(CheckpointError, match=words):
            write_distributed(one, folder, 5, rows, {"input": 3})

    in_threads(processes_of(2), save)
    assert list(folder.parent.iterdir()) == []


def test_all_processes_restore_the_newest_intact_checkpoint(tmp_path):
    peers = processes_of(2)
    for step in (5, 6):
        folder = tmp_path / f"model.ckpt-{step}"
        in_threads(
            peers,
            lambda one, folder=folder, step=step: write_distributed(
                one, folder, step, held(one.index), {"input": step}
            ),
        )
    path = tmp_path / "model.ckpt-6" / "state-00001-of-00002.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    found = in_threads(peers, lambda one: checkpoints.restore_latest(tmp_path, one))
    assert [one.step for one in found] == [5, 5]


def test_rows_of_an_array_are_read_without_the_others(folder):
    write(processes_of(2), folder)
    (alone,) = processes_of(1)
    saved = checkpoints.restore_latest(folder.parent, alone).arrays["table"]
    assert (saved.shape, saved.dtype, saved.ndim) == ((7, 2), np.float32, 2)
    for start, stop in [(0, 7), (2, 6), (4, 5), (6, 9), (7, 9)]:
        np.testing.assert_array_equal(saved[start:stop], TABLE[start:stop])
    np.testing.assert_array_equal(saved[3:5, 1:], TABLE[3:5, 1:])
    np.testing.assert_array_equal(np.asarray(saved), TABLE)


def test_a_replicated_array_is_held_once_and_padding_is_cut():
    mesh = Mesh(np.array(jax.devices()), ("data",))
    padded = np.concatenate([TABLE, np.zeros((1, 2), np.float32)])
    arrays = {
        "table": jax.device_put(padded, NamedSharding(mesh, PartitionSpec("data"))),
        "w": jax.device_put(W, NamedSharding(mesh, PartitionSpec())),
    }
    rows = local_rows(arrays, {"table": 7})
    assert [one.start for one in rows["table"]] == list(range(7))
    assert [one.array.shape for one in rows["w"]] == [(3,)]


def edited(folder, change):
    """Change the manifest, and correct its checksum."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    del content["crc32"]
    change(content)
    content["crc32"] = formats._content_crc(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda pieces: pieces.reverse(), "does not continue"),
        (lambda pieces: pieces.pop(), "do not fill a shape"),
        (lambda pieces: pieces[1].update(start=3), "does not continue"),
        (lambda pieces: pieces.clear(), "do not fill a shape"),
        (lambda pieces: pieces[0].update(shape=[]), "does not continue"),
    ],
    ids=["order", "missing", "overlap", "none", "scalar"],
)
def test_pieces_that_are_not_all_rows_are_refused(folder, change, words):
    write(processes_of(2), folder)
    edited(folder, lambda content: change(content["arrays"]["table"]["pieces"]))
    with pytest.raises(CheckpointError, match=words):
        checkpoints.read(folder)


def test_a_checkpoint_of_one_process_keeps_its_format(folder):
    formats.write(folder, {"w": W}, 5, {"input": 3})
    content = json.loads((folder / "manifest.json").read_text())
    assert content["version"] == 1
    assert content["arrays"]["w"]["file"] == "state-00000-of-00001.safetensors"


def test_savers_of_two_folders_write_in_the_order_of_their_calls(tmp_path):
    def run(one):
        savers = [Saver(tmp_path / name, peers=one) for name in "ab"]
        threads = {saver._thread for saver in savers}
        if len(threads) == 1:  # or the rounds of both would mix
            for saver in savers:
                saver.save(5, held(one.index), {"input": 3})
        for saver in savers:
            saver.close()
        return threads

    one, other = in_threads(processes_of(2), run)
    assert len(one) == len(other) == 1
    assert one != other
    for name in "ab":
        found = checkpoints.read(tmp_path / name / "model.ckpt-5")
        np.testing.assert_array_equal(found.arrays["table"], TABLE)


class Name(str):
    """A name that counts how often it is compared."""

    compared = 0

    def __eq__(self, other):
        Name.compared += 1
        return str(self) == str(other)

    __hash__ = str.__hash__


def test_names_of_many_arrays_are_compared_once_each():
    every = [[Name(f"w{index}") for index in range(200)] for _ in range(2)]
    Name.compared = 0
    _check_names(processes_of(2)[0], every)
    assert Name.compared < 2000
    with pytest.raises(CheckpointError, match="has no w0, w1, which others"):
        _check_names(processes_of(2)[0], [every[0], every[1][2:]])
