"""JSON follows the rules of TensorFlow Serving, at once or in pieces of a body."""

import json
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimax.export import TensorInfo
from estimax.serving import json_bodies
from estimax.serving.json_bodies import (
    JsonPieces,
    dumps,
    parse,
    parse_in_pieces,
    predictions_json,
)
from estimax.serving.requests import columns_from_json
from estimax.serving.status import ServingError

AGE = TensorInfo("age", "float32", (None,))
COUNT = TensorInfo("count", "int32", (None,))
CITY = TensorInfo("city", "string", (None,))
FLAG = TensorInfo("flag", "bool", (None,))
TAGS = TensorInfo("tags", "string", (None, None), kind="sparse")
PAIR = TensorInfo("pair", "float32", (None, 2))


def read(body, *specs):
    return columns_from_json(body, specs)[0]


def test_rows_become_columns():
    rows = [{"age": 1, "city": "Oslo"}, {"age": 2.5, "city": "Rome"}]
    columns, is_row_form = columns_from_json({"instances": rows}, (AGE, CITY))
    assert is_row_form
    assert columns["age"].tolist() == [1.0, 2.5]
    assert columns["city"].tolist() == [b"Oslo", b"Rome"]


def test_one_input_takes_bare_values_or_named_ones():
    assert read({"instances": [1, 2]}, AGE)["age"].tolist() == [1, 2]
    assert read({"instances": [{"age": 1}]}, AGE)["age"].tolist() == [1]
    assert read({"inputs": [1, 2]}, AGE)["age"].tolist() == [1, 2]
    assert read({"inputs": {"age": [1]}}, AGE)["age"].tolist() == [1]
    assert read({"instances": [{"b64": "AP8="}]}, CITY)["city"].tolist() == [b"\0\xff"]


def test_extra_names_are_ignored_in_columns_only():
    body = {"age": [1], "other": [2]}
    assert read({"inputs": body}, AGE)["age"].tolist() == [1]
    with pytest.raises(ServingError, match="row 0: it has 'other'"):
        read({"instances": [{"age": 1, "other": 2}]}, AGE)


def test_lists_of_a_sparse_feature_may_differ_in_length():
    found = read({"instances": [{"tags": ["a", "b"]}, {"tags": []}]}, TAGS)
    assert found["tags"] == [["a", "b"], []]


def test_nested_lists_keep_their_shape():
    assert read({"inputs": [[1, 2], [3, 4]]}, PAIR)["pair"].shape == (2, 2)


def test_nan_and_infinity_are_numbers():
    body = parse(b'{"instances": [NaN, Infinity, -Infinity, 1e400]}')
    found = read(body, AGE)["age"]
    assert np.isnan(found[0])
    assert found[1:].tolist() == [np.inf, -np.inf, np.inf]


@pytest.mark.parametrize(
    ("body", "specs", "words"),
    [
        ({}, [AGE], "neither"),
        ({"instances": [1], "inputs": [1]}, [AGE], "both"),
        ({"instances": []}, [AGE], "at least one row"),
        ({"instances": {"age": 1}}, [AGE], "at least one row"),
        ({"instances": [1]}, [AGE, CITY], "each must be named"),
        ({"instances": [{"city": "a"}]}, [AGE, CITY], "'age' is absent in row 0"),
        ({"instances": [{"age": 1}, 2]}, [AGE], "another value"),
        ({"instances": [1, {"age": 1}]}, [AGE], "an object among them"),
        ({"inputs": {"city": ["a"]}}, [AGE, CITY], "'age' is missing"),
        ({"instances": [True]}, [AGE], "true or false"),
        ({"instances": ["1"]}, [AGE], "a string"),
        ({"instances": [None]}, [AGE], "'age': expected .* found null"),
        ({"instances": [1, True]}, [AGE], "true or false"),
        ({"instances": [1.5]}, [COUNT], r"found 1\.5, a number with a fraction"),
        ({"instances": [1, 2.0]}, [COUNT], r"found 2\.0, .* decimal point; send 2\."),
        ({"instances": [math.nan]}, [COUNT], "found nan, a number with a fraction"),
        ({"instances": [2**31]}, [COUNT], "out of range"),
        ({"instances": [2**80]}, [COUNT], "out of range"),
        ({"instances": [1]}, [FLAG], "a number"),
        ({"instances": [1]}, [CITY], "a number"),
        ({"instances": [{"b64": "*"}]}, [CITY], "base64"),
        ({"instances": [[1, 2], [1]]}, [PAIR], "different lengths"),
        ({"instances": [[1, 2], 3]}, [PAIR], "different lengths"),
        ({"instances": [[1, [2]]]}, [PAIR], "lists beside values"),
        ({"instances": [[["a"], 1]]}, [TAGS], "a number"),
    ],
)
def test_values_that_do_not_fit_are_refused(body, specs, words):
    with pytest.raises(ServingError, match=words):
        columns_from_json(body, specs)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[1]", b'"a"', b"{} x", b"NaN", b"[" * 100_000, b'{"a": NaN', b"\xff"],
)
def test_a_body_that_is_no_json_object_is_refused(body):
    with pytest.raises(ServingError, match="JSON"):
        parse(body)


