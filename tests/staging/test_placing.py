import jax
import numpy as np
import pytest

from estimax.parallel import make_mesh
from estimax.staging.host_plan import PreparedBatch
from estimax.staging.packing import unpack
from estimax.staging.placing import BatchPlacing


@pytest.fixture
def placing():
    return BatchPlacing(make_mesh(8))


def batch(examples, seed=0):
    rng = np.random.default_rng(seed)
    return PreparedBatch(
        raw={"x": rng.normal(size=(examples, 3)).astype(np.float32)},
        staged={"ids": rng.integers(0, 9, (examples, 2)).astype(np.int32)},
        unique={"g": np.arange(16, dtype=np.int32)},
    )


def assert_equal(found, expected):
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(found), expected)


def test_each_device_gets_its_share_of_the_examples(placing):
    given = batch(16)
    placed = placing.put(placing.pack(given))
    shards = placed.buffers["float32"].addressable_shards
    assert {shard.data.shape for shard in shards} == {(1, 6)}
    found = jax.jit(unpack)(placed)
    assert_equal(found, given)
    assert {s.data.shape for s in found.raw["x"].addressable_shards} == {(2, 3)}


def test_a_batch_that_does_not_divide_is_on_every_device(placing):
    given = batch(5)
    placed = placing.put(placing.pack(given))
    assert placed.buffers["float32"].sharding.is_fully_replicated
    assert_equal(jax.jit(unpack)(placed), given)


def test_stacked_batches_are_split_one_by_one(placing):
    first, second = batch(8, 1), batch(8, 2)
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), first, second)
    stack = placing.put(placing.pack_stack(joined, 2, 4))
    for place, given in enumerate((first, second)):
        one = jax.tree.map(lambda leaf, place=place: leaf[place], stack)
        assert_equal(jax.jit(unpack)(one), given)


def test_advice_names_the_sizes_that_divide(placing):
    assert placing.advice(16) == ""
    assert "a batch of 20 examples cannot be split over 8" in placing.advice(20)
    assert placing.advice(20).endswith("A batch size of 16 or 24 is faster.")
    assert placing.advice(3).endswith("A batch size of 8 is faster.")


def test_one_device_packs_as_before():
    packed = BatchPlacing().pack(batch(5))
    assert packed.layout.split is None
    assert packed.buffers["float32"].shape == (15,)
