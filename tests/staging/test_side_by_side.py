"""Rows of tables beside blocks of numbers, by compiled loops and by XLA: same bits."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from estimax import optimizers
from estimax.staging.host_plan import make_unique
from estimax.staging.trace import StackedRows, StackReads
from estimax.staging.variables.tables import (
    GatheredRows,
    _arrange,
    _grads_by_kernel,
    _grads_by_xla,
    side_by_side,
)


def gathered(ids, table):
    """What a training step has of a table, for ids [B]."""
    ids = np.asarray(ids, np.int32)[:, None]
    unique, inverse = make_unique({"t": {"c": ids}}, {"t": len(table)})
    rows = jnp.asarray(table).at[unique["t"]].get(mode="clip")
    return GatheredRows(
        jnp.asarray(table), jnp.asarray(ids), rows, jnp.asarray(inverse["t"]["c"])
    )


def drawn(seed, rows, widths):
    """A block and a table for each width, in turns; some ids are missing or equal."""
    draw = np.random.default_rng(seed)
    parts = []
    for width in widths:
        parts.append(draw.normal(size=(rows, 2)).astype(np.float32))
        table = draw.normal(size=(9, width)).astype(np.float32)
        parts.append(gathered(draw.integers(-2, 9, rows), table))
    return parts


def expected(parts):
    """Written out in NumPy."""
    blocks = []
    for part in parts:
        if isinstance(part, GatheredRows):
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
        if not isinstance(part, GatheredRows):
            np.testing.assert_array_equal(grad, mine)
            continue
        sums = np.zeros(part.rows.shape, np.float32)
        for i, place in enumerate(np.asarray(part.places)[:, 0]):
            if part.ids[i, 0] >= 0:
                sums[place] += mine[i]
        np.testing.assert_array_equal(grad.rows, sums)
        assert not np.asarray(grad.table).any()


@pytest.mark.usefixtures("native_on")
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


@pytest.mark.usefixtures("native_on")
def test_xla_finds_the_same_gradients():
    parts = drawn(5, 30, (3, 16, 16))
    grads = jnp.asarray(expected(parts)) + 1
    given = _arrange(parts), grads, side_by_side(parts)
    compiled = jax.jit(_grads_by_kernel)(*given)
    for ours, theirs in zip(compiled, _grads_by_xla(*given), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def stacked(parts):
    """The same tables as one array, whose columns are lines of two matrices."""
    reads = [part for part in parts if isinstance(part, GatheredRows)]
    table = jnp.concatenate([read.table for read in reads])
    rows = jnp.concatenate([read.rows for read in reads])
    firsts = np.cumsum([0, *[len(read.table) for read in reads]])[:-1].tolist()
    places = np.cumsum([0, *[len(read.rows) for read in reads]])[:-1].tolist()
    lines = StackReads(
        jnp.stack(
            [
                jnp.where(r.ids[:, 0] < 0, -1, r.ids[:, 0] + first)
                for r, first in zip(reads, firsts, strict=True)
            ]
        ),
        jnp.stack(
            [r.places[:, 0] + place for r, place in zip(reads, places, strict=True)]
        ),
    )
    found, line = [], 0
    for part in parts:
        if isinstance(part, GatheredRows):
            stack = StackedRows(
                "s", str(line), rows, firsts[line], places[line], lines, {}
            )
            found.append(
                replace(part, table=table, places=None, stack=stack, line=line)
            )
            line += 1
        else:
            found.append(part)
    return found, rows


@pytest.mark.usefixtures("native_on")
@pytest.mark.parametrize("reverse", [False, True])
def test_tables_of_a_stack_give_the_same_bits_as_apart(reverse):
    parts = drawn(8, 30, (4, 4, 4, 4))
    blocks, rows = stacked(parts)
    if reverse:  # the lines are then in another order than the columns
        parts, blocks = parts[::-1], blocks[::-1]
    weights = expected(parts) + 1

    def of_apart(rows):
        given = iter(rows)
        return side_by_side(
            [
                replace(part, rows=next(given))
                if isinstance(part, GatheredRows)
                else part
                for part in parts
            ]
        )

    def of_stack(rows):
        return side_by_side(
            [
                replace(block, stack=replace(block.stack, rows=rows))
                if isinstance(block, GatheredRows)
                else block
                for block in blocks
            ]
        )

    reads = [part for part in parts if isinstance(part, GatheredRows)]
    np.testing.assert_array_equal(jax.jit(of_stack)(rows), expected(parts))
    apart = jax.grad(lambda r: jnp.sum(of_apart(r) * weights))([r.rows for r in reads])
    whole = jax.jit(jax.grad(lambda r: jnp.sum(of_stack(r) * weights)))(rows)
    order = apart[::-1] if reverse else apart
    np.testing.assert_array_equal(whole, np.concatenate(order))
    given = _arrange(blocks), jnp.asarray(weights), of_stack(rows)
    for ours, theirs in zip(
        _grads_by_kernel(*given), _grads_by_xla(*given), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_other_dtypes_are_left_to_xla_too():
    parts = drawn(6, 30, (4,))
    table = parts[1]
    half = GatheredRows(
        table.table.astype(jnp.bfloat16),
        table.ids,
        table.rows.astype(jnp.bfloat16),
        table.places,
    )
    found = side_by_side([half])
    assert found.dtype == jnp.bfloat16
    np.testing.assert_array_equal(found, expected([half]))


def test_an_id_beyond_the_table_reads_its_last_row_and_trains_none():
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    part = gathered([0, 1, 5, 7], table)
    assert part.places.max() >= len(part.rows)  # outside of what is summed
    laid, back = jax.vjp(
        lambda rows: side_by_side([replace(part, rows=rows)]), part.rows
    )
    np.testing.assert_array_equal(laid, table[[0, 1, 1, 1]])
    (grads,) = back(jnp.ones_like(laid))
    np.testing.assert_array_equal(grads, np.ones((2, 3)))


def test_what_the_loops_cannot_take_is_refused():
    part = drawn(7, 6, (4,))[1]
    many = replace(part, ids=part.ids.reshape(2, 3), places=part.places.reshape(2, 3))
    with pytest.raises(ValueError, match="one int32 id for each example"):
        side_by_side([many])
    with pytest.raises(ValueError, match="5 rows beside 6"):
        side_by_side([part, jnp.zeros((5, 2))])
    with pytest.raises(ValueError, match="got int16"):
        side_by_side([replace(part, ids=part.ids.astype(jnp.int16))])


@pytest.mark.usefixtures("native_on")
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("name", ["Adagrad", "Adam"])
def test_a_table_that_is_updated_in_place_is_never_copied(name, power):
    table = jnp.ones((1000, 4))
    optimizer = getattr(optimizers, name)(0.1)
    slots = optimizers.init_slots(optimizer, table)
    part = gathered(np.arange(8), table)

    def step(table, slots, part):
        def loss(rows):  # of power 1 its gradient needs nothing that was looked up
            laid = side_by_side([replace(part, table=table, rows=rows)])
            return jnp.sum(laid**power)

        value, grads = jax.value_and_grad(loss)(part.rows)
        unique = part.ids[:, 0]
        updated = optimizers.update_rows(optimizer, table, slots, unique, grads, 0)
        return value, updated

    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(table, slots, part).compile()
    program = compiled.as_text()
    assert "estimax_lay_rows" in program
    assert f"estimax_{name.lower()}" in program
    assert not re.search(r"f32\[1000,4\]\S* copy", program)
