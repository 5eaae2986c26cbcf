import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from estimax import optimizers
from estimax.optimizers import Rule, sum_duplicates, update_rows, update_touched

V, D = 50, 3
# Rows 0, 7 and the last; too large and negative ids are padding, wherever they stand.
EDGES = jnp.array([0, V, 7, -1, V - 1, 2**31 - 1], jnp.int32)

BY_ROWS = {
    "SGD": optimizers.SGD(0.1),
    "SGD with momentum": optimizers.SGD(0.1, momentum=0.9),
    "Momentum": optimizers.Momentum(0.1, 0.9, use_nesterov=True),
    "Adagrad": optimizers.Adagrad(0.1),
    "Adagrad v1": optimizers.Adagrad(0.1, generation="v1"),
    "Ftrl": optimizers.Ftrl(0.1, l1_regularization_strength=0.01),
    "LazyAdam": optimizers.LazyAdam(0.1),
    "RMSProp v1": optimizers.RMSProp(0.1, generation="v1"),
    "ProximalAdagrad": optimizers.ProximalAdagrad(0.1, l1_regularization_strength=0.1),
    "ProximalGradientDescent": optimizers.ProximalGradientDescent(0.1),
    "Adadelta": optimizers.Adadelta(0.1),
    "Adamax": optimizers.Adamax(0.1),
}
WHOLE = {
    "Adam": optimizers.Adam(0.1),
    "AdamW": optimizers.AdamW(0.1),
    "Nadam": optimizers.Nadam(0.1),
    "RMSProp": optimizers.RMSProp(0.1),
    "keras SGD": optimizers.SGD(0.1, momentum=0.9, generation="keras"),
    "keras Ftrl": optimizers.Ftrl(0.1, generation="keras"),
}


