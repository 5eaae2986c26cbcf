import jax
import numpy as np

from estimax.staging.packing import pack, unpack


def tree(rows=2):
    return {
        "raw": {"x": np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)},
        "ids": [np.arange(rows, dtype=np.int32), np.array(True)],
        "empty": np.zeros((0, 2), np.float32),
    }


def test_a_tree_comes_back_from_its_buffers_inside_jit():
    given = tree()
    found = jax.jit(unpack)(pack(given))
    assert jax.tree.structure(found) == jax.tree.structure(given)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(given), strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


def test_there_is_one_buffer_for_each_dtype():
    assert sorted(pack(tree()).buffers) == ["bool", "float32", "int32"]


def test_equal_shapes_share_a_layout_and_so_compile_once():
    traced = []

    @jax.jit
    def total(packed):
        traced.append(1)
        return unpack(packed)["raw"]["x"].sum()

    assert pack(tree()).layout is pack(tree()).layout
    total(pack(tree()))
    total(pack(tree()))
    total(pack(tree(rows=3)))
    assert len(traced) == 2
