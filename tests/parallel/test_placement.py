"""Where arrays are: decisions about tables, and batches that divide or do not."""

import jax
import numpy as np
import pytest

from estimax.parallel import Placement, make_mesh

FORMS = {
    "large": jax.ShapeDtypeStruct((1000, 4), np.float32),
    "small": jax.ShapeDtypeStruct((10, 4), np.float32),
    "odd": jax.ShapeDtypeStruct((1001, 4), np.float32),
}


def test_advice_names_the_sizes_that_divide():
    placement = Placement(make_mesh(8))
    assert placement.batch_advice(16) == ""
    assert "a batch of 20 examples cannot be split over 8" in placement.batch_advice(20)
    assert placement.batch_advice(20).endswith("A batch size of 16 or 24 is faster.")
    assert placement.batch_advice(3).endswith("A batch size of 8 is faster.")


def test_tables_are_sharded_by_size_or_by_name():
    mesh = make_mesh(8)
    by_size = Placement(mesh, shard_above=1000).with_tables(FORMS)
    assert by_size.rows == {"large": 1000, "odd": 1001}
    named = (("small", True), ("large", False))
    by_name = Placement(mesh, 1000, named).with_tables(FORMS)
    assert by_name.rows == {"small": 10, "odd": 1001}
    assert by_name.padded_rows("odd") == 1008


def test_a_table_that_cannot_be_padded_is_sharded_only_if_it_divides():
    placement = Placement(make_mesh(8), shard_above=0)
    assert placement.with_tables(FORMS, unpadded=FORMS).rows == {"large": 1000}


@pytest.mark.parametrize("method", ["constrain", "replicate", "put", "pad", "forms"])
def test_one_device_returns_what_it_is_given(method):
    tree = {"large": np.ones((3, 2), np.float32)}
    placement = Placement(shard_above=0).with_tables(tree)
    assert placement.size == placement.processes == placement.batch_parts == 1
    assert getattr(placement, method)(tree) is tree


def test_equal_settings_are_equal_placements():
    one, other = (Placement(make_mesh(8), 5).with_tables(FORMS) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
