"""Saved datasets and snapshots: written whole, with checksums, read back the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from estimax.core.errors import InputError, MissingFileError
from estimax.core.sparse import Sparse
from estimax.input import Dataset


def rows() -> Dataset:
    tags = Sparse.of_rows([["a"] * (i % 3) for i in range(50)])
    words = [f"w{i}" for i in range(50)]
    features = {"x": np.arange(50.0), "w": words, "t": tags}
    return Dataset.from_tensor_slices((features, np.arange(50)))


def shown(data: Dataset) -> list[str]:
    return [
        repr((f["x"], f["w"], f["t"].values, f["t"].dense_shape, y)) for f, y in data
    ]


def test_a_saved_dataset_is_loaded_as_it_was(tmp_path: Path):
    rows().save(tmp_path / "saved")
    loaded = Dataset.load(tmp_path / "saved")
    assert shown(loaded) == shown(rows())
    assert shown(loaded.batch(7)) == shown(rows().batch(7))
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_batches_and_mapped_rows_are_saved(tmp_path: Path):
    rows().batch(7).save(tmp_path / "batches")
    assert shown(Dataset.load(tmp_path / "batches")) == shown(rows().batch(7))
    mapped = rows().map(lambda f, y: (f["x"] * 2, y))
    mapped.save(tmp_path / "mapped")
    (found,) = Dataset.load(tmp_path / "mapped").batch(50)
    assert found[0].tolist() == (np.arange(50.0) * 2).tolist()


def test_saving_again_replaces_the_folder(tmp_path: Path):
    for count in (5, 3):
        Dataset.range(count).save(tmp_path / "saved")
        assert len(list(Dataset.load(tmp_path / "saved"))) == count


def test_a_save_that_fails_leaves_the_old_folder(tmp_path: Path):
    Dataset.range(5).save(tmp_path / "saved")

    def failing():
        yield 1
        raise OSError("the source ends here")

    with pytest.raises(OSError, match="ends here"):
        Dataset.from_generator(failing).save(tmp_path / "saved")
    assert len(list(Dataset.load(tmp_path / "saved"))) == 5


def test_an_empty_dataset_can_be_saved(tmp_path: Path):
    Dataset.range(0).save(tmp_path / "saved")
    assert list(Dataset.load(tmp_path / "saved")) == []


def test_positions_in_a_saved_dataset_are_exact(tmp_path: Path):
    rows().save(tmp_path / "saved")

    def make():
        return iter(Dataset.load(tmp_path / "saved").shuffle(9, seed=1).batch(4))

    iterator = make()
    for _ in range(5):
        next(iterator)
    state = json.loads(json.dumps(iterator.get_state()))
    resumed = make()
    resumed.set_state(state)
    assert shown(resumed) == shown(iterator)


def test_a_damaged_saved_dataset_is_an_error(tmp_path: Path):
    rows().save(tmp_path / "saved")
    data = tmp_path / "saved" / "elements.data"
    content = bytearray(data.read_bytes())
    content[100] ^= 1
    data.write_bytes(content)
    with pytest.raises(InputError, match="checksum"):
        list(Dataset.load(tmp_path / "saved"))


def test_other_folders_are_neither_loaded_nor_replaced(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("keep")
    with pytest.raises(MissingFileError, match="not a saved dataset"):
        Dataset.load(tmp_path / "mine")
    with pytest.raises(InputError, match="exists and is not a saved dataset"):
        Dataset.range(3).save(tmp_path / "mine")
    assert (tmp_path / "mine" / "file").read_text() == "keep"


def test_what_cannot_be_done_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="no end"):
        Dataset.range(3).repeat().save(tmp_path / "saved")
    with pytest.raises(InputError, match="GZIP"):
        Dataset.range(3).save(tmp_path / "saved", compression="GZIP")
    with pytest.raises(InputError, match="not supported"):
        Dataset.range(3).snapshot(tmp_path / "s", shard_func=lambda x: 0)


def test_a_snapshot_is_read_by_the_next_run(tmp_path: Path):
    calls = []

    def make():
        data = Dataset.range(30).map(lambda x: calls.append(x) or x * 2)
        return data.snapshot(tmp_path / "snapshot").batch(7)

    first = [batch.tolist() for batch in make()]
    assert [batch.tolist() for batch in make()] == first
    assert len(calls) == 30
    assert make().node.source.name == "snapshot"


def test_an_interrupted_snapshot_leaves_nothing(tmp_path: Path):
    data = Dataset.range(30).snapshot(tmp_path / "snapshot")
    with data.iterator() as iterator:
        next(iterator)
    assert not list((tmp_path / "snapshot").glob("*.index"))
    assert len(list(data)) == 30
