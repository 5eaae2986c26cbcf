import inspect

import jax.numpy as jnp
import numpy as np
import pytest

from estimax import optimizers
from estimax.v1 import optimizers as v1


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: optimizers.Ftrl(learning_rate_power=0.5), "power must be 0 or less"),
        (lambda: optimizers.Ftrl(initial_accumulator_value=-1), "initial_accumulator"),
        (lambda: optimizers.Ftrl(l1_regularization_strength=-1), "l1_regularization"),
        (lambda: optimizers.Ftrl(l2_regularization_strength=-1), "l2_regularization"),
        (
            lambda: optimizers.Ftrl(l2_shrinkage_regularization_strength=-1),
            "l2_shrinkage",
        ),
        (lambda: optimizers.SGD(momentum=1.5), "between 0 and 1, got 1.5"),
        (lambda: optimizers.Adagrad(initial_accumulator_value=-0.1), "0 or more"),
        (lambda: v1.AdagradOptimizer(0.1, 0.0), "must be positive in generation 'v1'"),
        (lambda: optimizers.ProximalAdagrad(0.1, 0.0), "must be positive"),
        (lambda: optimizers.Adam(clipnorm=1.0, global_clipnorm=1.0), "exclude"),
        (lambda: optimizers.Adam(generation="v2"), "unknown generation 'v2'"),
        (lambda: optimizers.SGD(decay=-1.0), "decay must be 0 or more"),
    ],
)
def test_an_argument_that_cannot_be_is_a_value_error(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_an_unknown_argument_is_a_type_error_with_a_neighbour():
    with pytest.raises(TypeError, match=r"Adam: .*'beta1'; did you mean 'beta_1'"):
        optimizers.Adam(beta1=0.9)


@pytest.mark.parametrize("rate", ["0.1", None, True, [0.1]])
def test_a_learning_rate_is_a_number_or_a_schedule(rate):
    with pytest.raises(TypeError, match="learning_rate must be a number"):
        optimizers.Adam(rate)


def test_legacy_takes_epsilon_zero_for_the_default():
    assert optimizers.Adam(epsilon=0) == optimizers.Adam(epsilon=1e-7)


def test_defaults_differ_by_generation():
    epsilons = {
        generation: optimizers.Adam(generation=generation).rule.epsilon
        for generation in ("v1", "legacy", "keras")
    }
    assert epsilons == {"v1": 1e-8, "legacy": 1e-7, "keras": 1e-7}
    assert optimizers.RMSProp(generation="v1").rule.epsilon == 1e-10


def test_lr_is_another_name_for_the_learning_rate():
    assert optimizers.Adagrad(lr=0.3).learning_rate == 0.3


def test_decay_divides_a_schedule_too():
    halved = optimizers.exponential_decay(1.0, 1, 0.5)
    optimizer = optimizers.SGD(halved, decay=1.0)
    assert float(optimizer.learning_rate_at(1)) == 0.25


def test_momentum_of_keras_remembers_the_rate_and_v1s_does_not():
    rate = optimizers.piecewise_constant([0], [1.0, 0.0])
    grads, w = jnp.ones(1), jnp.zeros(1)
    places = []
    for optimizer in (optimizers.SGD(rate, 0.5), optimizers.Momentum(rate, 0.5)):
        state = optimizer.init(w)
        moved, state = optimizer.apply(grads, state, w, step=0)
        moved, _ = optimizer.apply(grads, state, moved, step=1)
        places.append(float(moved[0]))
    assert places == [-1.5, -1.0]


def test_weight_decay_shrinks_without_a_gradient():
    optimizer = optimizers.AdamW(0.1, weight_decay=0.5)
    w = jnp.array([2.0])
    new, _ = optimizer.apply(jnp.zeros(1), optimizer.init(w), w, step=0)
    np.testing.assert_allclose(new, [1.9])


def test_nadam_is_finite_after_its_table_ends():
    optimizer = optimizers.Nadam(0.1)
    w = jnp.ones(2)
    new, _ = optimizer.apply(w, optimizer.init(w), w, step=10_000)
    assert jnp.isfinite(new).all()


@pytest.mark.parametrize(
    "name", [name for name in dir(v1) if name.endswith("Optimizer") and len(name) > 9]
)
def test_v1_optimizers_require_what_tensorflow_requires(name):
    first = next(iter(inspect.signature(getattr(v1, name)).parameters.values()))
    optional = name in ("AdamOptimizer", "LazyAdamOptimizer", "AdadeltaOptimizer")
    assert first.name == "learning_rate"
    assert (first.default is not inspect.Parameter.empty) == optional
