import numpy as np
import pyarrow as pa
import pytest

from estimax.core.errors import InputError
from estimax.core.strings import Strings, concatenate, is_text

WORDS = ["Oslo", "", "Zürich", "Rome"]
BYTES = [word.encode() for word in WORDS]


@pytest.mark.parametrize(
    "given",
    [
        WORDS,
        BYTES,
        np.array(WORDS),
        np.array(BYTES),
        np.array(WORDS, dtype=object),
        np.array(WORDS, dtype=np.dtypes.StringDType()),
        pa.array(WORDS),
        pa.array(WORDS, pa.large_string()),
        pa.array(BYTES, pa.binary()),
        pa.array(WORDS).dictionary_encode(),
        pa.chunked_array([WORDS[:1], WORDS[1:]]),
    ],
    ids=lambda given: type(given).__name__,
)
def test_text_of_any_make_becomes_the_same_bytes(given):
    assert Strings.of(given).tolist() == BYTES


def test_nothing_is_the_empty_string():
    assert Strings.of(np.array(["a", None], dtype=object)).tolist() == [b"a", b""]
    assert Strings.of(pa.array(["a", None])).tolist() == [b"a", b""]
    assert Strings.of(pa.array([None, b"a"], pa.binary())).tolist() == [b"", b"a"]


def test_a_slice_of_an_arrow_array_starts_where_the_slice_does():
    assert Strings.of(pa.array(WORDS)[1:3]).tolist() == BYTES[1:3]


def test_numbers_are_refused():
    with pytest.raises(InputError, match="expected text or bytes, got dtype int64"):
        Strings.of(np.arange(3))
    with pytest.raises(InputError, match=r"expected str or bytes, got float: 1\.5"):
        Strings.of(np.array(["a", 1.5], dtype=object))


@pytest.mark.parametrize(
    "index",
    [
        slice(1, 3),
        slice(None, None, 2),
        slice(None, None, -1),
        slice(3, 1),
        np.array([3, 0, 0]),
        np.array([-1, 1]),
        np.array([True, False, False, True]),
        np.array([], dtype=np.int64),
    ],
    ids=str,
)
def test_indexing_is_numpys(index):
    found = Strings.of(WORDS)[index]
    assert found.tolist() == np.array(BYTES, dtype=object)[index].tolist()
    assert found.shape == np.array(WORDS)[index].shape


def test_one_value_is_bytes_and_a_wrong_index_is_an_index_error():
    words = Strings.of(WORDS)
    assert words[0] == b"Oslo"
    assert words[-1] == b"Rome"
    with pytest.raises(IndexError):
        words[4]


def test_a_matrix_is_indexed_by_row():
    table = Strings.of([["a", "bb"], ["", "cc"], ["d", "e"]])
    assert table.shape == (3, 2)
    assert table[1].tolist() == [b"", b"cc"]
    assert table[np.array([2, 0])].tolist() == [b"d", b"e", b"a", b"bb"]
    assert table[1:].shape == (2, 2)
    assert [row.shape for row in table] == [(2,)] * 3


def test_a_slice_shares_memory_and_still_reads_right():
    part = Strings.of(WORDS)[2:]
    assert part.offsets[0] != 0
    assert part.tolist() == BYTES[2:]
    assert part.lengths.tolist() == [7, 4]
    assert np.asarray(part).tolist() == BYTES[2:]


def test_offsets_of_arrow_are_widened_when_asked_for():
    text = Strings.of(pa.array(WORDS))
    cut = text[1:3]
    assert "offsets" not in vars(text)
    assert "offsets" not in vars(cut)
    assert cut.tolist() == BYTES[1:3]
    assert cut.offsets.dtype == np.int64
    assert "offsets" not in vars(text)


def test_reshaping_works_one_axis_out_and_refuses_a_wrong_size():
    assert Strings.of(WORDS).reshape((2, -1)).shape == (2, 2)
    with pytest.raises(ValueError, match="cannot reshape"):
        Strings.of(WORDS).reshape((3, 2))


def test_joining_keeps_order_and_wants_equal_tails():
    words = Strings.of(WORDS)
    assert concatenate([words[2:], words[:1]]).tolist() == [*BYTES[2:], BYTES[0]]
    with pytest.raises(InputError, match="cannot join"):
        concatenate([words, words.reshape((2, 2))])


def test_no_strings_at_all_are_fine():
    empty = Strings.of(np.array([], dtype=object))
    assert empty.tolist() == []
    assert len(concatenate([empty, empty])) == 0


def test_text_is_told_from_numbers():
    assert is_text(np.array(["a"]))
    assert is_text(Strings.of(["a"]))
    assert not is_text(np.arange(2))
    assert not is_text("a")


def test_it_shows_a_few_values():
    assert repr(Strings.of(["a", "b"])) == "Strings([b'a', b'b'], shape=(2,))"


@pytest.mark.parametrize("word", ["Zürich", "Zürich".encode(), "", "Paris"])
def test_comparing_with_a_word_says_which_strings_are_equal(word):
    text = word if isinstance(word, str) else word.decode()
    wanted = [value == text for value in WORDS]
    assert (Strings.of(WORDS) == word).tolist() == wanted
    assert (Strings.of(WORDS) != word).tolist() == [not same for same in wanted]


def test_a_comparison_with_a_word_keeps_the_shape_of_a_slice():
    table = Strings.of([["a", "b"], ["b", "c"], ["b", "b"]])[1:]
    assert (table == b"b").tolist() == [[True, False], [True, True]]


@pytest.mark.parametrize(
    "values",
    [["Oslo", "", "Zürich"], [""], ["", ""], ["a\0b", "c"], ["\0"], ["a", None, b"c"]],
)
def test_text_that_is_joined_at_once_is_what_it_was(values):
    expected = [v if isinstance(v, bytes) else (v or "").encode() for v in values]
    for given in (values, np.array(values, object)):
        assert Strings.of(given).tolist() == expected


def test_only_text_without_zero_bytes_is_joined():
    assert Strings.of_text(["a", "b"]).tolist() == [b"a", b"b"]
    assert Strings.of_text(["a\0b", "c"]) is None
    assert Strings.of_text(["a", 7]) is None
    assert Strings.of_text([]) is None
