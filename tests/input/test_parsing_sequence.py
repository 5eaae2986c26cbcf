"""Sequence examples to columns: messages, and what the golden cases leave open."""

import pytest

from estimax.core.errors import InputError
from estimax.input import (
    ExampleError,
    FixedLenFeature,
    FixedLenSequenceFeature,
    RaggedFeature,
    SequenceExample,
    VarLenFeature,
    parse_sequence_example,
    parse_single_sequence_example,
)

pytestmark = pytest.mark.usefixtures("native")


def _record(context=None, **lists):
    return SequenceExample.of(context or {}, lists).serialize()


def test_text_steps_are_padded_with_empty_strings():
    records = [_record(w=[["a"], ["bb"]]), _record(w=[["c"]]), _record()]
    feature = FixedLenSequenceFeature([], "string", allow_missing=True)
    _, found, lengths = parse_sequence_example(records, None, {"w": feature})
    assert found["w"].shape == (3, 2)
    assert found["w"].tolist() == [b"a", b"bb", b"c", b"", b"", b""]
    assert lengths["w"].tolist() == [2, 1, 0]


def test_variable_steps_have_three_indices():
    records = [_record(n=[[1], [], [2, 3]]), _record(n=[[4]])]
    _, found, lengths = parse_sequence_example(
        records, None, {"n": VarLenFeature("int64")}
    )
    assert found["n"].indices.tolist() == [[0, 0, 0], [0, 2, 0], [0, 2, 1], [1, 0, 0]]
    assert found["n"].values.tolist() == [1, 2, 3, 4]
    assert found["n"].dense_shape == (2, 3, 2)
    assert lengths == {}


def test_context_and_sequences_of_one_record_have_no_batch():
    record = _record({"user": "ann"}, x=[[0.5, 1.0], [2.0, 3.0]])
    context, sequences = parse_single_sequence_example(
        record,
        {"user": FixedLenFeature([], "string")},
        {"x": FixedLenSequenceFeature([2], "float32")},
    )
    assert context == {"user": b"ann"}
    assert sequences["x"].tolist() == [[0.5, 1.0], [2.0, 3.0]]


def test_errors_name_the_example_and_the_list():
    records = [_record(n=[[1]]), _record(n=[[1], [2, 3]])]
    fixed = {"n": FixedLenSequenceFeature([], "int64")}
    with pytest.raises(
        ExampleError, match=r"example b: feature 'n' .* found 2"
    ) as error:
        parse_sequence_example(records, None, fixed, ["a", "b"])
    assert error.value.record == 1
    with pytest.raises(ExampleError, match="expected float32, found a int64_list"):
        parse_sequence_example(records, None, {"n": VarLenFeature("float32")})
    with pytest.raises(ExampleError, match=r"feature list 'm' .* missing"):
        parse_sequence_example(
            records, None, {"m": FixedLenSequenceFeature([], "int64")}
        )
    with pytest.raises(ExampleError, match="broken at byte"):
        parse_sequence_example([records[1][:-1]], None, fixed)


@pytest.mark.parametrize(
    ("context", "sequences", "match"),
    [
        (None, None, "or both"),
        ({"a": FixedLenSequenceFeature([], "int64")}, None, "belongs to seq"),
        (None, {"a": FixedLenFeature([], "int64")}, "got FixedLenFeature"),
        (None, {"a": VarLenFeature("int32")}, "float32, int64 or string"),
        (
            None,
            {"a": FixedLenSequenceFeature([], "int64", True, default_value=1)},
            "default_value",
        ),
        (None, {"a": RaggedFeature("int64", value_key="b")}, "value_key"),
    ],
)
def test_descriptions_that_cannot_be_used_are_refused(context, sequences, match):
    with pytest.raises(InputError, match=match):
        parse_sequence_example([], context, sequences)


def test_an_empty_batch_has_no_steps():
    features = {
        "n": VarLenFeature("int64"),
        "p": FixedLenSequenceFeature([2], "float32", allow_missing=True),
        "r": RaggedFeature("string"),
    }
    _, found, lengths = parse_sequence_example([], None, features)
    assert found["n"].dense_shape == (0, 0, 0)
    assert found["p"].shape == (0, 0, 2)
    assert found["r"].tolist() == []
    assert lengths["p"].tolist() == []
