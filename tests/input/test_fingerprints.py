"""A position belongs to data: what has changed since is told at the resume."""

import json
import logging
import os
import shutil

import numpy as np
import pytest

from estimax.core.sparse import Sparse
from estimax.formats.records import write_records
from estimax.input import (
    ChangedInputError,
    CsvDataset,
    Dataset,
    TextLineDataset,
    TFRecordDataset,
    csv_files,
    parquet_files,
)


@pytest.fixture
def folder(tmp_path):
    for name in "abc":
        write_records(tmp_path / name, [f"{name}{i}".encode() for i in range(1000)])
    return tmp_path


PIPELINES = {
    "one after the other": lambda paths: TFRecordDataset(paths),
    "in turn": lambda paths: TFRecordDataset(paths, num_parallel_reads=2),
    "listed and shuffled": lambda paths: TFRecordDataset(
        Dataset.list_files([str(path) for path in paths])
    ),
    "shuffled": lambda paths: TFRecordDataset(paths).shuffle(500).repeat(),
    "zipped": lambda paths: Dataset.zip(Dataset.range(5000), TFRecordDataset(paths)),
    "cached": lambda paths: TFRecordDataset(paths).cache(),
}


@pytest.fixture(params=PIPELINES)
def pipeline(request):
    def make(folder):
        paths = sorted(path for path in folder.iterdir() if path.is_file())
        return PIPELINES[request.param](paths).batch(100)

    return make


def saved(data, batches=15):
    """The position in the second file, as a checkpoint would keep it."""
    with data.iterator(seed=1) as iterator:
        for _ in range(batches):
            next(iterator)
        return json.loads(json.dumps(iterator.get_state()))


def resumed(data, state):
    iterator = data.iterator(seed=1)
    iterator.set_state(state)
    return next(iterator)


def test_unchanged_and_touched_and_copied_files_resume(folder, pipeline, tmp_path):
    state = saved(pipeline(folder))
    resumed(pipeline(folder), state)
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    resumed(pipeline(folder), state)
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in "abc":
        shutil.copy(folder / name, copy)
    resumed(pipeline(copy), state)


def test_an_appended_file_is_told_with_both_sizes(folder, pipeline):
    state = saved(pipeline(folder))
    size = (folder / "a").stat().st_size
    with (folder / "a").open("ab") as file:
        file.write((folder / "b").read_bytes()[:190])
    with pytest.raises(ChangedInputError) as caught:
        resumed(pipeline(folder), state)
    assert f"{folder / 'a'}" in str(caught.value)
    assert f"had {size} bytes" in str(caught.value)
    assert f"has {size + 190} now" in str(caught.value)
    assert "shuffle" not in str(caught.value)


