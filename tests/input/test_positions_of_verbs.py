"""Every verb: saved after k elements and restored in a new iterator, it goes on."""

import gzip
import inspect
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.formats.records import write_records
from estimax.input import (
    CsvDataset,
    Dataset,
    FixedLengthRecordDataset,
    Options,
    TextLineDataset,
    TFRecordDataset,
    csv_files,
    make_csv_dataset,
    parquet_files,
)


def plain(value):
    """A structure as nested lists, to compare with ==."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    if isinstance(value, Dataset):
        return [plain(element) for element in value]
    if isinstance(value, Sparse):
        return [value.indices.tolist(), plain(value.values), list(value.dense_shape)]
    return np.asarray(value).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for part in range(3):
        numbers = range(part * 5, part * 5 + 4 + part)
        rows = "".join(f"{i},c{i}\n" for i in numbers)
        (folder / f"{part}.csv").write_text(f"id,name\n{rows}")
        (folder / f"{part}.txt").write_text(rows)
        (folder / f"{part}.txt.gz").write_bytes(gzip.compress(rows.encode()))
        (folder / f"{part}.bin").write_bytes(b"HH" + rows.encode()[:19])
        write_records(folder / f"{part}.tfrecord", [b"%d" % i for i in numbers])
        lists = [[i] * (i % 3) for i in numbers]
        table = pa.table({"id": list(numbers), "many": lists})
        pq.write_table(table, folder / f"{part}.parquet", row_group_size=2)
    return folder


def rows(n=9):
    """Rows of numbers and text, as columns."""
    text = np.array([b"%d" % i for i in range(n)], object)
    return Dataset.from_tensor_slices({"x": np.arange(n), "s": text})


def sequences():
    return Dataset.from_generator(lambda: (np.arange(n) for n in (1, 3, 2, 5, 1, 4, 2)))


def _loaded(path):
    rows().batch(2).save(path)
    return Dataset.load(path)


def number_of(row):
    return int(row["x"])


def paths(folder, ending):
    return [str(folder / f"{i}.{ending}") for i in range(3)]


# Every way to make or change a dataset, by the name of the verb that is exercised.
VERBS = {
    "from_tensor_slices": lambda f: rows(),
    "from_tensors": lambda f: Dataset.from_tensors((1, [2, 3])).repeat(3),
    "range": lambda f: Dataset.range(10, 0, -3),
    "counter": lambda f: Dataset.counter(5, 3).take(7),
    "random": lambda f: Dataset.random().take(7),
    "from_generator": lambda f: sequences(),
    "from_batches": lambda f: Dataset.from_batches([{"x": [1, 2]}, {"x": [3]}]),
    "from_table": lambda f: Dataset.from_table(pa.table({"x": list(range(9))})),
    "list_files": lambda f: Dataset.list_files(str(f / "*"), seed=1),
    "zip": lambda f: Dataset.zip({"a": rows(), "b": (sequences(), rows(5))}),
    "sample_from_datasets": lambda f: Dataset.sample_from_datasets(
        [rows(), rows(5), rows(0)], [0.5, 0.3, 0.2]
    ),
    "choose_from_datasets": lambda f: Dataset.choose_from_datasets(
        [rows(), rows(5)], Dataset.from_tensor_slices([0, 1, 1, 0, 0, 1])
    ),
    "shuffle": lambda f: rows().shuffle(4).repeat(2),
    "repeat": lambda f: rows(3).repeat(3),
    "take": lambda f: rows().take(5).repeat(2),
    "skip": lambda f: rows().skip(5).repeat(2),
    "take_while": lambda f: rows().take_while(lambda r: r["x"] < 6).repeat(2),
    "shard": lambda f: rows().shard(2, 1).repeat(2),
    "auto_shard": lambda f: rows().shuffle(3).auto_shard(2, 1),
    "filter": lambda f: rows().filter(lambda r: r["x"] % 2).repeat(2),
    "filter_blocks": lambda f: rows().filter_blocks(lambda r: r["x"] % 2 == 1),
    "unique": lambda f: Dataset.from_tensor_slices(["a", "b", "a", "c", "b"]).unique(),
    "concatenate": lambda f: rows().shuffle(3).concatenate(rows(4).shuffle(4)),
    "rejection_resample": lambda f: rows(30).rejection_resample(
        lambda r: r["x"] % 2, [0.9, 0.1]
    ),
    "batch": lambda f: rows().batch(2),
    "padded_batch": lambda f: sequences().padded_batch(2),
    "bucket_by_sequence_length": lambda f: sequences().bucket_by_sequence_length(
        len, [2, 4], [2, 2, 2]
    ),
    "rebatch": lambda f: rows().batch(4).rebatch([2, 3]),
    "ragged_batch": lambda f: (
        sequences().ragged_batch(2).map(lambda batch: batch.to_sparse())
    ),
    "sparse_batch": lambda f: sequences().sparse_batch(2, [None]),
    "unbatch": lambda f: rows().batch(4).unbatch(),
    "window": lambda f: rows().window(3, shift=2, stride=2),
    "group_by_window": lambda f: rows(11).group_by_window(
        lambda r: r["x"] % 3, lambda key, group: group.repeat(2), 2
    ),
    "enumerate": lambda f: rows().enumerate(3).repeat(2),
    "map": lambda f: rows().map(number_of, num_parallel_calls=3),
    "map_blocks": lambda f: rows(99).map_blocks(lambda r: r["x"] * 2, 2),
    "interleave": lambda f: Dataset.list_files(str(f / "*.txt")).interleave(
        TextLineDataset, cycle_length=2, block_length=2, num_parallel_calls=2
    ),
    "flat_map": lambda f: Dataset.range(5).flat_map(
        lambda n: Dataset.range(n).shuffle(9)
    ),
    "scan": lambda f: rows().scan(np.float32(0), lambda s, r: (s + r["x"], s)),
    "with_label": lambda f: rows().with_label("x").batch(2),
    "apply": lambda f: rows().apply(lambda data: data.skip(2)),
    "cache": lambda f: rows().shuffle(4).cache().repeat(3),
    "snapshot": lambda f: rows().shuffle(4).snapshot(f.parent / "snapshot").repeat(3),
    "load": lambda f: _loaded(f.parent / "saved"),
    "prefetch": lambda f: rows().prefetch(4).repeat(2),
    "ignore_errors": lambda f: (
        rows().map(lambda r: 6 // r["x"] if r["x"] % 4 else int("no")).ignore_errors()
    ),
    "with_options": lambda f: rows().with_options(Options()).batch(2),
    "csv_files": lambda f: csv_files(paths(f, "csv"), block_bytes=10),
    "make_csv_dataset": lambda f: make_csv_dataset(
        str(f / "*.csv"), 2, num_epochs=2, num_parallel_reads=2
    ),
    "CsvDataset": lambda f: CsvDataset(paths(f, "csv"), [0, ""], header=True),
    "TextLineDataset": lambda f: TextLineDataset(paths(f, "txt"), num_parallel_reads=2),
    "compressed": lambda f: TextLineDataset(paths(f, "txt.gz"), "GZIP"),
    "FixedLengthRecordDataset": lambda f: FixedLengthRecordDataset(
        paths(f, "bin"), 3, header_bytes=2, footer_bytes=1
    ),
    "TFRecordDataset": lambda f: TFRecordDataset(paths(f, "tfrecord")).batch(3),
    "records in turn": lambda f: TFRecordDataset(
        Dataset.list_files(str(f / "*.tfrecord"), seed=3), num_parallel_reads=2
    ),
    "parquet_files": lambda f: parquet_files(paths(f, "parquet")).batch(3),
}

NO_ELEMENTS = {
    "options",
    "cardinality",
    "fingerprint",
    "profile",
    "get_single_element",
    "reduce",
    "save",
    "as_numpy_iterator",
    "iterator",
}


def test_no_verb_is_left_out():
    public = {
        name
        for name, value in inspect.getmembers(Dataset)
        if not name.startswith("_") and callable(value)
    }
    assert public - NO_ELEMENTS <= VERBS.keys()


@pytest.mark.parametrize("verb", VERBS)
def test_a_saved_position_gives_the_exact_rest(verb, folder):
    with VERBS[verb](folder).iterator(seed=11) as iterator:
        states, elements = [iterator.get_state()], []
        for element in iterator:
            elements.append(plain(element))
            states.append(json.loads(json.dumps(iterator.get_state())))
    assert len(elements) > 1
    for k, state in enumerate(states):
        with iter(VERBS[verb](folder)) as resumed:
            resumed.set_state(state)
            if k % 2:  # a position asked for before anything is read is as good
                resumed.set_state(resumed.get_state())
            assert [plain(element) for element in resumed] == elements[k:]


@pytest.mark.parametrize("verb", VERBS)
def test_reading_many_at_once_gives_the_same_elements(verb, folder):
    with VERBS[verb](folder).iterator(seed=11) as iterator:
        singly = [plain(element) for element in iterator]
    with VERBS[verb](folder).shuffle(1000, seed=0).iterator(seed=11) as iterator:
        shuffled = [plain(element) for element in iterator]
    if verb not in (
        "auto_shard",
        "shuffle",
        "concatenate",
        "flat_map",
        "cache",
        "interleave",
        "make_csv_dataset",
    ):
        assert sorted(map(str, shuffled)) == sorted(map(str, singly))
    assert len(shuffled) == len(singly)


def test_text_elements_stay_columns_through_a_chain():
    kinds = set()

    def look(text):
        kinds.add(type(text))
        return text

    data = rows(50).map_blocks(lambda r: r["s"]).shuffle(10).batch(8).map(look)
    assert sum(len(batch) for batch in data) == 50
    assert kinds == {Strings}
