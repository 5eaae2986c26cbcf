"""An example that cannot be parsed names its file, wherever it came through."""

import pytest

from estimax.formats.records import write_records
from estimax.input import (
    Dataset,
    Example,
    ExampleError,
    FixedLenFeature,
    TFRecordDataset,
    make_batched_features_dataset,
    parse_example,
)

SPEC = {"x": FixedLenFeature([], "float32")}


@pytest.fixture
def folder(tmp_path):
    """Two files of forty examples; number 7 of the second has text for a number."""
    for name in ("a", "b"):
        examples = [Example.of({"x": float(i)}).serialize() for i in range(40)]
        if name == "b":
            examples[7] = Example.of({"x": "seven"}).serialize()
        write_records(tmp_path / name, examples)
    return tmp_path


def _parse(records):
    return parse_example(records, SPEC)


def _files(folder):
    return [str(folder / "a"), str(folder / "b")]


def _of_files(folder):
    return TFRecordDataset(_files(folder))


def _of_interleave(folder):
    names = Dataset.list_files(str(folder / "*")).repeat()
    return names.interleave(lambda name: TFRecordDataset([name]), cycle_length=2)


def _of_parallel_reads(folder):
    return TFRecordDataset(_files(folder), num_parallel_reads=2)


def _of_two(folder):
    first, second = (TFRecordDataset(path) for path in _files(folder))
    return first.concatenate(second).shuffle(80)


@pytest.mark.parametrize(
    "source", [_of_files, _of_interleave, _of_parallel_reads, _of_two]
)
@pytest.mark.parametrize("threads", [None, 2])
def test_a_parse_error_names_file_record_and_byte(folder, source, threads):
    data = source(folder).batch(16).map(_parse, num_parallel_calls=threads).prefetch(1)
    with pytest.raises(ExampleError) as found:
        list(data)
    where = f"{folder / 'b'}, record 7 (byte {7 * (16 + 17)})"
    assert found.value.where == where
    assert str(found.value).startswith(f"{where}, example ")
    assert "feature 'x'" in str(found.value)


def test_make_batched_features_dataset_names_the_file(folder):
    data = make_batched_features_dataset(str(folder / "*"), 8, SPEC, num_epochs=1)
    with pytest.raises(ExampleError, match=r"b, record 7 \(byte 231\), example \d of"):
        list(data)


def test_records_that_were_changed_on_the_way_keep_the_message(folder):
    data = TFRecordDataset(_files(folder)).map(lambda record: record[:-1]).batch(4)
    with pytest.raises(ExampleError, match=r"^example 0 of the batch") as found:
        list(data.map(_parse))
    assert found.value.where is None


def test_a_search_that_fails_keeps_the_message(folder):
    calls = []

    def once(name):
        calls.append(name)
        if len(calls) > 2:
            raise RuntimeError("opened too often")
        return TFRecordDataset([name])

    names = Dataset.list_files(str(folder / "*"))
    data = names.interleave(once, cycle_length=2).batch(8).map(_parse)
    with pytest.raises(ExampleError, match=r"^example") as found:
        list(data)
    assert "opened too often" in found.value.__notes__[0]
