"""Messages and reprs show functions by name and no memory addresses."""

import functools

import pytest

import estimax as ex
from estimax import feature_columns as fc
from estimax.core.errors import ConfigError, MissingFileError


def halve(x):
    return x / 2


class Callable:
    def __call__(self, x=None):
        return x


FUNCTIONS = [halve, lambda x: x, functools.partial(halve, 1), Callable()]


@pytest.mark.parametrize("function", FUNCTIONS, ids=["def", "lambda", "partial", "()"])
def test_no_repr_has_an_address(function):
    ids = fc.categorical_column_with_identity("c", 3)
    values = [
        fc.numeric_column("x", normalizer_fn=function),
        fc.sequence_numeric_column("x", normalizer_fn=function),
        fc.embedding_column(ids, 2, initializer=function),
        ex.optimizers.minimize(ex.optimizers.Adagrad(function)),
        ex.heads.RegressionHead(inverse_link_fn=function),
        ex.hooks.FinalOpsHook(function),
        ex.hooks.RunContext(3, input_advice=function),
        ex.metrics.from_sums({"a": 1.0}, function),
        ex.TrainSpec(function),
        ex.EvalSpec(function),
    ]
    assert [text for value in values if "0x" in (text := repr(value))] == []


def test_a_function_is_shown_by_its_name():
    assert "normalizer_fn=halve" in repr(fc.numeric_column("x", normalizer_fn=halve))


@pytest.mark.parametrize("kind", [ConfigError, MissingFileError])
def test_the_message_of_an_error_has_no_address(kind):
    error = kind(f"expected a number, got {Callable()!r}.")
    assert str(error).endswith("Callable object>.")
    assert "0x" not in str(error)
