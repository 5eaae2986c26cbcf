"""A body that is parsed in pieces has the values of one that is parsed at once."""

import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimax.serving import json_bodies
from estimax.serving.json_bodies import JsonPieces, parse_in_pieces
from estimax.serving.status import ServingError

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
