"""Examples built and read as with the classes of `tf.train`."""

import numpy as np
import pytest

import estimax as ex
from estimax.core.errors import InputError
from estimax.input import (
    BytesList,
    Example,
    Feature,
    FeatureList,
    FeatureLists,
    Features,
    FloatList,
    Int64List,
    SequenceExample,
)
from estimax.input.readers import read_example_dtypes


def int64_feature(value):
    return Feature(int64_list=Int64List(value=[value]))


EXAMPLE = Example(
    features=Features(
        feature={
            "age": int64_feature(np.int64(31)),
            "name": Feature(bytes_list=BytesList(value=[b"Ada"])),
            "x": Feature(float_list=FloatList(value=np.array([0.5, 1.5], np.float32))),
        }
    )
)


def test_the_classes_of_tensorflow_build_the_same_message():
    assert Example.of({"age": 31, "name": "Ada", "x": [0.5, 1.5]}) == EXAMPLE
    assert EXAMPLE.SerializeToString() == EXAMPLE.serialize()
    assert Example.FromString(EXAMPLE.SerializeToString()) == EXAMPLE


def test_values_are_read_as_in_tensorflow():
    features = Example.FromString(EXAMPLE.serialize()).features
    assert features.feature["age"].int64_list.value[0] == 31
    assert features.feature["name"].bytes_list.value == (b"Ada",)
    assert list(features.feature["x"].float_list.value) == [0.5, 1.5]
    assert features.feature["x"].int64_list.value == ()


def test_an_empty_list_keeps_its_kind():
    example = Example(Features(feature={"a": Feature(int64_list=Int64List())}))
    assert Example.FromString(example.SerializeToString()) == example


def test_a_sequence():
    lists = FeatureLists(
        feature_list={"n": FeatureList(feature=[int64_feature(1), int64_feature(2)])}
    )
    context = Features(feature={"user": Feature(bytes_list=BytesList(value=[b"ann"]))})
    made = SequenceExample(context=context, feature_lists=lists)
    assert made == SequenceExample.of({"user": "ann"}, {"n": [[1], [2]]})
    read = SequenceExample.FromString(made.SerializeToString())
    steps = read.feature_lists.feature_list["n"].feature
    assert [step.int64_list.value[0] for step in steps] == [1, 2]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Int64List(value=[1.5]), r"Int64List.*1\.5"),
        (lambda: Int64List(value=3), r"Int64List.*value=\[3\]"),
        (lambda: FloatList(value=["a"]), "FloatList.*'a'"),
        (lambda: BytesList(value=[3]), "BytesList.*3"),
        (lambda: BytesList(value=b"abc"), r"BytesList.*value=\[b'abc'\]"),
        (
            lambda: Feature(int64_list=Int64List(), float_list=FloatList()),
            "one of.*int64_list",
        ),
        (lambda: Feature(int64_list=[3]), r"Int64List\(value=\[3\]\)"),
    ],
)
def test_a_wrong_list_is_refused(make, words):
    with pytest.raises((InputError, TypeError), match=words):
        make()


def test_parse_from_string_names_from_string():
    with pytest.raises(AttributeError, match=r"Example\.FromString"):
        Example().ParseFromString(b"")


def test_python_io_writes_and_reads(tmp_path):
    python_io = ex.input.python_io
    path = str(tmp_path / "a.tfrecord")
    options = python_io.TFRecordOptions(python_io.TFRecordCompressionType.GZIP)
    with python_io.TFRecordWriter(path, options=options) as writer:
        for age in (1, 2):
            writer.write(Example.of({"age": age}).SerializeToString())
    found = [
        Example.FromString(record).features.feature["age"].int64_list.value[0]
        for record in python_io.tf_record_iterator(path, options)
    ]
    assert found == [1, 2]


def test_the_dtypes_of_a_file_are_those_of_its_first_example(tmp_path):
    path = str(tmp_path / "a.tfrecord.gz")
    first = Example(
        {"n": Feature.of(1), "x": Feature.of(0.5), "s": Feature.of("a"), "e": Feature()}
    )
    with ex.input.TFRecordWriter(path, "GZIP") as writer:
        writer.write(first.serialize())
        writer.write(Example.of({"n": 0.5}).serialize())
    expected = {"n": "int64", "x": "float32", "s": "string", "e": None}
    assert read_example_dtypes(path, "GZIP") == expected


def test_a_file_without_records_has_no_dtypes(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(b"")
    assert read_example_dtypes(str(tmp_path / "a.tfrecord"), None) == {}
