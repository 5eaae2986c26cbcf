import jax
import numpy as np
import pytest

from estimax.parallel import Placement, make_mesh
from estimax.staging.host_plan import PreparedBatch
from estimax.staging.packing import pack, pack_stack, put, unpack


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


@pytest.fixture
def eight():
    return Placement(make_mesh(8))


def batch(examples, seed=0):
    rng = np.random.default_rng(seed)
    return PreparedBatch(
        raw={"x": rng.normal(size=(examples, 3)).astype(np.float32)},
        staged={"ids": rng.integers(0, 9, (examples, 2)).astype(np.int32)},
        unique={"g": np.arange(16, dtype=np.int32)},
    )


def assert_equal(found, expected):
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(found), expected)


def test_each_device_gets_its_share_of_the_examples(eight):
    given = batch(16)
    placed = put(pack(given, eight), eight)
    shards = placed.buffers["float32"].addressable_shards
    assert {shard.data.shape for shard in shards} == {(1, 6)}
    found = jax.jit(unpack)(placed)
    assert_equal(found, given)
    assert {s.data.shape for s in found.raw["x"].addressable_shards} == {(2, 3)}


def test_a_batch_that_does_not_divide_is_on_every_device(eight):
    given = batch(5)
    placed = put(pack(given, eight), eight)
    assert placed.buffers["float32"].sharding.is_fully_replicated
    assert_equal(jax.jit(unpack)(placed), given)


def test_stacked_batches_are_split_one_by_one(eight):
    first, second = batch(8, 1), batch(8, 2)
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), first, second)
    stack = put(pack_stack(joined, 2, 4, eight), eight)
    for place, given in enumerate((first, second)):
        one = jax.tree.map(lambda leaf, place=place: leaf[place], stack)
        assert_equal(jax.jit(unpack)(one), given)


def test_one_device_packs_as_before():
    packed = pack(batch(5), Placement())
    assert packed.layout.sharding is None
    assert packed.buffers["float32"].shape == (15,)
