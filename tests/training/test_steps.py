import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from table_models import (
    DUPLICATES,
    DenseTable,
    Table,
    V,
    batch_of,
    device_ids,
    host_ids,
    model_of,
    program_of,
    train,
)

from estimax import optimizers, training
from estimax.core.spec import EstimatorSpec
from estimax.staging import variables
from estimax.staging.packing import pack, pack_stack


def rows_after(net, optimizer, batches=DUPLICATES):
    """The table and its slots after a step for each batch."""
    _, state = train(model_of(net, optimizer), batches)
    slots = state.slots.get("t/rows", {})
    return (state.tables | state.params)["t/rows"], slots


def by_host(features):
    return Table(name="t")(host_ids(features))


def by_device(features):
    return Table(name="t")(device_ids(features))


def dense(features):
    return DenseTable(name="t")(device_ids(features))


@pytest.mark.parametrize("net", [by_host, by_device])
@pytest.mark.parametrize("optimizer", [optimizers.Adagrad(0.5), optimizers.SGD(0.5)])
def test_rows_are_updated_as_a_dense_gradient_would(net, optimizer):
    # Without momentum a row that no id named keeps its value under both.
    found, _ = rows_after(net, optimizer)
    wanted, _ = rows_after(dense, optimizer)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_adam_moves_every_row_in_both_ways():
    found, _ = rows_after(by_host, optimizers.Adam(0.5))
    wanted, _ = rows_after(dense, optimizers.Adam(0.5))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    "optimizer",
    [optimizers.SGD(0.1, momentum=0.9), optimizers.Ftrl(0.1), optimizers.Adagrad(0.1)],
    ids=lambda o: o.name,
)
def test_ids_from_the_device_and_from_the_host_update_alike(optimizer):
    by_rows, row_slots = rows_after(by_host, optimizer)
    masked, masked_slots = rows_after(by_device, optimizer)
    np.testing.assert_allclose(by_rows, masked, rtol=1e-5, atol=1e-7)
    assert row_slots.keys() == masked_slots.keys()
    for name in row_slots:
        np.testing.assert_allclose(row_slots[name], masked_slots[name], rtol=1e-5)


def test_rows_that_no_id_names_keep_their_bits():
    found, _ = rows_after(by_host, optimizers.Adagrad(0.5))
    first = np.arange(12, dtype=np.float32).reshape(6, 2) / 8
    assert np.array_equal(found[1], first[1])
    assert np.array_equal(found[4], first[4])
    assert not np.array_equal(found[2], first[2])


def test_an_example_without_ids_touches_row_0_as_in_tensorflow():
    # With momentum, a touched row moves on although its gradient is zero.
    named, empty = batch_of([[0], [1]]), batch_of([[1], [-1]])
    momentum = optimizers.SGD(0.1, momentum=0.9)
    for net in (by_host, by_device):
        once, _ = rows_after(net, momentum, [named])
        again, _ = rows_after(net, momentum, [named, empty])
        assert not np.array_equal(once[0], again[0])
        assert np.array_equal(once[2], again[2])


def test_a_frozen_table_keeps_its_bits():
    def net(features):
        frozen = Table(trainable=False, name="frozen")(host_ids(features))
        return frozen + by_host(features)

    _, state = train(model_of(net, optimizers.SGD(0.5)), DUPLICATES)
    first = np.arange(12, dtype=np.float32).reshape(6, 2) / 8
    assert np.array_equal(state.tables["frozen/rows"], first)
    assert "frozen/rows" not in state.slots


def test_one_table_looked_up_by_two_features_gets_both_gradients():
    def shared(features, kind):
        table = kind(name="t")
        return table(host_ids(features, "a")) + table(host_ids(features, "b"))

    batches = [batch_of([[0], [1], [1]], [[1], [4], [-1]])] * 2
    optimizer = optimizers.Adagrad(0.5)
    found, _ = rows_after(lambda f: shared(f, Table), optimizer, batches)
    wanted, _ = rows_after(lambda f: shared(f, DenseTable), optimizer, batches)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_raw_optax_trains_tables_as_wholes():
    found, _ = rows_after(by_host, optax.sgd(0.5))
    wanted, _ = rows_after(dense, optimizers.SGD(0.5))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_global_norm_clips_params_and_rows_together():
    clipped = optimizers.SGD(1.0, global_clipnorm=0.01)
    first = np.arange(V * 2, dtype=np.float32).reshape(V, 2) / 8
    found, _ = rows_after(by_host, clipped, DUPLICATES[:1])
    moved = np.linalg.norm(np.asarray(found) - first)
    np.testing.assert_allclose(moved, 0.01, rtol=1e-4)


def test_two_optimizers_update_their_own_tables():
    def net(features):
        return by_host(features) + Table(name="u")(host_ids(features))

    both = optimizers.group(
        optimizers.minimize(optimizers.SGD(0.5), var_list="t/"),
        optimizers.minimize(optimizers.Ftrl(0.5), var_list="u/"),
    )
    _, state = train(model_of(net, both), DUPLICATES)
    assert sorted(state.slots["t/rows"]) == []
    assert sorted(state.slots["u/rows"]) == ["accumulator", "linear"]


def test_several_steps_in_one_call_are_the_same_bits():
    program, one_by_one = train(model_of(by_host, optimizers.Adagrad(0.5)), DUPLICATES)
    batches = [pack(program.plan.prepare(batch)) for batch in DUPLICATES]
    state = program.init(jax.random.key(0), batches[0])
    joined = {
        origin: np.concatenate([batch[origin] for batch in DUPLICATES])
        for origin in DUPLICATES[0]
    }
    together = pack_stack(program.plan.prepare(joined, count=3), 3, capacity=8)
    state, _ = program.loop(state, together, 0, 2)
    together, outputs = program.loop(state, together, 2, 3)
    assert int(together.step) == 3
    assert outputs["loss"].shape == ()
    for found, wanted in zip(
        jax.tree.leaves(together.tables),
        jax.tree.leaves(one_by_one.tables),
        strict=True,
    ):
        assert np.array_equal(found, wanted)


def test_a_penalty_over_a_table_does_not_make_adam_copy_it():
    def function(features, labels):
        table = variables.get_variable("t", (5000, 8), initializer=0.5)
        rows = jnp.take(table, features["a"][:, 0], axis=0)
        loss = jnp.mean(rows[:, :2] - labels) + 0.01 * jnp.sum(jnp.square(table))
        return EstimatorSpec("train", loss=loss, train_op=optimizers.Adam(0.1))

    batch = DUPLICATES[0]
    program = program_of(function, batch)
    prepared = program.plan.prepare(batch)
    stack = pack_stack(prepared, 1, capacity=4)
    state = jax.eval_shape(program.init, jax.random.key(0), pack(prepared))
    text = program.loop.lower(state, stack, 0, 1).compile().as_text()
    assert "f32[5000,8]" in text
    assert not re.findall(r"f32\[5000,8\]\S* copy\(", text)


def test_the_variables_of_a_state_are_what_evaluation_needs():
    _, state = train(model_of(by_host, optimizers.SGD(0.5)), DUPLICATES[:1])
    assert list(training.variables_of(state).tables) == ["t/rows"]
