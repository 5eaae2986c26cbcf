"""Examples to columns: what TensorFlow's golden cases leave open, and our messages."""

import threading

import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.formats.messages import encode_varint
from estimax.formats.records import find_record, write_records
from estimax.input import (
    Dataset,
    Example,
    ExampleError,
    ExampleParser,
    FixedLenFeature,
    FixedLenSequenceFeature,
    RaggedFeature,
    SparseFeature,
    VarLenFeature,
    parse_example,
    parse_single_example,
    serialize_examples,
)
from estimax.input.examples.specs import (
    RowLengths,
    RowLimits,
    RowSplits,
    RowStarts,
    UniformRowLength,
    ValueRowIds,
)

pytestmark = pytest.mark.usefixtures("native")


def _field(number, data):
    return encode_varint(number << 3 | 2) + encode_varint(len(data)) + data


def _example(*entries):
    return _field(1, b"".join(_field(1, entry) for entry in entries))


def _entry(key, feature):
    return _field(1, key) + _field(2, feature)


def _values(record, key, dtype):
    return parse_single_example(record, {key: VarLenFeature(dtype)})[key].values


def test_packed_and_lone_chunks_of_one_list_are_joined():
    chunks = _field(1, b"\x01\x02") + b"\x08\x03" + _field(1, b"\x04")
    record = _example(_entry(b"n", _field(3, chunks)))
    assert _values(record, "n", "int64").tolist() == [1, 2, 3, 4]


def test_a_kind_that_is_set_twice_adds_and_another_kind_replaces():
    twice = _field(3, _field(1, b"\x01")) + _field(3, _field(1, b"\x02"))
    assert _values(_example(_entry(b"n", twice)), "n", "int64").tolist() == [1, 2]
    other = _field(1, _field(1, b"text")) + _field(3, _field(1, b"\x02"))
    assert _values(_example(_entry(b"n", other)), "n", "int64").tolist() == [2]


def test_a_later_entry_of_a_key_hides_an_earlier_one_of_the_wrong_kind():
    wrong = _entry(b"n", _field(1, _field(1, b"text")))
    right = _entry(b"n", _field(3, _field(1, b"\x07")))
    features = {"n": FixedLenFeature([], "int64")}
    assert parse_single_example(_example(wrong, right), features) == {"n": 7}
    with pytest.raises(ExampleError, match="expected int64, found a bytes_list"):
        parse_single_example(_example(right, wrong), features)


def test_keys_may_come_in_another_order_in_every_record():
    keys = ["a", "bb", "key of twenty bytes.", "key of twenty bytes!", "abcde", ""]
    rng = np.random.default_rng(3)
    records = []
    for row in range(50):
        entries = []
        for i in rng.permutation(len(keys)):
            value = _field(3, _field(1, encode_varint(100 * row + int(i))))
            entries.append(_entry(keys[i].encode(), value))
        records.append(_example(*entries))
    features = {key: FixedLenFeature([], "int64") for key in keys}
    for i, key in enumerate(keys):
        found = parse_example(records, features)[key]
        assert found.tolist() == [100 * row + i for row in range(50)]


def test_keys_and_texts_of_any_length_are_read():
    sizes = (1, 6, 7, 14, 15, 30, 60, 109, 110, 111, 127, 128, 200)
    texts = {
        "k" * n: Strings.of([b"x" * ((13 * n + row) % 140) for row in range(50)])
        for n in sizes
    }
    records = serialize_examples(texts)
    fixed = parse_example(records, {k: FixedLenFeature([], "string") for k in texts})
    variable = parse_example(records, {k: VarLenFeature("string") for k in texts})
    for key, text in texts.items():
        assert fixed[key].tolist() == text.tolist()
        assert variable[key].values.tolist() == text.tolist()


def test_records_with_thousands_of_other_features_are_read():
    values = {f"key{i}": i for i in range(3000)}
    record = Example.of(values).serialize()
    wanted = {f"key{i}": FixedLenFeature([1], "int64") for i in (0, 1500, 2999)}
    found = parse_example([record] * 3, wanted)
    assert {key: column[2, 0] for key, column in found.items()} == {
        key: values[key] for key in wanted
    }


def test_what_is_serialised_in_columns_is_parsed_again():
    rng = np.random.default_rng(5)
    columns = {
        "f": rng.normal(size=(40, 3)).astype(np.float32),
        "n": rng.integers(-(2**63), 2**63 - 1, 40),
        "s": Strings.of([b"x" * int(n) for n in rng.integers(0, 40, 40)]),
        "b": rng.random(40) < 0.5,
    }
    records = serialize_examples(columns)
    found = parse_example(
        records,
        {
            "f": FixedLenFeature([3], "float32"),
            "n": FixedLenFeature([], "int64"),
            "s": FixedLenFeature([], "string"),
            "b": FixedLenFeature([], "int64"),
        },
    )
    assert found["f"].tolist() == columns["f"].tolist()
    assert found["n"].tolist() == columns["n"].tolist()
    assert found["s"].tolist() == columns["s"].tolist()
    assert found["b"].tolist() == columns["b"].astype(int).tolist()


