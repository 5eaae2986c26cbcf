"""Vocabulary files."""

import os

import pytest

from estimax.feature_columns.transforms import WordList, count_words, load_words


def _write(path, data):
    path.write_bytes(data)
    return str(path)


def test_one_carriage_return_before_the_line_feed_is_no_part_of_the_word(tmp_path):
    path = _write(tmp_path / "v.txt", b"a\r\nb\r\r\nc")
    assert load_words(path, size=3) == WordList.of([b"a", b"b\r", b"c"])


def test_a_smaller_size_reads_the_first_lines_only(tmp_path):
    path = _write(tmp_path / "v.txt", b"a\nb\n\n\n")
    assert load_words(path, size=2) == WordList.of(["a", "b"])


def test_an_unchanged_file_is_read_once(tmp_path):
    path = _write(tmp_path / "v.txt", b"a\nb\n")
    assert load_words(path, size=2) is load_words(path, size=2)


def test_a_changed_file_is_read_again(tmp_path):
    path = _write(tmp_path / "v.txt", b"a\nb\n")
    load_words(path, size=2)
    _write(tmp_path / "v.txt", b"c\nd\n")
    os.utime(path, ns=(1, 1))
    assert load_words(path, size=2) == WordList.of(["c", "d"])


def test_a_blank_line_is_named_by_number(tmp_path):
    path = _write(tmp_path / "v.txt", b"a\n\nb\n")
    with pytest.raises(ValueError, match=r"v\.txt, line 2: it is blank"):
        load_words(path, size=3)


def test_a_repeated_line_is_named_with_its_file(tmp_path):
    path = _write(tmp_path / "v.txt", b"a\nb\na\n")
    with pytest.raises(ValueError, match=r"v\.txt.*b'a' is listed twice"):
        load_words(path, size=3)


def test_a_line_that_is_no_integer_is_named_by_number(tmp_path):
    path = _write(tmp_path / "v.txt", b" 1 \nx\n")
    with pytest.raises(ValueError, match=r"line 2: b'x' is not an integer"):
        load_words(path, size=2, is_integer=True)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"absent\.txt"):
        count_words(str(tmp_path / "absent.txt"))
