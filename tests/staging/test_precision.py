"""Layers that are told what to compute in."""

import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn

from estimax.staging.variables import computing_in

X = jnp.ones((2, 5, 3))


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (nn.Dense(4), X),
        (nn.Conv(4, (3,)), X),
        (nn.LayerNorm(), X),
        (nn.Embed(4, 2), jnp.ones((2, 5), jnp.int32)),
        (nn.MultiHeadDotProductAttention(num_heads=1), X),
        (nn.RNN(nn.SimpleCell(4)), X),
    ],
    ids=lambda value: type(value).__name__,
)
def test_flax_s_layers_compute_in_it_and_keep_float32_variables(layer, x):
    with computing_in("bfloat16"):
        y, made = layer.init_with_output(jax.random.key(0), x)
    assert y.dtype == jnp.bfloat16
    assert {leaf.dtype.name for leaf in jax.tree.leaves(made)} == {"float32"}
    assert layer.init_with_output(jax.random.key(0), x)[0].dtype == jnp.float32


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.OptimizedLSTMCell])
def test_cells_carry_float32_along(cell):
    with computing_in("bfloat16"):
        (carry, _), _ = nn.RNN(cell(4), return_carry=True).init_with_output(
            jax.random.key(0), X
        )
    assert {leaf.dtype.name for leaf in jax.tree.leaves(carry)} == {"float32"}


def test_the_gradient_comes_back_in_float32():
    layer = nn.Dense(1)
    made = layer.init(jax.random.key(0), X)

    def loss(variables):
        with computing_in("bfloat16"):
            return jnp.sum(layer.apply(variables, X).astype(jnp.float32))

    grads = jax.grad(loss)(made)
    assert grads["params"]["kernel"].dtype == jnp.float32