def test_columns_are_written_as_single_examples_are():
    rows = [{"x": [1.5, -2.0], "n": [-1], "s": [b"a"]}, {"x": [0.0, 3.0], "s": [b""]}]
    found = parse_example(
        [Example.of(row).serialize() for row in rows],
        {
            "x": FixedLenFeature([2], "float32"),
            "n": VarLenFeature("int64"),
            "s": RaggedFeature("string"),
        },
    )
    assert serialize_examples(found).tolist() == [
        Example.of(row).serialize() for row in rows
    ]


def test_text_defaults_stand_among_texts_of_any_length():
    texts = [[b"x" * n] for n in (0, 7, 8, 9, 100)]
    records = [Example.of({"s": text}).serialize() for text in texts] + [b""]
    features = {"s": FixedLenFeature([1], "string", default_value="missing")}
    found = parse_example(records, features)["s"]
    assert found.tolist() == [text[0] for text in texts] + [b"missing"]


def test_errors_name_the_example_the_feature_and_the_byte():
    good = Example.of({"x": [1.0]}).serialize()
    features = {"x": FixedLenFeature([], "float32")}
    with pytest.raises(ExampleError, match="example 1 of the batch: feature 'x'"):
        parse_example([good, b""], features)
    with pytest.raises(ExampleError, match=r"example b\.tfrecord, record 7:.*missing"):
        parse_example([good, b""], features, lambda i: f"b.tfrecord, record {7 * i}")
    with pytest.raises(ExampleError, match=r"example second: .*broken at byte 1"):
        parse_example([good, good[:-1]], features, [b"first", b"second"])
    twice = Example.of({"x": [1.0, 2.0]}).serialize()
    with pytest.raises(ExampleError, match="expected 1 values, found 2") as caught:
        parse_example([twice], features)
    assert (caught.value.record, caught.value.feature) == (0, "x")


def test_a_wrong_example_is_found_again_in_its_file(tmp_path):
    records = serialize_examples({"x": np.arange(100)})
    write_records(tmp_path / "a", records[:60])
    write_records(tmp_path / "b", records[60:])
    with pytest.raises(ExampleError) as caught:
        parse_example(records[80:], {"x": FixedLenFeature([2], "int64")})
    files = [tmp_path / "a", tmp_path / "b"]
    assert "/b, record 20 (byte 600)" in find_record(files, caught.value.data)
    assert find_record(files, b"elsewhere") is None


def test_a_description_that_cannot_be_used_is_refused_at_once():
    def refuse(features, match):
        with pytest.raises(InputError, match=match):
            ExampleParser(features)

    refuse({}, "empty")
    refuse({"x": FixedLenFeature([None], "float32")}, "fully known")
    refuse({"x": FixedLenFeature([], "float64")}, "float32, int64 or string")
    refuse({"x": FixedLenFeature([2], "int64", 3)}, "must have 2 values, got 1")
    refuse({"x": FixedLenSequenceFeature([], "int64")}, "allow_missing=True")
    refuse({"x": 3}, "got int")
    sparse = SparseFeature("x", "v", "float32", 9)
    refuse(
        {"x": FixedLenFeature([], "int64"), "s": sparse}, "two features read key 'x'"
    )
    refuse({"v": VarLenFeature("int64"), "s": sparse}, "'v', one as int64 and one as")


def test_variable_and_sparse_features_may_share_a_key():
    record = Example.of({"i": [5, 2], "v": [0.5, 0.25]}).serialize()
    features = {
        "v": VarLenFeature("float32"),
        "s": SparseFeature("i", "v", "float32", 9),
    }
    found = parse_example([record], features)
    assert found["v"].values.tolist() == [0.5, 0.25]
    assert found["s"].values.tolist() == [0.25, 0.5]
    assert found["s"].indices.tolist() == [[0, 2], [0, 5]]


def test_sparse_values_without_their_indices_are_refused():
    record = Example.of({"i": [5], "v": [0.5, 0.25]}).serialize()
    features = {"s": SparseFeature("i", "v", "float32", 9)}
    with pytest.raises(ExampleError, match="2 values under 'v' and 1 indices under"):
        parse_example([record], features)


PARTITIONS = {
    RowLengths("p"): ([1, 0, 2], [3]),
    RowSplits("p"): ([0, 1, 1, 3], [0, 3]),
    RowStarts("p"): ([0, 1, 1], [0]),
    RowLimits("p"): ([1, 1, 3], [3]),
    ValueRowIds("p"): ([0, 2, 2], [0, 0, 0]),
}


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_every_partition_cuts_each_record(partition):
    first, second = PARTITIONS[partition]
    records = [
        Example.of({"v": [1, 2, 3], "p": first}).serialize(),
        b"",
        Example.of({"v": [4, 5, 6], "p": second}).serialize(),
    ]
    feature = RaggedFeature("int64", value_key="v", partitions=[partition])
    found = parse_example(records, {"r": feature})["r"]
    assert found.tolist() == [[[1], [], [2, 3]], [], [[4, 5, 6]]]


