"""`hash_buckets` hashes many columns at once, each as it would be by itself."""

import numpy as np
import pytest

from estimax.core.strings import Strings
from estimax.feature_columns.transforms import HashBucket, hash_buckets
from estimax.input import ExampleParser, FixedLenFeature, serialize_examples


def one_by_one(columns, sizes):
    return {
        key: HashBucket(key, sizes[key])
        .ids_of(text.reshape((-1,)), drop=False)
        .reshape(text.shape)
        for key, text in columns.items()
    }


def assert_same(found, expected):
    assert list(found) == list(expected)
    for key, ids in expected.items():
        np.testing.assert_array_equal(found[key], ids)


@pytest.fixture
def columns():
    rng = np.random.default_rng(3)
    words = ["".join(rng.choice(list("abcd"), n)) for n in rng.integers(0, 90, 60)]
    long = Strings.of(words)
    return {
        "all": long,
        "some": long[7:31],
        "few": Strings.of(["Oslo", ""]),
        "none": long[:0],
        "wide": Strings.of([["a", "bc"], ["", "a"]]),
    }


def test_columns_of_their_own_text_each(columns):
    sizes = {key: 10 + 7 * i for i, key in enumerate(columns)}
    assert_same(hash_buckets(columns, sizes), one_by_one(columns, sizes))


def test_columns_that_share_their_text_in_any_order(columns):
    text = columns["all"]
    parts = {"c": text[40:], "a": text[:20], "b": text[20:40], "again": text[:20]}
    sizes = dict.fromkeys(parts, 1000)
    assert_same(hash_buckets(parts, 1000), one_by_one(parts, sizes))


def test_columns_as_a_parser_makes_them(columns):
    made = {"x": columns["all"], "y": columns["all"][::-1]}
    spec = {key: FixedLenFeature([], "string") for key in made}
    parsed = ExampleParser(spec)(serialize_examples(made))
    assert_same(hash_buckets(parsed, 5), one_by_one(made, dict.fromkeys(made, 5)))


def test_no_columns():
    assert hash_buckets({}, 10) == {}
