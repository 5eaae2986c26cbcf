"""Columns as values, and what their constructors refuse."""

import numpy as np
import pytest

from estimax import feature_columns as fc


def _columns():
    age = fc.numeric_column("age")
    buckets = fc.bucketized_column(age, [18, 65])
    city = fc.categorical_column_with_vocabulary_list("city", ["Rome", "Oslo"])
    terms = fc.categorical_column_with_identity("terms", 9)
    weighted = fc.weighted_categorical_column(terms, "counts")
    return [
        age,
        buckets,
        city,
        fc.categorical_column_with_hash_bucket("job", 7),
        weighted,
        fc.crossed_column([buckets, city, "job"], 50),
        fc.indicator_column(city),
        fc.embedding_column(weighted, 4, max_norm=1.0),
        *fc.shared_embeddings([terms, weighted], 3),
    ]


def test_columns_built_alike_are_equal_and_hash_alike():
    for one, other in zip(_columns(), _columns(), strict=True):
        assert one == other
        assert hash(one) == hash(other)


def test_different_columns_differ():
    assert len(set(_columns())) == len(_columns())


def test_columns_cannot_be_changed():
    with pytest.raises(AttributeError):
        fc.numeric_column("age").key = "other"


def test_a_normalizer_must_be_callable():
    with pytest.raises(TypeError, match="normalizer_fn"):
        fc.numeric_column("age", normalizer_fn=3)


def test_dtypes_may_be_named_or_given_as_types():
    named = fc.categorical_column_with_hash_bucket("job", 7, dtype="int64")
    typed = fc.categorical_column_with_hash_bucket("job", 7, dtype=np.int64)
    assert named == typed
    text = fc.categorical_column_with_hash_bucket("job", 7, dtype=str)
    assert text.parse_example_spec["job"] == fc.VarLenFeature("string")


def test_a_vocabulary_hands_out_its_words():
    city = fc.categorical_column_with_vocabulary_list("city", ["Rome", "Oslo"])
    assert city.vocabulary_list == (b"Rome", b"Oslo")


def test_a_vocabulary_of_mixed_kinds_is_refused():
    with pytest.raises(ValueError, match="only strings or only integers"):
        fc.categorical_column_with_vocabulary_list("city", ["Rome", 3])


def test_a_vocabulary_file_with_a_size_is_not_opened_at_construction(tmp_path):
    column = fc.categorical_column_with_vocabulary_file(
        "city", tmp_path / "later.txt", vocabulary_size=3
    )
    assert column.num_buckets == 3


def test_a_file_that_appears_later_is_read_when_used(tmp_path):
    column = fc.categorical_column_with_vocabulary_file("s", tmp_path / "v", 2)
    (tmp_path / "v").write_text("a\nb\n")
    assert len(column.id_source.words) == 2


def test_the_hash_of_a_cross_key_points_to_the_raw_feature():
    job = fc.categorical_column_with_hash_bucket("job", 7)
    with pytest.raises(ValueError, match="feature's name"):
        fc.crossed_column([job, "city"], 10)


def test_a_column_of_another_library_is_refused_by_a_layer():
    with pytest.raises(ValueError, match="no feature column"):
        fc.DenseFeatures(["age"])


def test_a_dict_of_columns_is_refused():
    with pytest.raises(ValueError, match="a dict"):
        fc.DenseFeatures({"age": fc.numeric_column("age")})


def test_an_iterator_of_columns_is_taken():
    layer = fc.DenseFeatures(fc.numeric_column(key) for key in "ba")
    assert [column.name for column in layer.feature_columns] == ["a", "b"]


def test_a_single_column_is_taken():
    assert fc.LinearModel(fc.numeric_column("a")).feature_columns[0].name == "a"


def test_an_embedding_shows_only_what_was_given():
    city = fc.categorical_column_with_hash_bucket("city", 9)
    assert repr(fc.embedding_column(city, 4, max_norm=2.0)) == (
        "EmbeddingColumn(HashedCategoricalColumn(key='city', hash_bucket_size=9, "
        "dtype='string', strip=False), dimension=4, max_norm=2.0)"
    )
