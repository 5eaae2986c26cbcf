"""Weights and the ids they belong to."""

import numpy as np
import pytest

from estimax.feature_columns.transforms import Identity, PadIds, Weighted

_SOURCE = Weighted(Identity("n", 9), "w")


def test_a_different_number_of_weights_is_an_error_that_says_both():
    raw = {"n": np.array([[0, 1]]), "w": np.array([[0.0, 1.0]], np.float32)}
    with pytest.raises(ValueError, match=r"'w' gives 1 weights for 2 ids"):
        PadIds(_SOURCE)(raw)


def test_weights_of_another_dtype_are_refused():
    raw = {"n": np.array([[0]]), "w": np.array([[1]])}
    with pytest.raises(ValueError, match=r"int64.*float32"):
        PadIds(_SOURCE)(raw)


def test_double_precision_weights_count_as_single():
    raw = {"n": np.array([[0]]), "w": np.array([[0.5]])}
    assert PadIds(_SOURCE)(raw).weights.dtype == np.float32


def test_integer_weights_become_floats():
    source = Weighted(Identity("n", 9), "w", "int64")
    found = PadIds(source)({"n": np.array([[0]]), "w": np.array([[3]])})
    assert found.weights.tolist() == [[3.0]]
