"""Initial values drawn apart are those of one program, to the last bit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from estimax.staging.variables import apart
from estimax.training.initial_values import draw_apart

SHAPES = [(50, 4), (50, 4), (7, 3), (50, 4)]


def _init(key, batch):
    start = apart(jax.nn.initializers.truncated_normal(0.5))
    keys = [jax.random.fold_in(key, i) for i in range(len(SHAPES))]
    tables = [
        start(k, shape, jnp.float32) for k, shape in zip(keys, SHAPES, strict=True)
    ]
    slots = [jnp.full_like(table, 0.1) for table in tables]
    kernel = jax.random.normal(key, (3, 2)) * 0.3 + 0.1
    return {"tables": tables, "slots": slots, "kernel": kernel, "step": 0}


def _assert_same(found, wanted):
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


def test_tables_drawn_apart_have_the_bits_of_one_program():
    arguments = jax.random.key(3), jnp.zeros(2)
    _assert_same(draw_apart(_init, None)(*arguments), jax.jit(_init)(*arguments))


def test_shapes_are_found_without_drawing():
    arguments = jax.random.key(3), jnp.zeros(2)
    found = jax.eval_shape(draw_apart(_init, None), *arguments)
    assert found == jax.eval_shape(_init, *arguments)


def _twice(key, batch):
    made = _init(key, batch)
    return {**made, "averages": made["tables"]}


def _computed_key(key, batch):
    start = apart(jax.nn.initializers.uniform(0.5))
    seed = (batch.sum() * 10).astype(jnp.int32)
    return start(jax.random.fold_in(key, seed), (4, 2), jnp.float32)


@pytest.mark.parametrize("init", [_twice, _computed_key])
def test_what_cannot_be_cut_is_compiled_whole(init):
    arguments = jax.random.key(3), jnp.full(2, 0.7)
    _assert_same(draw_apart(init, None)(*arguments), jax.jit(init)(*arguments))


def test_a_state_never_holds_one_array_twice():
    made = draw_apart(_twice, None)(jax.random.key(3), jnp.zeros(2))
    places = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(made)]
    assert len(set(places)) == len(places)
