import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from estimax import optimizers

PARAMS = {"dnn": {"kernel": jnp.array([[1.0, -2.0]]), "bias": jnp.array([0.5])}}
GRADS = {"dnn": {"kernel": jnp.array([[0.1, 0.2]]), "bias": jnp.array([-0.3])}}


def test_state_holds_a_tree_like_the_params_for_every_slot():
    state = optimizers.Ftrl().init(PARAMS)
    assert sorted(state) == ["accumulator", "linear"]
    for tree in state.values():
        assert jax.tree.structure(tree) == jax.tree.structure(PARAMS)
    np.testing.assert_allclose(state["accumulator"]["dnn"]["bias"], 0.1)


def test_dense_is_an_optax_transformation_of_the_same_numbers():
    optimizer = optimizers.Adam(0.1)
    transformation = optimizer.dense()
    state = transformation.init(PARAMS)
    updates, state = transformation.update(GRADS, state, PARAMS, step=0)
    new, new_state = optimizer.apply(GRADS, optimizer.init(PARAMS), PARAMS, step=0)
    added = optax.apply_updates(PARAMS, updates)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), added, new)
    jax.tree.map(np.testing.assert_array_equal, state, new_state)


def test_dense_can_be_chained_with_optax():
    chain = optax.chain(optax.scale(2.0), optimizers.SGD(0.5).dense())
    state = chain.init(PARAMS)
    updates, _ = chain.update(GRADS, state, PARAMS, step=jnp.int32(3))
    np.testing.assert_allclose(updates["dnn"]["kernel"], [[-0.1, -0.2]], rtol=1e-5)


def test_the_learning_rate_follows_the_step_that_is_passed():
    optimizer = optimizers.SGD(optimizers.piecewise_constant([4], [1.0, 0.1]))
    for step, change in ((4, -1.0), (5, -0.1)):
        new, _ = optimizer.apply(jnp.ones(1), {}, jnp.zeros(1), step=step)
        np.testing.assert_allclose(new, [change])


def test_one_program_serves_every_step():
    optimizer = optimizers.Adam(optimizers.exponential_decay(0.1, 2, 0.5))
    step = jax.jit(lambda w, s, k: optimizer.apply(w, s, w, step=k))
    w, state = jnp.ones(3), optimizer.init(jnp.ones(3))
    for k in range(3):
        w, state = step(w, state, jnp.int32(k))
    assert step._cache_size() == 1


def test_raw_optax_keeps_its_own_state_and_rate():
    optimizer = optimizers.as_optimizer(optax.sgd(0.5))
    new, _ = optimizer.apply(GRADS, optimizer.init(PARAMS), PARAMS, step=7)
    np.testing.assert_allclose(new["dnn"]["bias"], [0.65])
    with pytest.raises(ValueError, match="keeps its own learning rate"):
        optimizer.learning_rate_at(0)


def test_raw_optax_ignores_the_step_it_is_given():
    transformation = optimizers.as_optimizer(optax.sgd(0.5)).dense()
    state = transformation.init(PARAMS)
    updates, _ = transformation.update(GRADS, state, PARAMS, step=7)
    np.testing.assert_allclose(updates["dnn"]["bias"], [0.15], rtol=1e-6)


def test_clipping_is_part_of_apply_unless_unclipped():
    optimizer = optimizers.SGD(1.0, global_clipnorm=1.0)
    grads, start = jnp.array([3.0, 4.0]), jnp.zeros(2)
    clipped, _ = optimizer.apply(grads, {}, start, step=0)
    plain, _ = optimizer.unclipped.apply(grads, {}, start, step=0)
    np.testing.assert_allclose(clipped, [-0.6, -0.8])
    np.testing.assert_allclose(plain, [-3.0, -4.0])


def test_params_without_leaves_have_a_state_too():
    optimizer = optimizers.Adagrad()
    state = optimizer.init({})
    assert optimizer.apply({}, state, {}, step=0) == ({}, state)


def test_bfloat16_params_stay_bfloat16():
    optimizer = optimizers.Adam(0.1)
    w = jnp.ones(3, jnp.bfloat16)
    new, state = optimizer.apply(w, optimizer.init(w), w, step=0)
    assert {new.dtype, state["m"].dtype} == {jnp.dtype(jnp.bfloat16)}


def test_repr_shows_the_arguments():
    rate = optimizers.linear_warmup(0.1, 10)
    shown = repr(optimizers.SGD(rate, clipnorm=2.0))
    assert shown.startswith("SGD(learning_rate=linear_warmup(schedule=0.1, ")
    assert "norm=2.0" in shown


def test_repr_of_a_decayed_rate_is_its_formula():
    assert "learning_rate=0.1 / (1 + 0.5 * step)" in repr(
        optimizers.SGD(0.1, decay=0.5)
    )
