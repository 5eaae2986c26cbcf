import numpy as np
import pytest

import estimax as ex
from estimax.core import staging


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
        staging.as_raw([[1, 2], [3]])
