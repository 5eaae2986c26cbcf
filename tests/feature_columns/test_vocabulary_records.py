"""Vocabularies in gzipped TFRecord files."""

import pytest

from estimax.core.errors import FeatureError
from estimax.feature_columns.transforms import words
from estimax.formats.records import write_records


def test_a_record_is_a_word(tmp_path):
    path = tmp_path / "words.tfrecord.gz"
    write_records(path, [b"ann", b"bob\n", b"\xff"], "GZIP")
    assert words.count_words(str(path), is_tfrecord=True) == 3
    table = words.load_words(str(path), size=3, is_tfrecord=True)
    assert table.words.tolist() == [b"ann", b"bob\n", b"\xff"]


def test_a_damaged_file_is_refused_with_the_place(tmp_path):
    path = tmp_path / "words.tfrecord.gz"
    write_records(path, [b"ann", b"bob"])
    with pytest.raises(FeatureError, match=r"words\.tfrecord\.gz, record 0 .*GZIP"):
        words.count_words(str(path), is_tfrecord=True)
