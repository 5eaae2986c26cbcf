"""TensorProto messages, as real clients write them and as hostile ones do."""

import ml_dtypes
import numpy as np
import pytest

from estimax.export import TensorInfo
from estimax.serving.protos import data_types, message
from estimax.serving.status import ServingError
from estimax.serving.tensors import array_from_proto, columns_from_proto, fill_proto


def proto(dtype, shape=None, **fields):
    made = message("tensorflow.TensorProto")(dtype=data_types()[dtype], **fields)
    for size in shape or ():
        made.tensor_shape.dim.add(size=size)
    return made


def read(made):
    return array_from_proto(made, "input 'x'")


def test_content_is_little_endian_and_in_row_order():
    content = np.array([[1, 2], [3, 4]], "<f4").tobytes()
    found = read(proto("DT_FLOAT", [2, 2], tensor_content=content))
    assert found.tolist() == [[1, 2], [3, 4]]
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    ("values", "shape", "expected"),
    [
        ([5.0], [3], [5, 5, 5]),  # the last value fills the rest
        ([1.0, 2.0], [4], [1, 2, 2, 2]),
        ([], [2], [0, 0]),
        ([1.0, 2.0, 3.0], [2], [1, 2]),  # the surplus is ignored
        ([7.0], None, 7.0),  # no shape is a scalar
        ([], [0], []),
    ],
)
def test_typed_values_are_filled_to_the_shape(values, shape, expected):
    assert read(proto("DT_FLOAT", shape, float_val=values)).tolist() == expected


@pytest.mark.parametrize(
    ("dtype", "field", "given", "expected"),
    [
        ("DT_INT32", "int_val", [-3], np.int32(-3)),
        ("DT_UINT8", "int_val", [300], np.uint8(44)),  # wraps around
        ("DT_INT64", "int64_val", [2**40], np.int64(2**40)),
        ("DT_BOOL", "bool_val", [True], np.bool_(True)),
        ("DT_UINT64", "uint64_val", [2**63], np.uint64(2**63)),
        ("DT_HALF", "half_val", [0x3C00], np.float16(1)),
        ("DT_BFLOAT16", "half_val", [0x3F80], ml_dtypes.bfloat16(1)),
    ],
)
def test_every_dtype_has_its_field(dtype, field, given, expected):
    (found,) = read(proto(dtype, [1], **{field: given}))
    assert found == expected
    assert found.dtype == expected.dtype


def test_strings_are_read_from_both_forms():
    expected = [b"a", b"", b"xyz"]
    typed = read(proto("DT_STRING", [3], string_val=expected))
    assert typed.tolist() == expected
    packed = read(proto("DT_STRING", [3], tensor_content=b"\x01\x00\x03axyz"))
    assert packed.tolist() == expected


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (proto("DT_FLOAT", [2], tensor_content=b"123"), "expected 8 bytes"),
        (proto("DT_FLOAT", [-1]), "sizes of 0 or more"),
        (proto("DT_FLOAT", [2**40]), "at most"),
        (proto("DT_FLOAT", [1], int_val=[3]), "keeps values in float_val"),
        (proto("DT_STRING", [2], tensor_content=b"\xff"), "no lengths"),
        (proto("DT_STRING", [1], tensor_content=b"\x09ab"), "expected 10 bytes"),
        (proto("DT_COMPLEX64", [1]), "not supported"),
    ],
)
def test_a_malformed_tensor_is_an_invalid_argument(made, words):
    with pytest.raises(ServingError, match=words) as raised:
        read(made)
    assert raised.value.code.name == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "array",
    [
        np.array([[1.5, 2.5]], np.float32),
        np.array([1, 2**40], np.int64),
        np.array([True, False]),
        np.array([1.5], np.float16),
        np.array([b"a", b"\xff"], dtype=object),
        np.empty((0, 3), np.float32),
    ],
)
@pytest.mark.parametrize("as_content", [False, True])
def test_what_is_written_is_read_again(array, as_content):
    made = message("tensorflow.TensorProto")()
    fill_proto(made, array, as_content=as_content)
    found = read(made)
    assert np.asarray(found).tolist() == array.tolist()
    assert tuple(found.shape) == array.shape


def test_answers_are_in_typed_fields_with_every_element():
    made = message("tensorflow.TensorProto")()
    fill_proto(made, np.array([3.0, 3.0, 3.0], np.float32))
    assert list(made.float_val) == [3.0, 3.0, 3.0]
    assert not made.tensor_content


SPECS = (
    TensorInfo("age", "float32", (None,)),
    TensorInfo("city", "string", (None, 1)),
    TensorInfo("tags", "string", (None, None), kind="sparse"),
)


def inputs(**changed):
    given = {
        "age": proto("DT_FLOAT", [2], float_val=[1.0, 2.0]),
        "city": proto("DT_STRING", [2, 1], string_val=[b"Oslo", b"Rome"]),
        "tags": proto("DT_STRING", [2, 1], string_val=[b"a", b"b"]),
        **changed,
    }
    return {n: p.SerializeToString() for n, p in given.items() if p is not None}


def test_inputs_are_decoded_by_their_specs():
    columns = columns_from_proto(inputs(), SPECS)
    assert columns["age"].tolist() == [1.0, 2.0]
    assert columns["city"].tolist() == [b"Oslo", b"Rome"]
    assert columns["city"].shape == (2, 1)


MILLIONS = proto("DT_STRING", [2**24], string_val=[b"x"])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"other": MILLIONS}, "unknown feature 'other'"),
        ({"other": MILLIONS, "extra": MILLIONS}, "features 'other', 'extra'"),
        ({"city": MILLIONS}, r"'city': expected 2 rows.* found 16777216"),
        ({"age": proto("DT_FLOAT", [10**6], float_val=[1.0])}, "at most 1000 rows"),
        ({"age": proto("DT_FLOAT", [2, 10**6], float_val=[1.0])}, r"\[B\], found"),
        ({"age": proto("DT_FLOAT", [], float_val=[1.0])}, "a single value"),
        ({"age": proto("DT_DOUBLE", [2])}, "float32 .DT_FLOAT., found DT_DOUBLE"),
        ({"tags": proto("DT_STRING", [2, 2, 2])}, r"found .*\[2, 2, 2\]"),
        ({"tags": proto("DT_STRING", [2, 2**22], string_val=[b"x"])}, "repeats"),
        ({"city": proto("DT_STRING", [2], string_val=[b"x" * 2**26])}, "repeats"),
    ],
)
def test_what_a_message_promises_is_checked_before_it_is_filled(changed, words):
    given = inputs(**changed)
    with pytest.raises(ServingError, match=words) as raised:
        columns_from_proto(given, SPECS, max_rows=1000)
    assert raised.value.code.name == "INVALID_ARGUMENT"