def random_steps(count=5, rows=8):
    """Sorted distinct ids padded with V, and gradients of those rows."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        ids = np.sort(rng.choice(V, rows - 2, replace=False))
        padded = np.concatenate([ids, [V, V]]).astype(np.int32)
        yield padded, rng.normal(size=(rows, D)).astype(np.float32)


def start(optimizer):
    table = jnp.asarray(np.random.default_rng(1).normal(size=(V, D)), jnp.float32)
    return table, optimizers.init_slots(optimizer, table)


def spread(ids, rows):
    """The gradient of the whole table, and which rows were named."""
    grads = np.zeros((V, D), np.float32)
    grads[ids[ids < V]] = rows[ids < V]
    touched = np.zeros(V, bool)
    touched[ids[ids < V]] = True
    return grads, touched


def assert_same_bits(ours, theirs):
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def assert_close(ours, theirs):
    # Not to the bit: a compiler may round a longer formula otherwise in two programs.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7),
        ours,
        theirs,
    )


@pytest.mark.parametrize("name", BY_ROWS | WHOLE)
def test_a_row_update_is_the_masked_update_of_the_whole_table(name):
    optimizer = (BY_ROWS | WHOLE)[name]
    by_rows = jax.jit(lambda *a: update_rows(optimizer, *a))
    masked = jax.jit(lambda *a: update_touched(optimizer, *a))
    ours = theirs = start(optimizer)
    for step, (ids, rows) in enumerate(random_steps()):
        grads, touched = spread(ids, rows)
        ours = by_rows(*ours, ids, rows, step)
        theirs = masked(*theirs, touched, grads, step)
    assert_close(ours, theirs)


# Not Adagrad v1: XLA multiplies by the reciprocal of its root, our kernel divides.
@pytest.mark.parametrize("name", ["SGD", "Adagrad", "ProximalGradientDescent"])
def test_where_zero_gradients_change_nothing_rows_equal_dense_to_the_bit(name):
    optimizer = BY_ROWS[name]
    # The bits depend on which products are fused, so compile as for users.
    options = {"xla_backend_optimization_level": 3}
    by_rows = jax.jit(lambda *a: update_rows(optimizer, *a), compiler_options=options)
    dense = jax.jit(
        lambda t, s, g, k: optimizer.apply(g, s, t, step=k), compiler_options=options
    )
    ours = theirs = start(optimizer)
    for step, (ids, rows) in enumerate(random_steps()):
        ours = by_rows(*ours, ids, rows, step)
        theirs = dense(*theirs, spread(ids, rows)[0], step)
    assert_same_bits(ours, theirs)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "RMSProp", "keras SGD"])
def test_optimizers_that_decay_every_row_equal_dense(name):
    optimizer = WHOLE[name]
    by_rows = jax.jit(lambda *a: update_rows(optimizer, *a))
    dense = jax.jit(lambda t, s, g, k: optimizer.apply(g, s, t, step=k))
    ours = theirs = start(optimizer)
    for step, (ids, rows) in enumerate(random_steps()):
        ours = by_rows(*ours, ids, rows, step)
        theirs = dense(*theirs, spread(ids, rows)[0], step)
    assert_close(ours, theirs)


@pytest.mark.parametrize("name", BY_ROWS)
def test_rows_without_a_gradient_stay(name):
    optimizer = BY_ROWS[name]
    table, slots = start(optimizer)
    ids, rows = next(random_steps())
    new, new_slots = update_rows(optimizer, table, slots, ids, rows, 0)
    untouched = np.setdiff1d(np.arange(V), ids)
    assert_same_bits(new[untouched], table[untouched])
    for slot, value in slots.items():
        assert_same_bits(new_slots[slot][untouched], value[untouched])


def test_adam_moves_rows_that_it_saw_before():
    optimizer = WHOLE["Adam"]
    table, slots = start(optimizer)
    ids, rows = np.array([4], np.int32), np.ones((1, D), np.float32)
    table, slots = update_rows(optimizer, table, slots, ids, rows, 0)
    other, _ = update_rows(optimizer, table, slots, ids + 1, rows, 1)
    assert (other[4] != table[4]).all()


def test_nadam_decays_every_moment_but_moves_touched_rows_only():
    optimizer = WHOLE["Nadam"]
    table, slots = start(optimizer)
    ids, rows = np.array([4], np.int32), np.ones((1, D), np.float32)
    table, slots = update_rows(optimizer, table, slots, ids, rows, 0)
    new, new_slots = update_rows(optimizer, table, slots, ids + 1, rows, 1)
    assert_same_bits(new[4], table[4])
    np.testing.assert_allclose(new_slots["m"][4], 0.9 * slots["m"][4])


def test_a_listed_row_with_a_zero_gradient_is_touched():
    optimizer = BY_ROWS["Ftrl"]
    table, slots = start(optimizer)
    ids, zeros = np.array([0, V], np.int32), np.zeros((2, D), np.float32)
    new, _ = update_rows(optimizer, table, slots, ids, zeros, 0)
    assert new[0].tolist() == [0.0, 0.0, 0.0]
    assert_same_bits(new[1:], table[1:])


def test_padding_changes_nothing_however_large_its_gradient():
    optimizer = BY_ROWS["Adagrad"]
    table, slots = start(optimizer)
    ids, rows = np.full(4, V, np.int32), np.full((4, D), np.inf, np.float32)
    assert_same_bits(update_rows(optimizer, table, slots, ids, rows, 0), (table, slots))


def compiled(optimizer, vocabulary, width=8, rows=64):
    table = jax.ShapeDtypeStruct((vocabulary, width), jnp.float32)
    slots = jax.eval_shape(lambda t: optimizers.init_slots(optimizer, t), table)
    ids = jax.ShapeDtypeStruct((rows,), jnp.int32)
    grads = jax.ShapeDtypeStruct((rows, width), jnp.float32)
    step = jax.ShapeDtypeStruct((), jnp.int32)
    update = jax.jit(
        lambda *a: update_rows(optimizer, *a), donate_argnums=(0, 1), keep_unused=True
    )
    return update.lower(table, slots, ids, grads, step).compile()


@pytest.mark.usefixtures("native_on")
@pytest.mark.parametrize("name", ["SGD", "Momentum", "Adagrad", "Ftrl", "LazyAdam"])
def test_a_row_update_computes_nothing_as_large_as_the_table(name):
    small, large = (compiled(BY_ROWS[name], v) for v in (1_000, 1_000_000))
    assert small.cost_analysis()["flops"] == large.cost_analysis()["flops"]
    memory = [c.memory_analysis().temp_size_in_bytes for c in (small, large)]
    assert memory[0] == memory[1] < 100_000
    # The only instructions of the table's size are itself, donated, and scatters, or
    # the outputs of a call of ours that are written in place.
    made = re.findall(r"(\S+) = f32\[1000000,8\]\S* ([\w-]+)\(", large.as_text())
    kinds = {"scatter" if "scatter" in name else kind for name, kind in made}
    writes = {"get-tuple-element"} if name == "Adagrad" else {"scatter"}
    assert {"parameter"} <= kinds <= {"parameter"} | writes
    assert large.memory_analysis().alias_size_in_bytes >= 32_000_000


def test_the_check_sees_an_update_of_the_whole_table(monkeypatch):
    monkeypatch.setattr("estimax.native.loading.setting", "off")
    small, large = (compiled(WHOLE["Adam"], v) for v in (1_000, 1_000_000))
    assert large.cost_analysis()["flops"] > 100 * small.cost_analysis()["flops"]


@pytest.mark.parametrize("generation", ["v1", "legacy", "keras"])
@pytest.mark.parametrize("width", [1, 3, 16, 37])
def test_the_compiled_loop_of_adagrad_does_what_the_rule_does(generation, width):
    optimizer = optimizers.Adagrad(0.1, generation=generation)
    table = jnp.asarray(np.random.default_rng(2).normal(size=(V, width)), jnp.float32)
    slots = optimizers.init_slots(optimizer, table)
    # Too large, and negative: padding of this function's callers, wherever it stands.
    ids = jnp.array([0, V, 7, -1, V - 1, 2**31 - 1], jnp.int32)
    grads = jnp.asarray(np.random.default_rng(3).normal(size=(6, width)), jnp.float32)
    new, new_slots = jax.jit(lambda *a: update_rows(optimizer, *a))(
        table, slots, ids, grads, 0
    )
    rows, row_slots = optimizer.rule.update(
        grads[::2],
        table[jnp.array([0, 7, V - 1])],
        {"accumulator": slots["accumulator"][:3]},
        jnp.float32(0.1),
        jnp.int32(0),
    )
    expected = table.at[jnp.array([0, 7, V - 1])].set(rows)
    np.testing.assert_allclose(new, expected, rtol=1e-6, atol=1e-7)
    found = new_slots["accumulator"][jnp.array([0, 7, V - 1])]
    np.testing.assert_allclose(found, row_slots["accumulator"], rtol=1e-6)


ADAMS = {
    "legacy": optimizers.Adam(0.1),
    "v1": optimizers.Adam(0.1, generation="v1"),
    "keras": optimizers.Adam(0.1, generation="keras"),
    "a schedule": optimizers.Adam(optimizers.exponential_decay(0.1, 3, 0.5)),
    "a large epsilon": optimizers.Adam(0.1, epsilon=1.0),
    "weight decay": optimizers.AdamW(0.1, weight_decay=0.1),
}


@pytest.mark.usefixtures("native_on")
@pytest.mark.parametrize("name", ADAMS)
@pytest.mark.parametrize("width", [1, 3, 16, 37])
def test_the_compiled_pass_of_adam_does_what_the_rule_does(name, width):
    optimizer, rng = ADAMS[name], np.random.default_rng(2)
    table = jnp.asarray(rng.normal(size=(V, width)), jnp.float32)
    ours = theirs = table, optimizers.init_slots(optimizer, table)
    by_kernel = jax.jit(lambda *a: update_rows(optimizer, *a))
    dense = jax.jit(lambda t, s, g, k: optimizer.apply(g, s, t, step=k))
    assert "estimax_adam" in by_kernel.lower(*ours, EDGES, table[:6], 0).as_text()
    for step in range(20):
        # Gradients near epsilon and far from it, and rows left alone for many steps.
        grads = rng.normal(size=(6, width)) * 10.0 ** rng.integers(-9, 3, (6, 1))
        ids = EDGES if step in (0, 9) else jnp.full(6, V, jnp.int32)
        grads = jnp.asarray(grads, jnp.float32)
        whole = jnp.zeros_like(table).at[EDGES[::2]].set(grads[::2])
        ours = by_kernel(*ours, ids, grads, step)
        theirs = dense(*theirs, whole if ids is EDGES else 0 * whole, step)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-7),
        ours,
        theirs,
    )


@pytest.mark.usefixtures("native_on")
def test_the_compiled_pass_of_adam_makes_nothing_as_large_as_the_table():
    made = compiled(WHOLE["Adam"], 1_000_000)
    assert made.memory_analysis().temp_size_in_bytes < 100_000
    assert made.memory_analysis().alias_size_in_bytes >= 96_000_000


@pytest.mark.usefixtures("native_on")
def test_moments_of_a_row_that_is_left_alone_vanish_as_in_xla():
    optimizer = optimizers.Adam(0.1, beta_1=0.5, beta_2=0.5)
    table, slots = start(optimizer)
    slots = {name: slot + 1.5e-35 for name, slot in slots.items()}
    nothing = np.array([V], np.int32), np.zeros((1, D), np.float32)
    by_kernel = jax.jit(lambda *a: update_rows(optimizer, *a))
    by_xla = jax.jit(lambda *a: update_rows(optimizer, *a, in_place=False))
    ours = theirs = table, slots
    for step in range(40):  # through the numbers below the smallest normal one
        ours = by_kernel(*ours, *nothing, step)
        theirs = by_xla(*theirs, *nothing, step)
        assert_same_bits(ours[1], theirs[1])
    assert not np.asarray(ours[1]["v"]).any()


@pytest.mark.usefixtures("native_on")
def test_amsgrad_and_other_dtypes_are_left_to_xla():
    ids, rows = next(random_steps())
    for optimizer, dtype in [
        (optimizers.Adam(0.1, amsgrad=True), jnp.float32),
        (optimizers.Adam(0.1), jnp.bfloat16),
    ]:
        table = jnp.ones((V, D), dtype)
        slots = optimizers.init_slots(optimizer, table)
        update = jax.jit(lambda *a, by=optimizer: update_rows(by, *a))
        text = update.lower(table, slots, ids, rows, 0).as_text()
        assert "estimax_adam" not in text


def test_duplicates_are_summed_sorted_and_padded():
    ids = jnp.array([7, 2, 7, -1, 7, 99])
    grads = jnp.array([[1.0], [2.0], [3.0], [50.0], [4.0], [60.0]])
    unique, sums = sum_duplicates(ids, grads, vocabulary=10)
    assert unique.tolist() == [2, 7, 10, 10, 10, 10]
    assert sums[:2].tolist() == [[2.0], [8.0]]


def test_a_step_without_any_known_id_changes_nothing():
    optimizer = BY_ROWS["Adagrad"]
    table, slots = start(optimizer)
    ids, rows = sum_duplicates(jnp.array([-1, -1]), jnp.ones((2, D)), V)
    assert_same_bits(update_rows(optimizer, table, slots, ids, rows, 0), (table, slots))


def test_bfloat16_tables_stay_bfloat16():
    optimizer = BY_ROWS["LazyAdam"]
    table = jnp.ones((V, D), jnp.bfloat16)
    slots = optimizers.init_slots(optimizer, table)
    ids, rows = next(random_steps())
    new, new_slots = update_rows(optimizer, table, slots, ids, rows, 0)
    assert {a.dtype for a in (new, *new_slots.values())} == {jnp.dtype(jnp.bfloat16)}


def test_optax_has_no_row_update_and_says_so():
    wrapped = optimizers.as_optimizer(optax.adam(0.1))
    with pytest.raises(ValueError, match=r"no row-wise update\. Use an estimax"):
        optimizers.init_slots(wrapped, jnp.ones((V, D)))


def test_has_rows_tells_which_optimizers_need_only_the_touched_rows():
    assert all(optimizer.has_rows for optimizer in BY_ROWS.values())
    assert not any(optimizer.has_rows for optimizer in WHOLE.values())
    assert not optimizers.as_optimizer(optax.sgd(0.1)).has_rows


def test_a_rule_with_the_former_name_of_the_property_is_an_error():
    with pytest.raises(TypeError, match=r"Old\.untouched: rename it"):

        class Old(Rule):
            untouched = "decay"
