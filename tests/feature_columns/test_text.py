"""Text columns: words and n-grams as ids, from a vocabulary or hashed."""

import jax
import numpy as np
import pytest

from estimax import feature_columns as fc
from estimax.core.errors import BundleError, FeatureError
from estimax.feature_columns.transforms import (
    HashBucket,
    Tokens,
    Vocabulary,
    WordList,
    from_json,
    to_json,
)
from estimax.feature_columns.transforms.tokens import tokens_of

WORDS = ["red", "wine", "red wine"]
GIVEN = {"title": ["Red wine, RED!", "", "white wine", "beer"]}


@pytest.mark.parametrize(
    ("text", "ngrams", "tokens"),
    [
        ("Red  wine, dry!", (1,), ["red", "wine", "dry"]),
        ("a b c", (2,), ["a b", "b c"]),
        ("a b c", (3, 1), ["a b c", "a", "b", "c"]),
        ("a", (2,), []),
        (" ...! ", (1, 2), []),
        ("don't l\u2019eau 'quoted'", (1,), ["don't", "l\u2019eau", "quoted"]),
        ("ZÜRICH n_1 東京", (1,), ["zürich", "n_1", "東京"]),
    ],
)
def test_a_text_is_split_into_words_and_runs_of_words(text, ngrams, tokens):
    assert tokens_of(text, ngrams, lowercase=True) == tokens


def counts(column):
    layer = fc.DenseFeatures([fc.indicator_column(column)])
    return layer.apply({}, GIVEN).tolist()


def test_an_indicator_counts_the_tokens():
    title = fc.text_column("title", WORDS, ngrams=[1, 2])
    assert counts(title) == [[2, 1, 1], [0, 0, 0], [0, 1, 0], [0, 0, 0]]
    with_case = fc.text_column("title", ["Red", "RED"], lowercase=False)
    assert counts(with_case)[0] == [1, 1]
    with_others = fc.text_column("title", WORDS, num_oov_buckets=1)
    assert counts(with_others) == [[2, 1, 0, 0], [0] * 4, [0, 1, 0, 1], [0, 0, 0, 1]]


def test_a_token_is_hashed_as_a_word_is():
    words = fc.categorical_column_with_hash_bucket("word", 1000)
    wanted = words.ids({"word": ["red", "wine", "red", "red wine", "wine red"]}, "drop")
    title = fc.text_column("title", hash_buckets=1000, ngrams=[1, 2])
    found = title.ids(GIVEN, "error").ids[0]
    assert found[found >= 0].tolist() == wanted.ids[:, 0].tolist()


def test_an_embedding_is_the_mean_of_the_tokens():
    title = fc.text_column("title", WORDS)
    layer = fc.DenseFeatures([fc.embedding_column(title, 2)])
    block, made = layer.init_with_output(jax.random.key(0), GIVEN)
    (table,) = jax.tree.leaves(made)
    red, wine = np.asarray(table)[:2]
    wanted = [(2 * red + wine) / 3, [0, 0], wine, [0, 0]]
    np.testing.assert_allclose(block, wanted, rtol=1e-5, atol=1e-7)


def test_the_vocabulary_has_frequent_tokens_first():
    texts = ["Red wine", "red beer", "wine red"]
    assert fc.text_vocabulary(texts, min_count=2) == ["red", "wine"]
    found = fc.text_vocabulary(texts, ngrams=[1, 2], min_count=1, max_size=4)
    assert found == ["red", "wine", "beer", "red beer"]
    assert "Red" in fc.text_vocabulary(texts, min_count=1, lowercase=False)
    with pytest.raises(FeatureError, match="no token occurs 9 times; lower min_count"):
        fc.text_vocabulary(texts, min_count=9)


def test_the_words_of_a_text_may_not_be_integers_or_lists():
    title = fc.text_column("title", WORDS)
    for values, words in (
        (np.array([1, 2]), "expected text, found int64"),
        ([["a", "b"]], "expected one text in a row"),
    ):
        with pytest.raises(FeatureError, match=words):
            title.ids({"title": values}, "error")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "give either words or hash_buckets"),
        ({"words": ["a"], "hash_buckets": 3}, "give either words or hash_buckets"),
        ({"words": "abc"}, "words must be a list of texts"),
        ({"words": []}, "words must not be empty"),
        ({"words": ["a", "a"]}, "'a' is listed twice"),
        ({"hash_buckets": 0}, "hash_bucket"),
        ({"hash_buckets": 9, "num_oov_buckets": 1}, "num_oov_buckets is for words"),
        ({"hash_buckets": 9, "ngrams": 2}, "ngrams must be a list of lengths"),
        ({"hash_buckets": 9, "ngrams": [0]}, "lengths from 1 to 5"),
        ({"hash_buckets": 9, "ngrams": [6]}, "lengths from 1 to 5"),
        ({"hash_buckets": 9, "ngrams": []}, "lengths from 1 to 5"),
        ({"hash_buckets": 9, "ngrams": [1, 1]}, "listed twice"),
    ],
)
def test_mistakes_in_a_text_column_are_named(options, words):
    with pytest.raises(FeatureError, match=words):
        fc.text_column("title", **options)


@pytest.mark.parametrize(
    "words", [HashBucket("t", 9), Vocabulary("t", WordList.of(["a b"]), 1)]
)
def test_a_bundle_carries_a_text_column(tmp_path, words):
    one = Tokens("t", words, (1, 2), lowercase=False)
    record = to_json(one, tmp_path)
    assert from_json(record, tmp_path) == one
    with pytest.raises(BundleError, match="ngrams"):
        from_json({**record, "ngrams": [1.5]}, tmp_path)
    with pytest.raises((BundleError, FeatureError), match="words must be a HashBucket"):
        from_json({**record, "words": {**record}}, tmp_path)
