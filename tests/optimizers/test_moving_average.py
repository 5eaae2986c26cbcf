import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden_files import load_golden

from estimax import optimizers


def decode(tensor):
    values = [float(v) for v in tensor["data"]]
    return np.array(values, tensor["dtype"]).reshape(tensor["shape"])


def compare(case):
    values, expected = decode(case["values"]), decode(case["average"])
    if case["id"] == "variable":
        state = optimizers.init_average(jnp.asarray(decode(case["initial"])))
    else:
        state = optimizers.init_average_at_zero(
            jnp.zeros_like(values[0]), zero_debias=case["zero_debias"]
        )
    for step, value in enumerate(values):
        count = None if case["num_updates"] is None else step
        state = optimizers.update_average(state, value, case["decay"], count)
        np.testing.assert_allclose(state.average, expected[step], rtol=1e-5, atol=1e-6)


@pytest.mark.golden
def test_every_average_is_tensorflows():
    cases = load_golden("clipping.json")["ema"]
    compared = 0
    for case in cases:
        compare(case)
        compared += 1
    assert compared == len(cases) > 0


@pytest.mark.golden
def test_a_wrong_golden_average_is_noticed():
    case = copy.deepcopy(load_golden("clipping.json")["ema"][0])
    case["average"]["data"][-1] += 1e-3
    with pytest.raises(AssertionError, match="tolerance"):
        compare(case)


def test_a_tree_is_averaged_leaf_by_leaf_inside_jit():
    params = {"a": jnp.zeros(2), "b": {"c": jnp.zeros(())}}
    state = optimizers.init_average(params)
    ones = jax.tree.map(jnp.ones_like, params)
    state = jax.jit(optimizers.update_average)(state, ones, 0.75)
    assert state.average["a"].tolist() == [0.25, 0.25]
    assert float(state.average["b"]["c"]) == 0.25


def test_variables_and_their_averages_can_be_donated_together():
    params = jnp.arange(4.0)
    state = optimizers.init_average(params)
    step = jax.jit(
        lambda p, s: (p + 1, optimizers.update_average(s, p + 1, 0.5)),
        donate_argnums=(0, 1),
    )
    params, state = step(params, state)
    assert state.average.tolist() == [0.5, 1.5, 2.5, 3.5]
