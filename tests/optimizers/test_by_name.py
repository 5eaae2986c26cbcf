import optax
import pytest

from estimax import optimizers
from estimax.optimizers import as_optimizer
from estimax.optimizers.minimize import by_name


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("Adagrad", 0.001),
        ("Adam", 0.001),
        ("Ftrl", 0.001),
        ("RMSProp", 0.001),
        ("SGD", 0.01),
        ("rmsprop", 0.001),
    ],
)
def test_a_name_has_the_default_rate_of_legacy_keras(name, rate):
    optimizer = by_name(name)
    assert (optimizer.name.lower(), optimizer.learning_rate) == (name.lower(), rate)


def test_a_name_takes_a_rate_and_options():
    optimizer = by_name("adagrad", 0.05, clipnorm=5.0)
    assert optimizer == optimizers.Adagrad(0.05, clipnorm=5.0)


@pytest.mark.parametrize(
    ("name", "near"), [("adagrd", "adagrad"), ("ADAMM", "adam"), ("Ftlr", "ftrl")]
)
def test_an_unknown_name_has_a_neighbour(name, near):
    with pytest.raises(ValueError, match=f"did you mean '{near}'"):
        by_name(name)


def test_a_name_that_says_too_little_asks_for_the_optimizer():
    with pytest.raises(ValueError, match=r"needs momentum\. .*optimizers.Momentum\("):
        by_name("momentum", 0.1)


def test_every_accepted_form_makes_an_optimizer():
    sgd = optimizers.SGD(0.1)
    assert as_optimizer(sgd) is sgd
    assert as_optimizer(lambda: sgd) is sgd
    assert as_optimizer(optimizers.Adam) == optimizers.Adam()
    assert as_optimizer("Ftrl") == optimizers.Ftrl()
    assert as_optimizer(optax.adam(0.1)).name == "optax"


@pytest.mark.parametrize("value", [3, None, lambda: 3])
def test_anything_else_is_told_what_is_accepted(value):
    with pytest.raises(TypeError, match="Accepted are an estimax optimizer"):
        as_optimizer(value)
