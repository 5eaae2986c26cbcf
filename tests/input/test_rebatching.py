"""rebatch, ragged_batch, sparse_batch, random, counter, and single elements."""

from __future__ import annotations

import json

import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.input import Dataset, TensorSpec


def lengths() -> Dataset:
    return Dataset.range(5).map(lambda n: np.arange(int(n)))


@pytest.mark.parametrize(
    ("size", "drop", "expected"),
    [
        (2, False, [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ([3, 1, 2], False, [[0, 1, 2], [3], [4, 5], [6, 7]]),
        ([3, 1], True, [[0, 1, 2], [3], [4, 5, 6], [7]]),
        ([5], True, [[0, 1, 2, 3, 4]]),
    ],
)
def test_rebatch_uses_sizes_in_turn(size, drop, expected):
    data = Dataset.range(8).batch(3).rebatch(size, drop)
    assert [batch.tolist() for batch in data] == expected


def test_rebatch_keeps_the_structure():
    data = Dataset.from_tensor_slices(({"x": [1, 2, 3]}, ["a", "b", "c"])).batch(2)
    (features, words) = next(iter(data.rebatch(3)))
    assert features["x"].tolist() == [1, 2, 3]
    assert words.tolist() == [b"a", b"b", b"c"]


@pytest.mark.parametrize("size", [0, [2, 0], []])
def test_rebatch_refuses_sizes_below_one(size):
    with pytest.raises(InputError, match="rebatch"):
        Dataset.range(4).batch(2).rebatch(size)


def test_ragged_batch_makes_rows_of_different_lengths():
    batches = list(lengths().map(lambda x: {"x": x, "n": len(x)}).ragged_batch(2))
    assert [batch["x"].tolist() for batch in batches] == [
        [[], [0]],
        [[0, 1], [0, 1, 2]],
        [[0, 1, 2, 3]],
    ]
    assert batches[1]["n"].tolist() == [2, 3]
    assert batches[0]["x"].row_splits[0].dtype == np.int64


def test_ragged_batch_of_matrices_and_narrow_offsets():
    data = Dataset.range(1, 3).map(lambda n: np.ones((int(n), 2)))
    (batch,) = data.ragged_batch(4, row_splits_dtype="int32")
    assert batch.values.shape == (3, 2)
    assert batch.row_splits[0].dtype == np.int32
    assert not list(data.ragged_batch(4, drop_remainder=True))
    uneven = Dataset.range(1, 3).map(lambda n: np.ones((2, int(n))))
    with pytest.raises(InputError, match="first dimension only"):
        list(uneven.ragged_batch(2))
    with pytest.raises(InputError, match="int32 or int64"):
        data.ragged_batch(4, row_splits_dtype="int16")


def test_ragged_batch_stacks_rows_of_one_shape():
    batch = next(iter(Dataset.from_tensor_slices(np.eye(3)).ragged_batch(2)))
    assert batch.tolist() == [[1, 0, 0], [0, 1, 0]]


def test_sparse_batch_keeps_all_values():
    first, second, _ = lengths().sparse_batch(2, [None])
    assert (first.indices.tolist(), first.dense_shape) == ([[1, 0]], (2, 1))
    assert second.values.tolist() == [0, 1, 0, 1, 2]
    assert second.dense_shape == (2, 3)
    assert next(iter(lengths().sparse_batch(2, [5]))).dense_shape == (2, 5)


def test_sparse_batch_takes_text():
    data = Dataset.from_generator(lambda: iter([["a"], ["b", "c"]]))
    batch = next(iter(data.sparse_batch(2, [3])))
    assert batch.values.tolist() == [b"a", b"b", b"c"]


def test_sparse_batch_refuses_what_does_not_fit():
    with pytest.raises(InputError, match=r"\[3\].*does not fit"):
        list(lengths().sparse_batch(2, [2]))
    with pytest.raises(InputError, match="does not fit"):
        list(lengths().sparse_batch(2, [2, 2]))
    with pytest.raises(InputError, match="single arrays"):
        list(Dataset.from_tensor_slices({"x": [1]}).sparse_batch(2, []))


def test_random_numbers_repeat_with_their_seed_only():
    def drawn(data):
        return [int(x) for x in data]

    fixed, other = (Dataset.random(seed=1).take(5) for _ in range(2))
    again = Dataset.random(seed=1, rerandomize_each_iteration=True).take(5)
    assert drawn(fixed) == drawn(fixed) == drawn(other)
    assert drawn(again) != drawn(again)
    assert drawn(Dataset.random().take(5)) != drawn(Dataset.random().take(5))
    many = next(iter(Dataset.random(3).batch(9000)))
    assert many.dtype == np.int64
    assert 0 <= many.min() < 2**28
    assert 2**31 < many.max() < 2**32
    assert len(np.unique(many)) > 8990
    assert Dataset.random().cardinality() == -1


def test_counter_has_no_end():
    data = Dataset.counter(10, -2, dtype="int32")
    numbers = next(iter(data.batch(3)))
    assert (numbers.tolist(), numbers.dtype) == ([10, 8, 6], np.int32)
    assert Dataset.counter().cardinality() == -1
    assert Dataset.counter().take(3).cardinality() == 3
    with pytest.raises(InputError, match="step"):
        Dataset.counter(step=0)


def test_only_one_element_is_a_single_element():
    assert Dataset.range(7, 8).get_single_element() == 7
    with pytest.raises(InputError, match="no element"):
        Dataset.range(0).get_single_element()
    with pytest.raises(InputError, match="more than one"):
        Dataset.counter().get_single_element()


def test_element_spec_describes_rows_and_batches():
    data = Dataset.from_tensor_slices(({"a": [1, 2], "b": ["x", "y"]}, np.ones((2, 3))))
    assert data.element_spec == (
        {"a": TensorSpec((), "int64"), "b": TensorSpec((), "string")},
        TensorSpec((3,), "float64"),
    )
    assert data.batch(2).element_spec[1] == TensorSpec((None, 3), "float64")
    assert lengths().ragged_batch(2).element_spec == TensorSpec((None, None), "int64")
    sparse = lengths().sparse_batch(2, [9]).element_spec
    assert sparse == TensorSpec((None, None), "int64")
    with pytest.raises(InputError, match="no elements"):
        _ = Dataset.range(0).element_spec


@pytest.mark.parametrize(
    "make",
    [
        lambda: Dataset.range(40).batch(3).rebatch([2, 5]),
        lambda: lengths().repeat(4).ragged_batch(3),
        lambda: lengths().repeat(4).sparse_batch(3, [None]),
        lambda: Dataset.random(5).take(9000).batch(700),
        lambda: Dataset.counter(3).take(30).batch(4),
    ],
)
def test_positions_are_exact(make):
    def shown(batch):
        return repr(batch if isinstance(batch, np.ndarray) else vars(batch))

    iterator = iter(make())
    for _ in range(3):
        next(iterator)
    state = json.loads(json.dumps(iterator.get_state()))
    expected = [shown(batch) for batch in iterator]
    assert len(expected) > 2
    resumed = iter(make())
    resumed.set_state(state)
    assert [shown(batch) for batch in resumed] == expected
