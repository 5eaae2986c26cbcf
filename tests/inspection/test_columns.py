"""Summaries of columns, and slices by their values."""

import numpy as np

from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.inspection.report import columns


def test_numbers_are_summarized_without_those_that_are_missing():
    found = columns.summary_of("age", np.array([[2.0], [np.nan], [4.0], [4.0]]))
    assert (found.kind, found.missing, found.distinct) == ("number", 0.25, 2)
    assert found.values == "2 to 4, mean 3.333"


def test_words_are_counted():
    words = Strings.of(np.array([b"a", b"a", b"", b"c"], object))
    found = columns.summary_of("city", words)
    assert (found.kind, found.missing, found.distinct) == ("text", 0.25, 3)
    assert found.values.startswith("a (50%)")


def test_lists_and_arrays_have_a_summary_too():
    tags = Sparse.of_rows([["a", "b"], [], ["c"]])
    assert columns.summary_of("tags", tags).values == "1 values a row, at most 2"
    assert columns.summary_of("x", np.ones((3, 5))).values == "shape [5]"
    assert columns.cell(tags, 0) == "a, b"
    assert list(columns.slices("tags", tags)) == []


def test_numbers_are_sliced_by_quartile_and_every_row_is_in_one():
    values = np.append(np.arange(100.0), np.nan)
    found = dict(columns.slices("age", values))
    assert len(found) == 5
    assert found["age is missing"].sum() == 1
    np.testing.assert_array_equal(sum(rows.astype(int) for rows in found.values()), 1)


def test_rare_words_share_a_slice():
    words = np.array([f"w{i}" for i in range(12)])
    found = dict(columns.slices("city", words))
    assert found["city: 4 other values"].sum() == 4
