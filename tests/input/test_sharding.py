import itertools
import json

import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.formats.records import write_records
from estimax.input import (
    AutoShardPolicy,
    Dataset,
    InputContext,
    Options,
    TextLineDataset,
    TFRecordDataset,
    csv_files,
)


@pytest.fixture
def folder(tmp_path):
    for part in range(5):
        numbers = range(part * 10, part * 10 + 10)
        (tmp_path / f"{part}.txt").write_text("".join(f"{i}\n" for i in numbers))
        write_records(tmp_path / f"{part}.tfrecord", [b"%d" % i for i in numbers])
    return tmp_path


def lines(folder):
    return TextLineDataset([str(folder / f"{i}.txt") for i in range(5)])


PIPELINES = {
    "files": lines,
    "files, shuffled": lambda f: lines(f).shuffle(7).batch(3, False),
    "listed files": lambda f: (
        Dataset.list_files(str(f / "*.txt")).interleave(TextLineDataset, 2).shuffle(9)
    ),
    "records in turn": lambda f: TFRecordDataset(
        [str(f / f"{i}.tfrecord") for i in range(5)], num_parallel_reads=2
    ).batch(4),
    "memory": lambda f: Dataset.from_tensor_slices([b"%d" % i for i in range(50)]),
    "taken": lambda f: lines(f).skip(3).take(40).shuffle(5),
    "zipped": lambda f: Dataset.zip(lines(f).shuffle(9), Dataset.range(50)).map(
        lambda line, i: line
    ),
    "cached": lambda f: lines(f).shuffle(20).cache().batch(5),
}


def values(dataset):
    found = []
    for element in dataset:
        found += [element] if isinstance(element, bytes) else element.tolist()
    return found


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("name", PIPELINES)
def test_each_example_goes_to_exactly_one_process(name, n, folder):
    whole = values(PIPELINES[name](folder))
    parts = [values(PIPELINES[name](folder).auto_shard(n, i)) for i in range(n)]
    assert sorted(itertools.chain(*parts)) == sorted(whole)
    assert all(parts)


def test_whole_files_are_dealt_out_where_there_are_enough(folder):
    mine = values(lines(folder).shuffle(50).auto_shard(5, 2))
    assert sorted(mine) == [b"%d" % i for i in range(20, 30)]


def test_records_are_dealt_out_where_files_are_few(folder):
    assert values(lines(folder).auto_shard(10, 3))[:3] == [b"3", b"13", b"23"]


def test_options_can_ask_for_records(folder):
    options = Options()
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.DATA
    assert values(lines(folder).with_options(options).auto_shard(5, 2))[0] == b"2"
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF
    assert len(values(lines(folder).with_options(options).auto_shard(5, 2))) == 50
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.FILE
    with pytest.raises(InputError, match="fewer files than the 7 processes"):
        lines(folder).with_options(options).auto_shard(7, 2)


def test_later_epochs_are_divided_as_well():
    parts = [
        np.concatenate(list(Dataset.range(10).repeat(2).batch(4).auto_shard(2, i)))
        for i in range(2)
    ]
    assert sorted(np.concatenate(parts)) == sorted([*range(10)] * 2)


def test_an_index_out_of_range_is_refused(folder):
    with pytest.raises(InputError, match=r"index must be in \[0, 2\), got 2"):
        lines(folder).auto_shard(2, 2)


def test_csv_files_shard_by_file(tmp_path):
    for i in range(4):
        (tmp_path / f"{i}.csv").write_text(f"n\n{i}\n")
    data = csv_files(str(tmp_path / "*.csv")).auto_shard(2, 1)
    assert [row["n"].item() for row in data] == [1, 3]


def test_every_trainer_of_a_cluster_has_a_part_of_its_own():
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "evaluator": ["d:1"]}
    tasks = [("chief", 0), ("worker", 0), ("worker", 1)]
    seen = []
    for kind, index in tasks:
        config = {"cluster": cluster, "task": {"type": kind, "index": index}}
        context = InputContext.from_tf_config({"TF_CONFIG": json.dumps(config)})
        seen += [int(x) for x in context.shard(Dataset.range(10).shuffle(10))]
    assert sorted(seen) == list(range(10))


def test_a_process_alone_reads_everything():
    assert InputContext.from_tf_config({}) == InputContext(1, 0, 1)


def test_a_batch_must_divide_between_replicas():
    with pytest.raises(InputError, match="64 is not divisible by 3"):
        InputContext(num_replicas_in_sync=3).get_per_replica_batch_size(64)
