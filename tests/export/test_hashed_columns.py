"""Columns that are hashed together have the ids of columns that are hashed alone."""

import jax
import numpy as np
import pytest

from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.export.host_plan import HashedColumns
from estimax.feature_columns import transforms
from estimax.staging.host_plan import HostPlan
from estimax.staging.trace import HostCall, Origin

NAMES = ("a", "b", "c")
ORIGINS = {name: Origin("features", name) for name in NAMES}
N = Origin("features", "n")


def plan():
    calls = [
        HostCall(n, transforms.pad_ids(transforms.HashBucket(n, 7 + i), "error"), (o,))
        for i, (n, o) in enumerate(ORIGINS.items())
    ]
    ids = transforms.pad_ids(transforms.Identity("n", 9), "drop")
    return HostPlan(raw=(), calls=(calls[0], HostCall("n", ids, (N,)), *calls[1:]))


def batch(rows):
    words = ["Oslo", "", "R\u00f6m", "a\0b", "x" * 50]
    block = Strings.of([words[i % 5] for i in range(3 * rows)])
    parts = [block.rows(i * rows, (i + 1) * rows) for i in range(3)]
    return {**dict(zip(ORIGINS.values(), parts, strict=True)), N: np.arange(rows)}


def assert_same(given):
    found, expected = HashedColumns(plan()).prepare(given), plan().prepare(given)
    assert found.staged.keys() == expected.staged.keys()
    for name in expected.staged:
        left, right = jax.tree.leaves((found.staged[name], expected.staged[name]))
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("rows", [1, 2, 11])
def test_ids_are_those_of_each_column_alone(rows):
    assert_same(batch(rows))
    one = batch(rows)
    assert_same({**one, ORIGINS["b"]: one[ORIGINS["b"]].reshape((rows, 1))})
    assert_same({**one, ORIGINS["c"]: Strings.of(["other"] * rows)})  # its own buffer


def test_other_forms_are_hashed_alone():
    given = batch(2)
    assert_same({**given, ORIGINS["a"]: Sparse.of_rows([["Oslo", "Bonn"], []])})
    assert_same({**given, ORIGINS["a"]: Strings.of([["a", "b"], ["c", ""]])})
