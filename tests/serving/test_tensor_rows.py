"""Rows cut out of the bytes of tensors are those that protobuf reads."""

import random

import numpy as np
import pytest

from estimax.export import TensorInfo
from estimax.export.requests import RequestReader
from estimax.serving.protos import message
from estimax.serving.requests import FeatureReader, PendingRows
from estimax.serving.status import ServingError
from estimax.serving.tensors import TensorReader, check_inputs, fill_proto, tensor_bytes
from estimax.staging.trace import Origin

SPECS = (
    TensorInfo("city", "string", (None,)),
    TensorInfo("name", "string", (None, 1)),
    TensorInfo("age", "float32", (None,), default=0.5),
    TensorInfo("time", "float64", (None,)),
    TensorInfo("hours", "int64", (None,)),
    TensorInfo("level", "int8", (None,)),
    TensorInfo("is_new", "bool", (None,)),
    TensorInfo("tags", "string", (None, None), kind="sparse"),
)
ORIGINS = [Origin("features", spec.name) for spec in SPECS]
ROW = {
    "city": np.array([b"Oslo"], object),
    "name": np.array([["\u00c5se".encode() * 50]], object),
    "age": np.array([np.nan], np.float32),
    "time": np.array([0.1]),
    "hours": np.array([-(2**40)]),
    "level": np.array([[-128]], np.int8),
    "is_new": np.array([True]),
    "tags": np.array([[b"a", b"\xff"]], object),
}


def inputs(as_content=False, **changed):
    found = {}
    for name, array in {**ROW, **changed}.items():
        proto = message("tensorflow.TensorProto")()
        fill_proto(proto, array, as_content=as_content)
        found[name] = proto.SerializeToString()
    return found


@pytest.fixture
def reader():
    return TensorReader(SPECS, ORIGINS)


def slowly(given):
    return RequestReader(SPECS, ORIGINS)(check_inputs(given, SPECS).decode())


def plain(value):
    if hasattr(value, "dense_shape"):
        return value.indices.tolist(), value.dense_shape, plain(value.values)
    array = np.asarray(value)
    return array.dtype, array.shape, array.tolist()


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for origin, value in expected.items():
        np.testing.assert_equal(plain(found[origin]), plain(value))


@pytest.mark.parametrize("as_content", [False, True])
def test_a_row_is_cut_out_as_protobuf_reads_it(reader, as_content):
    given = inputs(as_content, hours=np.array([2**40]))
    row = reader.from_inputs(given)
    assert isinstance(row, PendingRows)
    assert_same(reader.raw_batch([row]), slowly(given))


def test_rows_of_several_requests_are_converted_together(reader):
    one, other = inputs(), inputs(city=np.array([b"a\0b"], object))
    rows = [reader.from_inputs(one), reader.from_inputs(other)]
    batch = reader.raw_batch(rows)
    assert batch[ORIGINS[0]].tolist() == [b"Oslo", b"a\0b"]
    assert batch[ORIGINS[4]].tolist() == [-(2**40)] * 2
    assert rows[0].column(ORIGINS[5]).tolist() == [-128]


@pytest.mark.parametrize(
    "changed",
    [
        {"age": np.array([1.0, 2.0], np.float32)},  # two rows
        {"age": np.array([1.0])},  # another dtype
        {"city": np.array([b"a", b"b"], object)},
    ],
)
def test_other_forms_are_left_to_protobuf(reader, changed):
    assert reader.from_inputs(inputs(**changed)) is None
    assert reader.from_inputs({"age": inputs()["age"]}) is None


def test_damaged_tensors_are_never_read_otherwise_than_protobuf_does(reader):
    rng = random.Random(0)
    for _ in range(500):
        given = inputs(bool(rng.randrange(2)))
        name = rng.choice([spec.name for spec in SPECS if spec.name != "tags"])
        data = bytearray(given[name])
        data[rng.randrange(len(data))] = rng.randrange(256)
        given[name] = bytes(data[: rng.choice((len(data), rng.randrange(len(data))))])
        row = reader.from_inputs(given)
        if row is not None:
            assert_same(reader.raw_batch([row]), slowly(given))


def test_other_features_are_checked(reader):
    with pytest.raises(ServingError, match="'tags'"):
        reader.from_inputs(inputs(tags=np.array([1.0], np.float32)))


def test_rows_without_a_feature_of_one_value_are_left_to_protobuf():
    reader = TensorReader(SPECS[-1:], ORIGINS[-1:])
    for rows in (0, 3):
        given = inputs(tags=np.full((rows, 2), b"a", object))
        assert reader.from_inputs({"tags": given["tags"]}) is None


def test_a_short_message_of_many_values_is_not_decoded_at_once(reader):
    proto = message("tensorflow.TensorProto")()
    fill_proto(proto, np.array([[b"a"]], object))
    proto.tensor_shape.dim[1].size = 100_000
    given = inputs() | {"tags": proto.SerializeToString()}
    assert reader.from_inputs(given) is None
    proto.tensor_shape.dim[1].size = 3
    row = reader.from_inputs(given | {"tags": proto.SerializeToString()})
    assert plain(row.column(ORIGINS[-1]))[1] == (1, 3)


def test_json_and_tensors_do_not_share_a_reader(reader):
    assert type(reader) is not FeatureReader


@pytest.mark.parametrize("as_content", [False, True])
@pytest.mark.parametrize(
    "array",
    [
        np.array([[1.5, np.nan]], np.float32),
        np.array([1, -(2**40)]),
        np.array([True, False]),
        np.array([1.5], np.float16),
        np.array([b"a", b"\xff" * 200], object),
        np.empty((0, 3), np.float32),
        np.float64(2.0).reshape(()),
        np.arange(300, dtype=np.float64)[::2],
    ],
    ids=str,
)
def test_answers_have_the_bytes_of_protobuf(array, as_content):
    proto = message("tensorflow.TensorProto")()
    fill_proto(proto, array, as_content=as_content)
    assert tensor_bytes(array, as_content) == proto.SerializeToString()