def test_partitions_nest():
    record = Example.of({"v": [1, 2, 3, 4], "inner": [1, 1, 2], "outer": [2, 1]})
    inner, outer = RowLengths("inner"), RowLengths("outer")
    feature = RaggedFeature("int64", "v", partitions=[outer, inner])
    found = parse_example([record.serialize()], {"r": feature})["r"]
    assert found.tolist() == [[[[1], [2]], [[3, 4]]]]
    uniform = RaggedFeature(
        "int64", "v", partitions=[RowLengths("two"), UniformRowLength(2)]
    )
    record = Example.of({"v": [1, 2, 3, 4], "two": [0, 2]}).serialize()
    single = parse_single_example(record, {"r": uniform})["r"]
    assert single.tolist() == [[], [[1, 2], [3, 4]]]


@pytest.mark.parametrize(
    ("partition", "numbers"),
    [
        (RowLengths("p"), [1, 1]),
        (RowLengths("p"), [4, -1]),
        (RowSplits("p"), [0, 2]),
        (RowSplits("p"), [0, 5, 3]),
        (ValueRowIds("p"), [0, 1]),
        (ValueRowIds("p"), [0, -5, 7]),
        (ValueRowIds("p"), [0, 0, -1]),
        (ValueRowIds("p"), [0, 0, 2**62]),
        (UniformRowLength(2), []),
        (UniformRowLength(0), []),
    ],
    ids=str,
)
def test_partitions_that_do_not_fit_the_values_are_refused(partition, numbers):
    record = Example.of({"v": [1, 2, 3], "p": numbers}).serialize()
    feature = RaggedFeature("int64", "v", partitions=[partition])
    with pytest.raises(ExampleError, match="feature 'r'"):
        parse_example([record], {"r": feature})


def test_threads_parse_with_one_parser():
    columns = {"x": np.arange(2000), "s": Strings.of([str(i) for i in range(2000)])}
    records = serialize_examples(columns)
    parser = ExampleParser(
        {"x": FixedLenFeature([], "int64"), "s": VarLenFeature("string")}
    )
    wrong = []

    def work():
        for _ in range(20):
            found = parser(records)
            if found["x"].tolist() != list(range(2000)):
                wrong.append("x")
            if found["s"].values.tolist() != columns["s"].tolist():
                wrong.append("s")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_slice_of_a_block_of_records_parses_without_copying_it():
    records = serialize_examples({"x": np.arange(10)})
    found = parse_example(records[3:6], {"x": FixedLenFeature([], "int64")})
    assert found["x"].tolist() == [3, 4, 5]


def test_a_single_record_is_no_vector():
    with pytest.raises(InputError, match="parse_single_example"):
        parse_example(b"abc", {"x": VarLenFeature("int64")})
    with pytest.raises(InputError, match="Use parse_example for several"):
        parse_single_example([b"abc"], {"x": VarLenFeature("int64")})


def test_ragged_features_are_unbatched_shuffled_cached_and_batched(tmp_path):
    rows = [{"x": [0, 1, 2]}, {}, {"x": [0]}, {"x": [0, 1]}]
    records = [Example.of(row).serialize() for row in rows]
    data = Dataset.from_tensor_slices(records).batch(3)
    data = data.map(lambda batch: parse_example(batch, {"x": RaggedFeature("int64")}))
    data = data.unbatch().shuffle(4, seed=1).cache(tmp_path / "kept").batch(4)
    for _ in range(2):
        (batch,) = data
        assert sorted(batch["x"].tolist()) == [[], [0], [0, 1], [0, 1, 2]]


def test_a_missing_feature_is_told_its_neighbours():
    record = Example.of({"age": 1.0, "city": "Rome"}).serialize()
    with pytest.raises(ExampleError, match=r"'agee' .*missing.*did you mean 'age'\?"):
        parse_example([record], {"agee": FixedLenFeature([], "float32")})
    with pytest.raises(ExampleError, match=r"missing.*has no features"):
        parse_example([b""], {"age": FixedLenFeature([], "float32")})


def test_examples_are_read_alike_alone_and_beside_others_of_other_layouts():
    rng = np.random.default_rng(5)
    keys = ["a", "b", "longer key", "unread", "unread too"]

    def record():
        chosen = rng.permutation(keys)[: rng.integers(3, 6)]
        chosen = [*chosen, chosen[0]] if rng.random() < 0.2 else chosen
        entries = [(key, bytes([rng.integers(100)])) for key in chosen]
        return _example(
            *(
                _field(1, key.encode()) + _field(2, _field(3, _field(1, value)))
                for key, value in entries
            )
        )

    features = {key: VarLenFeature("int64") for key in keys[:3]}
    records = [r for _ in range(40) for r in [record()] * rng.integers(1, 4)]
    together = parse_example(records, features)
    for row, alone in enumerate(parse_example([r], features) for r in records):
        for key, column in together.items():
            mine = column.values[column.indices[:, 0] == row]
            assert mine.tolist() == alone[key].values.tolist()
