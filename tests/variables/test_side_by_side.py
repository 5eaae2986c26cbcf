"""Rows of tables beside blocks of numbers, by compiled loops and by XLA: same bits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from estimax.core.plan import make_unique
from estimax.variables.side_by_side import (
    ReadyRows,
    _grads_by_loop,
    _grads_by_xla,
    side_by_side,
)


def ready(ids, table):
    """What a training step has of a table, for ids [B]."""
    ids = np.asarray(ids, np.int32)[:, None]
    unique, inverse = make_unique({"t": {"c": ids}}, {"t": len(table)})
    rows = jnp.asarray(table).at[unique["t"]].get(mode="clip")
    return ReadyRows(
        jnp.asarray(table), jnp.asarray(ids), rows, jnp.asarray(inverse["t"]["c"])
    )


def drawn(seed, rows, widths):
    """A block and a table for each width, in turns; some ids are missing or equal."""
    draw = np.random.default_rng(seed)
    parts = []
    for width in widths:
        parts.append(draw.normal(size=(rows, 2)).astype(np.float32))
        table = draw.normal(size=(9, width)).astype(np.float32)
        parts.append(ready(draw.integers(-2, 9, rows), table))
    return parts


def expected(parts):
    """Written out in NumPy."""
    blocks = []
    for part in parts:
        if isinstance(part, ReadyRows):
            ids = np.asarray(part.ids)[:, 0]
            found = np.asarray(part.table)[np.clip(ids, 0, len(part.table) - 1)]
            blocks.append(np.where(ids[:, None] >= 0, found, 0))
        else:
            blocks.append(np.asarray(part))
    return np.concatenate(blocks, axis=1)


# Rows of whole vectors, of less than one, and of several lines of memory.
WIDTHS = [(1,), (3, 4), (16, 16, 17), (5, 64, 40)]


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("rows", [0, 1, 7, 50])
def test_every_row_is_where_it_belongs(widths, rows):
    parts = drawn(1, rows, widths)
    np.testing.assert_array_equal(side_by_side(parts), expected(parts))
    np.testing.assert_array_equal(jax.jit(side_by_side)(parts), expected(parts))


@pytest.mark.parametrize("widths", WIDTHS)
def test_gradients_have_the_bits_of_numbers_added_in_order(widths):
    parts = drawn(2, 50, widths)
    weights = np.random.default_rng(3).normal(size=expected(parts).shape)
    weights = weights.astype(np.float32)

    def loss(parts):
        return jnp.sum(side_by_side(parts) * weights)

    found = jax.jit(jax.grad(loss, allow_int=True))(parts)
    start = 0
    for part, grad in zip(parts, found, strict=True):
        mine = weights[:, start : start + part.shape[1]]
        start += part.shape[1]
        if not isinstance(part, ReadyRows):
            np.testing.assert_array_equal(grad, mine)
            continue
        sums = np.zeros(part.rows.shape, np.float32)
        for i, place in enumerate(np.asarray(part.places)[:, 0]):
            if part.ids[i, 0] >= 0:
                sums[place] += mine[i]
        np.testing.assert_array_equal(grad.rows, sums)
        assert not np.asarray(grad.table).any()


def test_other_platforms_are_left_to_xla():
    parts = drawn(4, 30, (3, 16, 16))

    def both(parts, grads):
        laid, back = jax.vjp(lambda parts: side_by_side(parts), parts)
        return laid, back(grads)

    def program(platform):
        lowered = export.export(
            jax.jit(both), platforms=[platform], disabled_checks=ours
        )
        return lowered(parts, expected(parts)).mlir_module()

    names = ["estimax_lay_rows", "estimax_add_rows"]
    ours = [export.DisabledSafetyCheck.custom_call(name) for name in names]
    assert all(name in program("cpu") for name in names)
    assert not any(name in program("cuda") for name in names)


def test_xla_finds_the_same_gradients():
    parts = drawn(5, 30, (3, 16, 16))
    grads = jnp.asarray(expected(parts)) + 1
    compiled = jax.jit(_grads_by_loop)(parts, grads)
    for ours, theirs in zip(compiled, _grads_by_xla(parts, grads), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_other_dtypes_are_left_to_xla_too():
    parts = drawn(6, 30, (4,))
    table = parts[1]
    half = ReadyRows(
        table.table.astype(jnp.bfloat16),
        table.ids,
        table.rows.astype(jnp.bfloat16),
        table.places,
    )
    found = side_by_side([half])
    assert found.dtype == jnp.bfloat16
    np.testing.assert_array_equal(found, expected([half]))
