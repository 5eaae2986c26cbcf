"""The fast gradient of max pooling has the bits of XLA's."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

import estimax as ex
from estimax.training.max_pooling import with_fast_max_pooling

CASES = [
    ((4, 8, 6, 3), (2, 2), (2, 2), "VALID", "float32"),
    ((4, 9, 7, 3), (2, 2), (2, 2), "VALID", "float32"),
    ((4, 9, 7, 3), (2, 2), (2, 2), "SAME", "float32"),
    ((4, 9, 7, 3), (2, 2), (2, 2), ((1, 0), (0, 2)), "float32"),
    ((4, 8, 6, 3), (2, 2), (2, 2), "SAME", "bfloat16"),
    ((4, 8, 6, 3), (2, 2), (2, 2), "SAME", "float16"),
    ((4, 9, 8, 3), (3, 3), (2, 2), "SAME", "float32"),
    ((4, 9, 8, 3), (3, 3), (2, 2), "VALID", "float32"),
    ((4, 9, 8, 3), (3, 3), None, "SAME", "float32"),
    ((4, 9, 8, 3), (2, 2), (3, 3), "SAME", "float32"),
    ((4, 9, 8, 3), (3, 3), (2, 2), "SAME", "bfloat16"),
    ((4, 20, 3), (4,), (4,), "SAME", "float32"),
    ((4, 20, 3), (5,), (2,), "SAME", "float32"),
    ((2, 5, 6, 7, 3), (2, 2, 2), (2, 2, 2), "SAME", "float32"),
    ((2, 5, 6, 7, 3), (2, 2, 2), (1, 2, 1), "SAME", "float32"),
    ((4, 30, 3), (30,), (30,), "VALID", "float32"),
]


@pytest.mark.parametrize("numbers", ["ties", "not finite"])
@pytest.mark.parametrize(("shape", "window", "strides", "padding", "dtype"), CASES)
def test_values_and_gradients_have_the_same_bits(
    shape, window, strides, padding, dtype, numbers
):
    random = np.random.RandomState(0)
    x = random.randint(-2, 3, shape).astype(np.float32)
    if numbers == "not finite":
        x = np.where(random.rand(*shape) < 0.1, np.nan, x)
        x = np.where(random.rand(*shape) < 0.4, -np.inf, x)
    x = jnp.asarray(x, dtype)

    def pool(x):
        return nn.max_pool(x, window, strides, padding)

    weights = random.randn(*jax.eval_shape(pool, x).shape)
    weights[0] = -0.0
    weights = jnp.asarray(weights, dtype)

    def both(function):
        pooled, pull_back = jax.vjp(function, x)
        return pooled, pull_back(weights)[0]

    plain = jax.jit(lambda: both(pool))()
    fast = jax.jit(lambda: both(with_fast_max_pooling(pool)))()
    for one, other in zip(plain, fast, strict=True):
        assert one.dtype == other.dtype
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_the_compiled_gradient_has_no_select_and_scatter():
    def loss(x):
        return jax.jit(lambda x: nn.max_pool(x, (2, 2), (2, 2)))(x).sum()

    x = jnp.ones((2, 4, 4, 1))
    plain = jax.jit(jax.grad(loss)).lower(x).as_text()
    fast = jax.jit(jax.grad(with_fast_max_pooling(loss))).lower(x).as_text()
    assert "select_and_scatter" in plain
    assert "select_and_scatter" not in fast


def test_pooling_in_a_loop_or_a_recomputed_layer_keeps_its_gradient():
    def loss(x):
        def body(total, image):
            return total + nn.max_pool(image, (2, 2), (2, 2)).sum(), None

        layer = jax.checkpoint(lambda x: nn.max_pool(x**2, (2, 2), (2, 2)))
        return jax.lax.scan(body, 0.0, x)[0] + layer(x).sum()

    x = jax.random.normal(jax.random.key(0), (3, 4, 4, 2))
    plain, fast = jax.grad(loss)(x), jax.grad(with_fast_max_pooling(loss))(x)
    np.testing.assert_array_equal(plain, fast)


def model_fn(features, labels, mode):
    x = nn.relu(nn.Conv(4, (3, 3), name="conv")(features["image"]))
    x = nn.max_pool(x, (2, 2), (2, 2))
    x = nn.BatchNorm(use_running_average=mode != ex.ModeKeys.TRAIN, name="norm")(x)
    x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
    table = ex.get_variable("table", (50, 4))
    x = x.mean((1, 2)) + ex.embedding_lookup(table, features["id"])
    x = nn.Dropout(0.5, deterministic=mode != ex.ModeKeys.TRAIN)(x)
    logits = nn.Dense(3, name="logits")(x)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    loss = losses.mean()
    ex.log_value("doubled", 2 * loss)
    return ex.EstimatorSpec(
        mode,
        predictions={"logits": logits},
        loss=loss,
        train_op=ex.optimizers.Adagrad(0.1),
    )


def batches():
    random = np.random.RandomState(0)
    for _ in range(3):
        image = random.rand(8, 10, 10, 1).astype(np.float32)
        ids = random.randint(0, 50, 8)
        yield {"image": image, "id": ids}, random.randint(0, 3, 8)


def trained(tmp_path, name, **config):
    config = ex.RunConfig(tf_random_seed=1, **config)
    model = ex.Estimator(model_fn, str(tmp_path / name), config)
    model.train(batches)
    return model


def test_a_model_trains_to_the_variables_of_its_eager_run(tmp_path):
    plain = trained(tmp_path, "plain", debug=True)  # an eager run is not rewritten
    fast = trained(tmp_path, "fast")
    names = plain.get_variable_names()
    assert names == fast.get_variable_names()
    for name in names:
        np.testing.assert_allclose(
            plain.get_variable_value(name),
            fast.get_variable_value(name),
            rtol=1e-4,
            atol=1e-5,
            err_msg=name,
        )
    assert np.isfinite(fast.evaluate(batches)["loss"])
