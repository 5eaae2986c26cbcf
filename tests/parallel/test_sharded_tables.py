import jax
import jax.numpy as jnp
import numpy as np
import pytest

from estimax import parallel
from estimax.optimizers import SGD, Adagrad
from estimax.optimizers import update_rows as update_of_one
from estimax.parallel import Placement

V = 21  # on 8 devices: 24 rows, 3 per device


@pytest.fixture
def placement():
    mesh = parallel.make_mesh(8)
    return Placement(mesh, shard_above=0).with_tables({"emb": jnp.zeros((V, 2))})


@pytest.fixture
def table():
    return np.arange(V * 2, dtype=np.float32).reshape(V, 2)


def test_a_table_has_the_same_number_of_rows_on_every_device(placement, table):
    placed = placement.put({"emb": table})["emb"]
    assert placed.shape == (24, 2)
    assert {shard.data.shape for shard in placed.addressable_shards} == {(3, 2)}
    np.testing.assert_array_equal(np.asarray(placed)[:V], table)


def test_unique_rows_come_from_their_owners_and_padding_is_zero(placement, table):
    placed = placement.put({"emb": table})["emb"]
    ids = jnp.array([0, 7, 20, V, V])
    gather = jax.jit(lambda t, i: parallel.gather_rows(placement, "emb", t, i))
    rows = np.asarray(gather(placed, ids))
    np.testing.assert_array_equal(rows[:3], table[[0, 7, 20]])
    assert not rows[3:].any()


@pytest.mark.parametrize("examples", [16, 5])
def test_any_ids_are_read_and_clamped_as_from_one_table(placement, table, examples):
    placed = placement.put({"emb": table})["emb"]
    ids = np.random.default_rng(0).integers(-2, V + 3, (examples, 3))
    read = jax.jit(lambda t, i: parallel.read_rows(placement, "emb", t, i))
    expected = table[np.clip(ids, 0, V - 1)]
    np.testing.assert_array_equal(np.asarray(read(placed, ids)), expected)


def test_the_gradient_of_a_read_is_summed_by_the_owner(placement, table):
    placed = placement.put({"emb": table})["emb"]
    ids = jnp.array([3, 3, 20, 0, 3, 1, 1, 9])

    def total(table):
        rows = parallel.read_rows(placement, "emb", table, ids)
        return jnp.sum(rows * jnp.arange(8.0)[:, None])

    grads = jax.jit(jax.grad(total))(placed)
    expected = np.zeros((24, 2), np.float32)
    np.add.at(expected, np.asarray(ids), np.arange(8.0)[:, None])
    np.testing.assert_allclose(np.asarray(grads), expected)
    assert grads.sharding.is_equivalent_to(placement.by_row, 2)


@pytest.mark.parametrize("optimizer", [SGD(0.5), Adagrad(0.5)], ids=["sgd", "adagrad"])
def test_owners_update_their_rows_as_one_device_would(placement, table, optimizer):
    slots = {name: np.full((V, 2), 0.1, np.float32) for name in _slots(optimizer)}
    ids = jnp.array([1, 2, 3, 19, 20, V, V, V])
    grads = jnp.arange(16.0).reshape(8, 2)
    expected, expected_slots = update_of_one(
        optimizer, jnp.asarray(table), jax.tree.map(jnp.asarray, slots), ids, grads, 0
    )
    placed = placement.put({"emb": {"table": table, "slots": slots}})["emb"]

    def update(block, slots, ids, grads, step):
        return update_of_one(optimizer, block, slots, ids, grads, step, in_place=False)

    new, new_slots = jax.jit(
        lambda t, s: parallel.update_rows(
            placement, "emb", update, t, s, ids, grads, jnp.int32(0)
        )
    )(placed["table"], placed["slots"])
    np.testing.assert_allclose(np.asarray(new)[:V], expected, rtol=1e-6)
    for name, slot in expected_slots.items():
        np.testing.assert_allclose(np.asarray(new_slots[name])[:V], slot, rtol=1e-6)


def _slots(optimizer):
    return optimizer.rule.slots(jnp.zeros((1, 2)))
