"""Rectangles of ids for the device."""

import numpy as np
import pytest

from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.feature_columns.transforms import (
    Bucketize,
    Cross,
    HashBucket,
    Identity,
    IdSource,
    PadIds,
    Vocabulary,
    Weighted,
    WordList,
    pad_ids,
)


def test_one_value_a_row_needs_no_padding():
    ids = PadIds(Identity("n", 9))({"n": np.array([3, 1])}).ids
    assert ids.tolist() == [[3], [1]]
    assert ids.dtype == np.int32


def test_several_values_are_padded_to_a_power_of_two():
    ids = PadIds(Identity("n", 9))({"n": np.array([[3, 1, 2]])}).ids
    assert ids.tolist() == [[3, 1, 2, -1]]


def test_sparse_rows_move_to_the_left():
    entries = Sparse(np.array([[0, 4], [2, 0], [2, 7]]), np.array([5, 6, 7]), (3, 8))
    ids = PadIds(Identity("n", 9))({"n": entries}).ids
    assert ids.tolist() == [[5, -1], [-1, -1], [6, 7]]


def test_missing_and_unknown_words_both_become_minus_one():
    source = Vocabulary("s", WordList.of(["a"]))
    ids = PadIds(source)({"s": Strings.of(["", "a", "z"])}).ids
    assert ids.tolist() == [[-1], [0], [-1]]


def test_an_id_out_of_range_is_an_error_that_names_feature_and_id():
    with pytest.raises(ValueError, match=r"'n'.*id 9 is not in \[0, 9\)"):
        PadIds(Identity("n", 9), "error")({"n": np.array([1, 9])})


def test_an_id_out_of_range_may_be_dropped():
    ids = PadIds(Identity("n", 9), "drop")({"n": np.array([2**40, 8])}).ids
    assert ids.tolist() == [[-1], [8]]


def test_negative_ids_can_be_an_error_too():
    with pytest.raises(ValueError, match="id -2"):
        PadIds(Identity("n", 9), "error_below")({"n": np.array([-1, -2])})


def test_sources_that_stay_in_range_share_one_transform():
    source = HashBucket("s", 9)
    assert pad_ids(source, "error") == pad_ids(source, "drop")


def test_more_buckets_than_int32_can_count_are_refused():
    with pytest.raises(ValueError, match="buckets"):
        PadIds(HashBucket("s", 2**31))


def test_weights_are_laid_out_like_their_ids():
    source = Weighted(Identity("n", 9), "w")
    raw = {
        "n": np.array([[1, -1], [2, 3]]),
        "w": np.array([[0.5, 0.0], [2.0, -1.0]], np.float32),
    }
    found = PadIds(source)(raw)
    assert found.ids.tolist() == [[1, -1], [2, 3]]
    assert found.weights.tolist() == [[0.5, 0.0], [2.0, -1.0]]


def test_a_bucketized_vector_has_an_id_per_position():
    source = Bucketize("x", (0.0,), width=3)
    ids = PadIds(source)({"x": np.array([[-1.0, 1.0, 1.0]])}).ids
    assert ids.tolist() == [[0, 3, 5, -1]]


def test_rows_of_a_cross_may_differ_in_length():
    entries = Sparse(np.array([[0, 0], [0, 1], [1, 0]]), np.array([1, 2, 3]), (3, 2))
    source = Cross(("n", "m"), 100)
    ids = PadIds(source)({"n": entries, "m": np.array([7, 8, 9])}).ids
    assert (ids >= 0).tolist() == [[True, True], [True, False], [False, False]]


def test_an_empty_batch_stays_one():
    assert PadIds(Identity("n", 9))({"n": np.zeros(0, np.int64)}).ids.shape == (0, 1)


def test_transforms_are_values():
    words = ["a", "b"]
    one = pad_ids(Vocabulary("s", WordList.of(words)), "error")
    other = pad_ids(Vocabulary("s", WordList.of(words)), "error")
    assert {one: 1}[other] == 1


def test_a_source_with_the_former_name_of_the_method_is_an_error():
    with pytest.raises(TypeError, match=r"Old\.padded: rename it"):

        class Old(IdSource):
            def padded(self, raw, out_of_range):
                pass
