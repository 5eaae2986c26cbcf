"""Ids of single values: what is dropped, what is kept, what is refused."""

import numpy as np
import pytest

from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.feature_columns.transforms import (
    HashBucket,
    Identity,
    Vocabulary,
    WordList,
)


def _sparse(values):
    indices = np.array([[i, 0] for i in range(len(values))])
    return Sparse(indices, values, (len(values), 1))


def test_an_empty_dense_string_is_no_entry():
    entries = HashBucket("s", 10).entries({"s": Strings.of(["a", "", "b"])})
    assert entries.indices.tolist() == [[0, 0], [2, 0]]


def test_an_empty_sparse_string_is_hashed_like_any_other():
    entries = HashBucket("s", 10).entries({"s": _sparse(Strings.of(["a", ""]))})
    assert len(entries.values) == 2


def test_a_dense_minus_one_is_dropped_before_the_default_applies():
    source = Identity("n", 5, default=2)
    assert source.entries({"n": np.array([-1, -3, 9])}).values.tolist() == [2, 2]


def test_a_sparse_minus_one_becomes_the_default():
    source = Identity("n", 5, default=2)
    assert source.entries({"n": _sparse(np.array([-1, 1]))}).values.tolist() == [2, 1]


def test_an_unknown_word_is_an_entry_with_the_id_minus_one():
    source = Vocabulary("s", WordList.of(["a"]))
    assert source.entries({"s": Strings.of(["z", "a", ""])}).values.tolist() == [-1, 0]


def test_integers_may_be_a_vocabulary():
    source = Vocabulary("n", WordList.of([-7, 40, 2**62]))
    values = np.array([40, 2**62, -7, 3])
    assert source.entries({"n": values}).values.tolist() == [1, 2, 0, -1]


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint16, np.int64])
def test_any_integer_dtype_is_taken(dtype):
    source = Vocabulary("n", WordList.of([3, 4]))
    assert source.entries({"n": np.array([4, 3], dtype)}).values.tolist() == [1, 0]


def test_floats_are_refused_with_the_features_name():
    with pytest.raises(ValueError, match=r"'n'.*integers.*float32"):
        Identity("n", 5).entries({"n": np.array([1.0], np.float32)})


def test_strings_fed_to_an_integer_column_are_refused():
    with pytest.raises(ValueError, match=r"'n'.*integers.*strings"):
        HashBucket("n", 5, is_integer=True).entries({"n": Strings.of(["1"])})


def test_an_object_array_of_text_is_taken_as_strings():
    values = np.array(["a", b"a"], object)
    found = HashBucket("s", 1000).entries({"s": values}).values
    assert found[0] == found[1]


def test_an_empty_batch_gives_no_entries():
    entries = HashBucket("s", 10).entries({"s": Strings.of(np.array([], object))})
    assert entries.dense_shape == (0, 1)


@pytest.mark.parametrize("source", [Identity("s", 5), HashBucket("s", 5)])
def test_rows_that_are_all_empty_are_of_any_type(source):
    entries = source.entries({"s": Sparse.of_rows([[], []])})
    assert (len(entries.values), entries.dense_shape) == (0, (2, 0))
