"""Going to a position must not cost more the further it is."""

import json

import numpy as np
import pytest

from estimax.core.strings import Strings
from estimax.formats.records import write_records
from estimax.input import (
    Dataset,
    FixedLenFeature,
    TextLineDataset,
    TFRecordDataset,
    make_batched_features_dataset,
    parse_example,
    serialize_examples,
)
from estimax.input.sources import file_blocks, record_files

FILES, ROWS = 6, 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("restore")
    for part in range(FILES):
        numbers = np.arange(part * ROWS, (part + 1) * ROWS)
        records = serialize_examples({"x": numbers, "s": [b"%d" % i for i in numbers]})
        write_records(folder / f"{part}.tfrecord", records)
        (folder / f"{part}.txt").write_text("".join(f"{i}\n" for i in numbers))
    return folder


SPEC = {"x": FixedLenFeature([], "int64"), "s": FixedLenFeature([], "string")}

CHAINS = {
    "lines": lambda f: TextLineDataset([f / f"{i}.txt" for i in range(FILES)]).batch(
        10
    ),
    "records, shuffled": lambda f: (
        TFRecordDataset([f / f"{i}.tfrecord" for i in range(FILES)])
        .shuffle(50)
        .repeat()
        .batch(10)
        .map(lambda s: parse_example(s, SPEC)["x"], num_parallel_calls=2)
        .prefetch(2)
    ),
    "batched features": lambda f: make_batched_features_dataset(
        str(f / "*.tfrecord"),
        10,
        SPEC,
        label_key="x",
        reader_num_threads=2,
        shuffle_buffer_size=50,
    ),
    "interleaved": lambda f: (
        Dataset.list_files(str(f / "*.txt"))
        .interleave(TextLineDataset, cycle_length=2, num_parallel_calls=2)
        .batch(10)
    ),
}


class Counter:
    """How many files are opened and blocks are read."""

    def __init__(self, monkeypatch):
        self.reads = 0
        for owner in (record_files.TFRecordReader, file_blocks.ByteFile):
            name = "read" if owner is record_files.TFRecordReader else "read_at"
            original = getattr(owner, name)
            monkeypatch.setattr(owner, name, self._counting(original))

    def _counting(self, original):
        def counting(*args):
            self.reads += 1
            return original(*args)

        return counting


@pytest.mark.parametrize("chain", CHAINS)
def test_restoring_reads_few_blocks_however_far_the_run_was(chain, folder, monkeypatch):
    monkeypatch.setattr("estimax.input.sources.record_files.BLOCK_BYTES", 256)
    monkeypatch.setattr("estimax.input.sources.record_files.RECORD_BLOCK_BYTES", 1024)
    monkeypatch.setattr("estimax.formats.records._MOST_BYTES", 1024)
    counter = Counter(monkeypatch)
    runs, reads, sizes = [], [], []
    for far in (20, 200):
        with CHAINS[chain](folder).iterator(seed=5) as iterator:
            counter.reads = 0
            for _ in range(far):
                next(iterator)
            runs.append(counter.reads)
            state = json.loads(json.dumps(iterator.get_state()))
            expected = [str(next(iterator)) for _ in range(3)]
        with iter(CHAINS[chain](folder)) as resumed:
            counter.reads = 0
            resumed.set_state(state)
            assert [str(next(resumed)) for _ in range(3)] == expected
            reads.append(counter.reads)
        sizes.append(len(json.dumps(state)))
    assert runs[1] > 40  # so many blocks lie before the position
    assert max(reads) < 12 + runs[0]
    assert reads[1] < runs[1] / 2
    assert max(sizes) < 3000


def test_records_reach_the_parser_as_one_column(folder):
    kinds = []

    def parse(records):
        kinds.append(type(records))
        return parse_example(records, SPEC)

    data = TFRecordDataset([folder / f"{i}.tfrecord" for i in range(FILES)])
    batches = list(data.shuffle(1000, seed=1).batch(512).map(parse))
    assert set(kinds) == {Strings}
    found = np.sort(np.concatenate([batch["x"] for batch in batches]))
    assert found.tolist() == list(range(FILES * ROWS))


def test_batched_features_are_all_there_once_an_epoch(folder):
    data = make_batched_features_dataset(
        str(folder / "*.tfrecord"),
        100,
        SPEC,
        label_key="x",
        num_epochs=1,
        reader_num_threads=3,
    )
    seen = []
    for features, label in data:
        assert features.keys() == {"s"}
        assert [int(s) for s in features["s"].tolist()] == label.tolist()
        seen += label.tolist()
    assert sorted(seen) == list(range(FILES * ROWS)) != seen


def test_an_endless_dataset_drops_no_record_between_epochs(folder):
    data = make_batched_features_dataset(
        str(folder / "0.tfrecord"), 300, SPEC, label_key="x", shuffle=False
    )
    with iter(data) as batches:
        labels = np.concatenate([next(batches)[1] for _ in range(4)])
    assert labels.tolist() == list(range(ROWS)) * 3