def test_a_shortened_file_is_told(folder, pipeline):
    state = saved(pipeline(folder))
    size = (folder / "c").stat().st_size
    os.truncate(folder / "c", size // 2)
    with pytest.raises(ChangedInputError, match=f"had {size} bytes"):
        resumed(pipeline(folder), state)


def test_a_file_replaced_by_one_of_the_same_size_is_told(folder, pipeline):
    state = saved(pipeline(folder), batches=25)
    data = (folder / "a").read_bytes()
    (folder / "a").write_bytes(data[:-1] + b"?")
    with pytest.raises(ChangedInputError, match="other content") as caught:
        resumed(pipeline(folder), state)
    assert str(folder / "a") in str(caught.value)


def test_another_number_of_files_is_told_as_such(folder, pipeline):
    state = saved(pipeline(folder))
    shutil.copy(folder / "a", folder / "d")
    with pytest.raises(ChangedInputError) as caught:
        resumed(pipeline(folder), state)
    assert "had 3 files" in str(caught.value)
    assert "has 4 now" in str(caught.value)
    assert "new: d" in str(caught.value)
    assert "shuffle" not in str(caught.value)


def test_another_name_is_told_as_such(folder, pipeline):
    state = saved(pipeline(folder))
    (folder / "b").rename(folder / "e")
    with pytest.raises(ChangedInputError, match="missing: b; new: e") as caught:
        resumed(pipeline(folder), state)
    assert "shuffle" not in str(caught.value)


def test_another_order_of_the_files_is_told_as_such(folder):
    paths = [folder / name for name in "abc"]
    state = saved(TFRecordDataset(paths).batch(100))
    with pytest.raises(ChangedInputError, match="same files in another order"):
        resumed(TFRecordDataset(paths[::-1]).batch(100), state)


@pytest.mark.parametrize("kind", ["csv", "csv rows", "lines", "parquet"])
def test_every_kind_of_file_is_watched(tmp_path, kind):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "a"
    make = {
        "csv": csv_files,
        "csv rows": lambda path: CsvDataset(path, [""], header=True),
        "lines": TextLineDataset,
        "parquet": parquet_files,
    }[kind]

    def write(rows):
        if kind == "parquet":
            pq.write_table(pa.table({"x": np.arange(rows)}), path)
        else:
            path.write_text("x\n" + "".join(f"{i}\n" for i in range(rows)))

    write(100)
    state = saved(make(path).batch(10), batches=3)
    write(120)
    with pytest.raises(ChangedInputError, match=r"had \d+ bytes .* has \d+ now"):
        resumed(make(path).batch(10), state)


def test_files_that_functions_open_are_watched(folder):
    def make():
        names = Dataset.from_tensor_slices(["a", "b", "c"])
        data = names.flat_map(lambda name: TFRecordDataset(folder / name.decode()))
        return data.batch(100)

    state = saved(make())
    resumed(make(), state)
    (folder / "a").write_bytes((folder / "b").read_bytes())
    with pytest.raises(ChangedInputError, match="other content"):
        resumed(make(), state)


def test_a_file_not_yet_read_is_watched_by_its_size(folder):
    paths = [folder / name for name in "abc"]
    state = saved(TFRecordDataset(paths).batch(100), batches=3)
    os.truncate(folder / "c", 190)
    with pytest.raises(ChangedInputError, match=str(folder / "c")):
        resumed(TFRecordDataset(paths).batch(100), state)


def test_a_file_that_is_gone_is_told(folder):
    paths = [folder / name for name in "abc"]
    state = saved(TFRecordDataset(paths).batch(100))
    (folder / "a").unlink()
    with pytest.raises(ChangedInputError, match=f"{folder / 'a'}.* is missing"):
        resumed(TFRecordDataset(paths).batch(100), state)


def test_sources_of_a_complete_cache_file_may_change(folder, tmp_path):
    def make():
        paths = [folder / name for name in "abc"]
        return TFRecordDataset(paths).cache(tmp_path / "cache" / "c").repeat(2)

    state = saved(make().batch(100), batches=35)  # in the second epoch
    for name in "abc":
        (folder / name).unlink()
    assert resumed(make().batch(100), state).tolist()[0] == b"a500"


def column_of(kind):
    if kind == "text":
        return [f"text {i}" for i in range(500)]
    if kind == "sparse":
        indices = np.stack([np.arange(500), np.zeros(500, np.int64)], axis=1)
        return Sparse(indices, np.arange(500), (500, 1))
    if kind == "strided":
        return np.arange(1000.0).reshape(500, 2)[:, 1]
    return np.arange(500.0)


@pytest.mark.parametrize("kind", ["numbers", "strided", "text", "sparse"])
def test_other_values_in_memory_are_told(kind):
    def make(column):
        return Dataset.from_tensor_slices({"x": column, "y": np.zeros(500)}).batch(10)

    state = saved(make(column_of(kind)))
    resumed(make(column_of(kind)), state)
    other = column_of(kind)
    if kind == "sparse":
        other.values[-1] = 7
    else:
        other[-1] = "other" if kind == "text" else 7
    with pytest.raises(ChangedInputError, match=r"values of \['x'\].* changed"):
        resumed(make(other), state)


def test_another_number_of_rows_in_memory_is_told():
    def make(rows):
        return Dataset.from_tensor_slices({"x": np.zeros(rows)}).shuffle(rows).batch(10)

    state = saved(make(500))
    with pytest.raises(ChangedInputError, match=r"had 500 rows .* has 600 now"):
        resumed(make(600), state)


def test_a_position_without_a_fingerprint_resumes_and_says_so(folder, caplog):
    paths = [folder / name for name in "abc"]
    state = saved(TFRecordDataset(paths).batch(100))
    del state["data"]
    with caplog.at_level(logging.INFO, "estimax"):
        resumed(TFRecordDataset(paths).batch(100), state)
    assert "no fingerprint of the data" in caplog.text


def test_a_resumed_run_still_knows_the_files_read_before(folder):
    paths = [folder / name for name in "abc"]
    state = saved(TFRecordDataset(paths).batch(100))
    iterator = iter(TFRecordDataset(paths).batch(100))
    iterator.set_state(state)
    next(iterator)
    again = json.loads(json.dumps(iterator.get_state()))
    assert again["data"] == state["data"]


def test_the_position_in_thousands_of_files_is_small(tmp_path):
    paths = [tmp_path / f"part-{i:05}-of-03000.txt" for i in range(3000)]
    for i, path in enumerate(paths):
        path.write_text(f"{i}\n" * (1 + i % 7))
    iterator = iter(TextLineDataset(paths).batch(100))
    for _ in iterator:
        iterator.get_state()
    text = json.dumps(iterator.get_state())
    assert len(text) < 100_000
    again = iter(TextLineDataset(paths).batch(100))
    again.set_state(json.loads(text))
    paths[1500].write_text("other\n" * 100)
    with pytest.raises(ChangedInputError, match="part-01500"):
        iter(TextLineDataset(paths).batch(100)).set_state(json.loads(text))


def test_only_three_samples_of_a_large_file_are_read(tmp_path):
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.write(b"x" * 100 + b"\n")
        file.truncate(1 << 40)  # a terabyte of nothing
    with TextLineDataset(path).take(1).iterator() as iterator:
        state = iterator.get_state()
    with TextLineDataset(path).take(1).iterator() as iterator:
        iterator.set_state(state)


def test_the_fingerprint_of_a_dataset_changes_with_its_data(folder):
    def make():
        return TFRecordDataset([folder / name for name in "abc"]).batch(100)

    before = make().fingerprint()
    assert make().fingerprint() == before
    assert TFRecordDataset([folder / "a"]).batch(100).fingerprint() != before
    (folder / "b").write_bytes((folder / "a").read_bytes())
    assert make().fingerprint() != before
    one, other = (Dataset.from_tensor_slices(np.arange(n)) for n in (5, 6))
    assert one.fingerprint() != other.fingerprint()
