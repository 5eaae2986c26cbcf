"""Crosses; the golden cases are among those of feature_columns."""

import numpy as np
import pytest

from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.feature_columns.transforms import Cross, Identity


def _sparse(word):
    return Sparse(np.array([[0, 0]]), Strings.of([word]), (1, 1))


@pytest.mark.parametrize(("first", "second", "id_"), [("a", "b", 986), ("b", "a", 100)])
def test_the_published_check_values_come_out(first, second, id_):
    raw = {"x": _sparse(first), "y": _sparse(second)}
    assert Cross(("x", "y"), 1000).entries(raw).values.tolist() == [id_]


def test_sparse_keys_are_hashed_before_dense_ones():
    dense_first = {"x": Strings.of(["a"]), "y": _sparse("b")}
    swapped = {"x": _sparse("a"), "y": _sparse("b")}
    mixed = Cross(("x", "y"), 1000).entries(dense_first).values
    assert mixed == Cross(("y", "x"), 1000).entries(swapped).values


def test_a_hash_key_of_zero_is_the_default_key():
    raw = {"x": _sparse("a"), "y": _sparse("b")}
    zero, none = (Cross(("x", "y"), 1000, key).entries(raw) for key in (0, None))
    assert zero.values == none.values


def test_the_last_key_varies_fastest():
    raw = {"x": np.array([[1, 2]]), "y": np.array([[3, 4]])}
    ids = Cross(("x", "y"), 2**40).entries(raw).values
    alone = Cross(("x", "y"), 2**40)
    pairs = [(1, 3), (1, 4), (2, 3), (2, 4)]
    each = [alone.entries({"x": [[a]], "y": [[b]]}).values[0] for a, b in pairs]
    assert ids.tolist() == each


def test_a_row_without_a_value_in_one_key_has_no_ids():
    source = Cross((Identity("x", 9), "y"), 100)
    entries = source.entries({"x": np.array([-1, 2]), "y": np.array([1, 1])})
    assert entries.indices.tolist() == [[1, 0]]


def test_different_row_counts_are_refused():
    with pytest.raises(ValueError, match=r"'x_X_y'.*rows"):
        Cross(("x", "y"), 10).entries({"x": np.arange(2), "y": np.arange(3)})


def test_each_raw_feature_is_asked_for_once():
    assert Cross(("x", Identity("x", 3), "y"), 10).keys == ("x", "y")
