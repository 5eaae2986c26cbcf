"""Columns that are made from the rows of a table."""

import numpy as np
import pytest

import estimax as ex
from estimax.core.errors import FeatureError
from estimax.feature_columns.transforms import Scaling

fc = ex.feature_columns
NAN = float("nan")


def names(features, **options):
    return [column.name for column in fc.tabular_columns(features, **options)]


def test_numbers_have_two_columns_and_texts_one():
    rows = {"age": [1, 2, 3], "city": ["a", "b", "a"], "is_new": [True, False, True]}
    assert names(rows) == [
        *("age_piecewise_linear", "age", "city"),
        *("is_new_piecewise_linear", "is_new"),
    ]


def test_columns_without_two_values_are_left_out():
    rows = {
        "constant": [4.0, 4.0, 4.0],
        "empty": [NAN, NAN, NAN],
        "word": ["same", "same", "same"],
        "blank": ["", "", ""],
        "sometimes": [1.0, NAN, 1.0],
        "x": [1.0, 2.0, 3.0],
    }
    assert names(rows) == [
        *("sometimes_piecewise_linear", "sometimes", "x_piecewise_linear", "x")
    ]


def test_rare_words_share_the_id_of_unknown_ones():
    (column,) = fc.tabular_columns({"city": ["b", "a", "b", "c", "a", "b", ""]})
    assert column.vocabulary_list == (b"b", b"a")
    assert column.num_buckets == 3
    (column,) = fc.tabular_columns({"city": ["b", "a", "b", ""]}, min_count=1)
    assert column.vocabulary_list == (b"b", b"a")


def test_words_that_are_all_rare_still_make_a_column():
    (column,) = fc.tabular_columns({"city": ["b", "a", "c"]})
    assert column.num_buckets == 2


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({}, "no feature has two"),
        ({"x": [1.0, 1.0]}, "no feature has two"),
        ({"x": np.ones((3, 2))}, "'x' has rows of shape"),
        ({"x": np.array([1 + 2j])}, "'x' must be numbers or texts"),
    ],
)
def test_what_cannot_be_a_column_is_named(rows, words):
    with pytest.raises(FeatureError, match=words):
        fc.tabular_columns(rows)


def test_a_smooth_clip_is_bounded_and_close_to_the_number():
    scaling = Scaling(fill=0.0, smooth_clip=3.0)
    x = np.array([0.01, -0.1, 1e30, -np.inf, np.nan, 3.0], np.float32)
    wanted = [0.01, -0.1, 3.0, -3.0, 0.0, 3 / np.sqrt(2)]
    np.testing.assert_allclose(scaling(x), wanted, rtol=1e-3)
