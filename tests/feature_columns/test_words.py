"""Word lists: found by content, compared by content."""

import numpy as np
import pytest

from estimax.core.strings import Strings
from estimax.feature_columns.transforms import WordList


def _ids(words, values, **options):
    rest = {"oov_buckets": 0, "default": -1, "drop": False, **options}
    return words.ids_of(values, **rest).tolist()


def test_every_word_of_a_large_list_is_found_at_its_place():
    listed = [f"word {i}" for i in range(20_000)]
    words = WordList.of(listed)
    assert _ids(words, Strings.of(listed)) == list(range(20_000))


def test_words_that_differ_in_their_last_byte_only_are_told_apart():
    words = WordList.of([b"abcdefgh1", b"abcdefgh2", b"abcdefgh"])
    found = _ids(words, Strings.of([b"abcdefgh2", b"abcdefgh", b"abcdefgh3"]))
    assert found == [1, 2, -1]


def test_trailing_zero_bytes_belong_to_the_word():
    words = WordList.of([b"a", b"a\0"])
    assert _ids(words, words.words) == [0, 1]


def test_equal_lists_are_equal_and_hash_alike_whatever_the_text_type():
    first, second = WordList.of(["a", "b"]), WordList.of([b"a", b"b"])
    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.parametrize("other", [["b", "a"], ["a"], ["ab"], ["a", "b", "c"]])
def test_other_lists_differ(other):
    assert WordList.of(["a", "b"]) != WordList.of(other)


def test_integers_are_not_their_decimal_text():
    assert WordList.of([1, 2]) != WordList.of(["1", "2"])


def test_a_word_that_is_there_twice_is_named():
    with pytest.raises(ValueError, match=r"b'a' is listed twice.*2"):
        WordList.of(["a", "b", "a"]).check_distinct()


def test_an_integer_that_is_there_twice_is_named():
    with pytest.raises(ValueError, match="7 is listed twice"):
        WordList.of([7, 8, 7]).check_distinct()


def test_other_words_share_out_of_vocabulary_buckets():
    words = WordList.of(["a"])
    found = _ids(words, Strings.of([f"x{i}" for i in range(100)]), oov_buckets=3)
    assert set(found) == {1, 2, 3}


def test_the_largest_and_smallest_integer_are_found():
    limits = np.iinfo(np.int64)
    words = WordList.of([limits.min, limits.max, 0])
    assert _ids(words, np.array([limits.max, limits.min, 1])) == [1, 0, -1]
