"""Formulas of the migrating guide, with numbers of TensorFlow 2.15.1."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import estimax as ex

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "migrating.md"
X = jnp.array([[-1.0, 2.0]])
SCORES = jnp.array([[1.0, 1.0, 0.0], [3.0, 2.0, 2.0]])


def weighted(labels, logits, w):
    return ex.heads.losses.weighted_cross_entropy(labels, logits, pos_weight=w)


def in_top_k(scores, ids, k):
    return jnp.sum(scores > jnp.take_along_axis(scores, ids[:, None], 1), 1) < k


@pytest.mark.parametrize(
    ("formula", "found", "expected"),
    [
        (
            "ex.heads.losses.weighted_cross_entropy(labels, logits, pos_weight=w)",
            weighted(jnp.array([0.3, 1, 0]), jnp.array([0.5, -1, 2]), 3.0),
            [1.1085231, 3.9397852, 2.1269281],
        ),
        ("jax.nn.leaky_relu(x, 0.2)", jax.nn.leaky_relu(X, 0.2), [[-0.2, 2.0]]),
        (
            "jax.nn.gelu(x, approximate=False)",
            jax.nn.gelu(X, approximate=False),
            [[-0.15865526, 1.9544997]],
        ),
        (
            "jnp.sum(scores > jnp.take_along_axis(scores, ids[:, None], 1), 1) < k",
            in_top_k(SCORES, jnp.array([1, 2]), 1),
            [True, False],
        ),
        (
            "jnp.sum(scores > jnp.take_along_axis(scores, ids[:, None], 1), 1) < k",
            in_top_k(SCORES, jnp.array([1, 2]), 2),
            [True, True],
        ),
    ],
)
def test_a_formula_of_the_guide_is_tensorflows(formula, found, expected):
    assert f"`{formula}`" in GUIDE.read_text()
    np.testing.assert_allclose(found, expected, rtol=1e-5)
