import numpy as np
import pytest

import estimax as ex
from estimax.core.raw_values import as_raw


def test_rows_of_text_keep_their_bytes():
    made = ex.Sparse.of_rows([["a", b"b\0"], [], ["ä"]])
    assert made.values.tolist() == [b"a", b"b\0", "ä".encode()]
    assert made.indices.tolist() == [[0, 0], [0, 1], [2, 0]]
    assert made.dense_shape == (3, 2)


def test_rows_may_be_arrays():
    made = ex.Sparse.of_rows([np.array([1, 2]), np.array([3])])
    assert made.values.tolist() == [1, 2, 3]


def test_rows_without_any_value_have_a_shape():
    assert ex.Sparse.of_rows([[], []]).dense_shape == (2, 0)


def test_values_at_different_depths_are_refused():
    with pytest.raises(ValueError, match="one depth"):
        ex.Sparse.of_rows([[1, [2]]])
    with pytest.raises(ValueError, match="list of rows"):
        ex.Sparse.of_rows([1, 2])


def test_ragged_lists_as_a_feature_are_told_how_to_be_given():
    with pytest.raises(ValueError, match="of_rows"):
        as_raw([[1, 2], [3]])


def test_lists_have_the_indices_of_their_rows():
    rows = [[7, 8], [], [9]]
    lists = ex.Sparse.of_lists(np.array([7, 8, 9]), np.array([4, 6, 6, 7], np.int32))
    same = ex.Sparse.of_rows(rows)
    assert lists.indices.tolist() == same.indices.tolist()
    assert lists.starts.tolist() == same.starts.tolist() == [0, 2, 2, 3]
    assert lists.dense_shape == same.dense_shape
    assert repr(lists) == repr(same)


@pytest.mark.parametrize("is_lists", [False, True])
def test_other_values_take_the_same_places(is_lists):
    given = ex.Sparse.of_rows([["a"], ["b", "c"]])
    if is_lists:
        given = ex.Sparse.of_lists(given.values, given.starts)
    other = given.with_values(np.array([1, 2, 3]))
    assert other.indices.tolist() == given.indices.tolist()
    assert other.values.tolist() == [1, 2, 3]
    assert other.is_lists == is_lists


def test_many_values_are_shown_by_the_first_four():
    many = ex.Sparse.of_rows([list(range(1000)), []])
    assert repr(many).splitlines() == [
        "Sparse(values=[0, 1, 2, 3, … 996 more], "
        "indices=[[0, 0], [0, 1], [0, 2], [0, 3], …],",
        "  dense_shape=(2, 1000))",
    ]
