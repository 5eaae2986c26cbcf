"""Buckets between boundaries."""

import numpy as np
import pytest

from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.feature_columns.transforms import Bucketize


def _buckets(values, *boundaries, **options):
    source = Bucketize("x", boundaries, **options)
    return source.entries({"x": np.asarray(values)}).values.tolist()


def test_a_value_on_a_boundary_belongs_to_the_right():
    assert _buckets([0.9, 1.0, 1.9, 2.0], 1.0, 2.0) == [0, 1, 1, 2]


def test_nan_goes_to_the_last_bucket():
    assert _buckets([np.nan, -np.inf, np.inf], 1.0, 2.0) == [2, 0, 2]


def test_values_are_compared_as_float32():
    assert _buckets([0.0999999999], 0.1) == [1]


def test_the_normalizer_comes_first():
    assert _buckets([1.0, 3.0], 2.0, normalizer=lambda x: 3.0 - x) == [1, 0]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Strings.of(["1"]), "dense numbers"),
        (Sparse(np.array([[0, 0]]), np.array([1.0]), (1, 1)), "sparse"),
        (np.ones((2, 3)), "expected 1 numbers a row"),
    ],
)
def test_other_than_dense_numbers_of_the_shape_are_refused(value, words):
    with pytest.raises(ValueError, match=words):
        Bucketize("x", (0.0,)).entries({"x": value})