@pytest.mark.parametrize("last", [7.5, np.nan])
@pytest.mark.parametrize("is_row_form", [True, False])
def test_a_long_answer_is_written_in_parts(last, is_row_form):
    y = np.arange(3000, dtype=np.float32).reshape(1500, 2)
    y[-1, -1] = last
    names = np.array([b"a"] * 1500, object)
    for answers in ({"y": y}, {"y": y, "name": names}):
        found = json.loads(predictions_json(answers, is_row_form))
        if not is_row_form:
            outputs = found["outputs"]
            rows = outputs if len(answers) == 1 else outputs["y"]
        else:
            rows = found["predictions"]
            rows = rows if len(answers) == 1 else [row["y"] for row in rows]
        np.testing.assert_array_equal(rows, y)


def test_float32_is_written_with_its_own_digits():
    answers = {"y": np.array([0.2, 1.0], np.float32)}
    assert predictions_json(answers, True) == b'{"predictions":[0.2,1.0]}'
    mixed = predictions_json({"y": np.array([0.2, np.nan], np.float32)}, True)
    assert mixed == b'{"predictions":[0.2, NaN]}'


def test_several_outputs_are_objects_in_rows_and_arrays_in_columns():
    answers = {
        "a": np.array([1, 2], np.int64),
        "b": np.array([[b"x"], [b"y"]], dtype=object),
    }
    rows = json.loads(predictions_json(answers, True))
    assert rows == {"predictions": [{"a": 1, "b": ["x"]}, {"a": 2, "b": ["y"]}]}
    columns = json.loads(predictions_json(answers, False))
    assert columns == {"outputs": {"a": [1, 2], "b": [["x"], ["y"]]}}


def test_bytes_are_base64_where_the_name_asks_or_they_are_not_utf8():
    words = np.array([b"\xff", b"ok"], dtype=object)
    assert json.loads(predictions_json({"w": words}, True)) == {
        "predictions": [{"b64": "/w=="}, "ok"]
    }
    assert json.loads(predictions_json({"w_bytes": words[1:]}, True)) == {
        "predictions": [{"b64": "b2s="}]
    }


def test_dumps_writes_infinities_as_tokens():
    values = np.array([np.inf, -np.inf, 0.1], np.float32)
    assert dumps({"v": values}, is_finite=False) == (
        b'{"v": [Infinity, -Infinity, 0.1]}'
    )


TEXTS = st.text(alphabet='a"\\[]{},: \u00e5\n', max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(TEXTS, inner, max_size=4)
    ),
    max_leaves=30,
)
BODIES = st.dictionaries(TEXTS, VALUES, max_size=4)


def whole(value):
    if isinstance(value, JsonPieces):
        return value.whole()
    if isinstance(value, dict):
        return {key: whole(inner) for key, inner in value.items()}
    return value


@settings(max_examples=100, deadline=None)
@given(BODIES, st.integers(1, 40), st.booleans(), st.sampled_from((3, 7, 2**20)))
def test_pieces_have_the_values_of_the_whole(body, piece, is_ascii, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_bodies, "_BLOCK", block)
        data = json.dumps(body, ensure_ascii=is_ascii).encode()
        found = parse_in_pieces(data, piece)
        expected = json_bodies.parse(data)
        assert json.dumps(whole(found)) == json.dumps(expected)  # NaN is not NaN


@settings(max_examples=100, deadline=None)
@given(BODIES, st.integers(1, 40), st.data())
def test_a_damaged_body_is_refused_in_pieces_as_well(body, piece, data):
    text = json.dumps(body)
    place = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:place] + data.draw(st.sampled_from('"[]{},:\\ 1')) + text[place:]
    try:
        expected = json_bodies.parse(damaged.encode())
    except ServingError:
        with pytest.raises(ServingError):
            whole(parse_in_pieces(damaged.encode(), piece))
    else:
        found = whole(parse_in_pieces(damaged.encode(), piece))
        assert json.dumps(found) == json.dumps(expected)


@pytest.mark.parametrize(
    "text",
    [
        *('{"a": [1,,2]}', '{"a": [1,2,]}', '{"a": [,1]}', '{"a": [1, 2]', '{"a"}'),
        *('{"a": [1 2]} x', '{"a": [1], }', '{"a": [1]}}', '["a", 1]', '{"a": [1}]'),
    ],
)
def test_what_is_not_json_is_refused(text):
    with pytest.raises(ServingError):
        whole(parse_in_pieces(text.encode(), 1))


def test_a_long_key_takes_little_memory():
    data = b'{"%s\\n": [1, 2]}' % (b"a" * 1_000_000)
    tracemalloc.start()
    try:
        found = parse_in_pieces(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert list(map(len, found)) == [1_000_001]
    assert peak < 30 * len(data)
