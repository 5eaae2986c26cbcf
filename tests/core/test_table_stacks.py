"""Tables that share an array, read by their own names."""

import jax
import jax.numpy as jnp
import numpy as np

from estimax.core.table_stacks import StackLayout, TableStacks, on_host, stacked

LAYOUT = StackLayout.of({"s": {"b": 2, "a": 3}, "c": {"c": 4}})
ROWS = np.arange(18, dtype=np.float32).reshape(9, 2)
APART = {"a": ROWS[2:5], "b": ROWS[:2], "c": ROWS[5:]}


def tables():
    return TableStacks({"s": jnp.asarray(ROWS[:5]), "c": jnp.asarray(ROWS[5:])}, LAYOUT)


def test_a_table_is_read_by_its_name():
    found = tables()
    assert list(found) == ["a", "b", "c"]
    assert "a" in found
    assert found.get("s") is None
    for name, rows in APART.items():
        np.testing.assert_array_equal(found[name], rows)


def test_tables_are_one_array_in_a_program():
    assert len(jax.tree.leaves(tables())) == 2
    found = jax.jit(lambda given: given.by_table())(tables())
    for name, rows in APART.items():
        np.testing.assert_array_equal(found[name], rows)


def test_a_table_that_is_alone_is_not_copied():
    found = tables()
    assert found["c"] is found.arrays["c"]


def test_values_on_the_host_are_views_of_the_stack():
    found = on_host(tables())
    assert all(np.array_equal(found[name], rows) for name, rows in APART.items())
    assert found["a"].base is not None


def test_shapes_have_ranges_too():
    form = jax.eval_shape(tables)
    assert {n: f.shape for n, f in form.by_table().items()} == {
        "a": (3, 2),
        "b": (2, 2),
        "c": (4, 2),
    }
    assert form["a"].dtype == jnp.float32


def test_slots_are_dicts_of_arrays():
    slots = TableStacks({"s": {"m": ROWS[:5], "v": -ROWS[:5]}}, LAYOUT)
    np.testing.assert_array_equal(slots["a"]["v"], -ROWS[2:5])


def test_stacking_undoes_the_split():
    found = stacked(APART, LAYOUT)
    np.testing.assert_array_equal(found.arrays["s"], ROWS[:5])
    assert stacked(APART, None) is APART


def test_equal_layouts_share_a_compiled_program():
    other = StackLayout.of({"s": {"b": 2, "a": 3}, "c": {"c": 4}})
    assert other == LAYOUT
    assert hash(other) == hash(LAYOUT)
    assert StackLayout.of({"s": {"a": 3, "b": 2}, "c": {"c": 4}}) != LAYOUT
    compiled = jax.jit(lambda given: given)
    compiled(tables())
    compiled(tables().with_arrays(tables().arrays))
    compiled(TableStacks(tables().arrays, other))
    assert compiled._cache_size() == 1


def test_a_dict_is_joined_with_tables():
    assert sorted(tables() | {"d": 1}) == ["a", "b", "c", "d"]
    assert sorted({"d": 1} | tables()) == ["a", "b", "c", "d"]
