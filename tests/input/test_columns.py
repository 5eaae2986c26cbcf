import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.streams.columns import (
    Ragged,
    as_column,
    join,
    row_of,
    slice_rows,
    stack,
    take_rows,
)

SPARSE = Sparse(
    np.array([[0, 1], [2, 0], [2, 1], [3, 0]]), Strings.of(list("abcd")), (4, 2)
)

# The middle of longer columns: neither offsets nor text begin at their start.
LISTS = Sparse.of_lists(
    Strings.of(list("-abcd"))[1:], np.array([3, 4, 4, 6, 7], np.int32)
)
both = pytest.mark.parametrize("column", [SPARSE, LISTS], ids=["gaps", "lists"])


def dense(sparse):
    out = np.full(sparse.dense_shape, b"", dtype=object)
    for place, value in zip(sparse.indices, sparse.values.tolist(), strict=True):
        out[tuple(place)] = value
    return out.tolist()


@both
def test_sparse_rows_are_taken_in_any_order_and_repeatedly(column):
    rows = np.array([3, 0, 1, 2, 2])
    expected = np.array(dense(column), object)[rows].tolist()
    assert dense(take_rows(column, rows)) == expected


@both
@pytest.mark.parametrize(
    ("start", "stop", "step"), [(0, 4, 1), (1, 3, 1), (2, 2, 1), (1, 4, 2)]
)
def test_sparse_rows_are_sliced_and_sliced_again(column, start, stop, step):
    found = slice_rows(column, start, stop, step)
    assert dense(found) == dense(column)[start:stop:step]
    first = min(1, len(found))
    assert dense(slice_rows(found, first, len(found))) == dense(found)[first:]


@both
def test_sparse_columns_join_to_the_widest(column):
    wide = Sparse(np.array([[0, 2]]), Strings.of(["z"]), (1, 3))
    joined = join([column, wide])
    assert joined.dense_shape == (5, 3)
    assert dense(joined) == [[*row, b""] for row in dense(column)] + [[b"", b"", b"z"]]


def test_lists_stay_lists():
    parts = [slice_rows(LISTS, 2, 4), take_rows(LISTS, np.array([2, 0]))]
    joined = join(parts)
    assert joined.is_lists
    assert joined.starts.tolist() == [0, 2, 3, 5, 6]
    assert dense(joined) == [row for part in parts for row in dense(part)]


def test_strings_of_rank_two_stack():
    rows = [Strings.of(["a", "b"]), Strings.of(["c", "dd"])]
    assert np.asarray(stack(rows)).tolist() == [[b"a", b"b"], [b"c", b"dd"]]


def test_numbers_and_text_do_not_join():
    with pytest.raises(InputError, match="cannot join numbers with a Strings"):
        join([np.zeros(2), Strings.of(["a"])])


def test_a_ragged_list_is_no_column():
    with pytest.raises(InputError, match=r"scores: cannot make an array.*Sparse\.of"):
        as_column([[1, 2], [3]], "scores")


def test_zero_bytes_at_the_end_of_text_are_kept():
    texts = [b"a\0", b"\0\0", b"b"]
    assert as_column(texts).tolist() == texts
    assert as_column([texts]).tolist() == texts
    assert as_column(b"a\0").tolist() == [b"a\0"]


def test_an_array_of_lists_is_sparse():
    lists = np.array([["a", "b"], ["c"], []], object)
    assert dense(as_column(lists)) == [[b"a", b"b"], [b"c", b""], [b"", b""]]


RAGGED = Ragged(np.arange(6), (np.array([0, 2, 2, 3, 6], np.int32),))
NESTED = Ragged(
    Strings.of(["a", "b", "c", "d"]), (np.array([0, 2, 2, 3]), np.array([0, 1, 1, 4]))
)


@pytest.mark.parametrize("column", [RAGGED, NESTED])
@pytest.mark.parametrize("index", [[2, 0], [1], [0, 0, 2, 1], []])
def test_ragged_rows_are_taken(column, index):
    found = take_rows(column, np.array(index, np.int64))
    assert found.tolist() == [column.tolist()[i] for i in index]
    assert found.row_splits[0].dtype == column.row_splits[0].dtype


@pytest.mark.parametrize("column", [RAGGED, NESTED])
def test_ragged_rows_are_sliced_and_joined(column):
    parts = [slice_rows(column, 0, 1), slice_rows(column, 1, len(column))]
    assert join(parts).tolist() == column.tolist()
    assert slice_rows(column, 0, 3, 2).tolist() == column.tolist()[::2]


def test_a_row_of_a_ragged_column_is_one_level_less():
    assert row_of(RAGGED, 3).tolist() == [3, 4, 5]
    rows = [row_of(NESTED, i) for i in range(3)]
    assert [row.tolist() for row in rows] == NESTED.tolist()
    assert stack(rows).tolist() == NESTED.tolist()


def test_ragged_columns_of_different_depths_do_not_join():
    with pytest.raises(InputError, match="different depths"):
        join([RAGGED, NESTED])
