import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.columns import as_column, join, slice_rows, stack, take_rows

SPARSE = Sparse(
    np.array([[0, 1], [2, 0], [2, 1], [3, 0]]), Strings.of(list("abcd")), (4, 2)
)


def dense(sparse):
    out = np.full(sparse.dense_shape, b"", dtype=object)
    for place, value in zip(sparse.indices, sparse.values.tolist(), strict=True):
        out[tuple(place)] = value
    return out.tolist()


def test_sparse_rows_are_taken_in_any_order_and_repeatedly():
    rows = np.array([3, 0, 1, 2, 2])
    expected = np.array(dense(SPARSE), object)[rows].tolist()
    assert dense(take_rows(SPARSE, rows)) == expected


@pytest.mark.parametrize(("start", "stop", "step"), [(0, 4, 1), (1, 3, 1), (1, 4, 2)])
def test_sparse_rows_are_sliced(start, stop, step):
    found = slice_rows(SPARSE, start, stop, step)
    assert dense(found) == dense(SPARSE)[start:stop:step]


def test_sparse_columns_join_to_the_widest():
    wide = Sparse(np.array([[0, 2]]), Strings.of(["z"]), (1, 3))
    joined = join([SPARSE, wide])
    assert joined.dense_shape == (5, 3)
    assert dense(joined)[4] == [b"", b"", b"z"]


def test_strings_of_rank_two_stack():
    rows = [Strings.of(["a", "b"]), Strings.of(["c", "dd"])]
    assert np.asarray(stack(rows)).tolist() == [[b"a", b"b"], [b"c", b"dd"]]


def test_numbers_and_text_do_not_join():
    with pytest.raises(InputError, match="cannot join numbers with a Strings"):
        join([np.zeros(2), Strings.of(["a"])])


def test_a_ragged_list_is_no_column():
    with pytest.raises(InputError, match=r"scores: cannot make an array.*Sparse\.of"):
        as_column([[1, 2], [3]], "scores")


def test_an_array_of_lists_is_sparse():
    lists = np.array([["a", "b"], ["c"], []], object)
    assert dense(as_column(lists)) == [[b"a", b"b"], [b"c", b""], [b"", b""]]
