import jax
import jax.numpy as jnp
import pytest

import estimax as ex
from estimax import staging
from estimax.core.errors import SpecError
from estimax.hooks import summary
from estimax.staging.variables import ModelModule


def new_trace() -> staging.Trace:
    return staging.Trace("train", lambda call: None)


def test_outside_of_a_model_nothing_happens() -> None:
    summary.scalar("loss", 1.0)
    summary.histogram("h", jnp.ones(3))
    summary.text("t", "hello")


def test_values_of_every_kind_reach_the_trace() -> None:
    with staging.tracing(new_trace()) as trace:
        summary.scalar("a", jnp.ones((1, 1)))
        summary.histogram("b", jnp.ones(3))
        summary.text("c", "hello")
    kinds = {name: value.kind for name, value in trace.logged.items()}
    assert kinds == {"a": "scalar", "b": "histogram", "c": "text"}
    assert trace.logged["a"].value.shape == ()


def test_traced_values_can_leave_jit() -> None:
    def model(x: jax.Array) -> jax.Array:
        with staging.tracing(new_trace()) as trace:
            summary.scalar("mean", x.mean())
        mean: jax.Array = trace.logged["mean"].value
        return mean

    assert jax.jit(model)(jnp.arange(3.0)) == 1.0


def test_name_used_twice_gets_a_number() -> None:
    with staging.tracing(new_trace()) as trace:
        for value in (1.0, 2.0, 3.0):
            summary.scalar("a", value)
    assert list(trace.logged) == ["a", "a_1", "a_2"]


def test_scalar_of_several_numbers_is_refused() -> None:
    with pytest.raises(SpecError, match=r"summary.scalar\('a'\): expected one number"):
        summary.scalar("a", jnp.ones(2))


def test_text_must_be_known_when_traced() -> None:
    with pytest.raises(SpecError, match="cannot be computed on a device"):
        summary.text("a", jnp.ones(2))  # type: ignore[arg-type]


def test_tags_carry_the_variable_scope() -> None:
    def model_fn(features: object, labels: object) -> None:
        with ex.variable_scope("tower"):
            ex.summary.scalar("x", 1.0)
            with ex.variable_scope("in"):
                ex.summary.scalar("x", 1.0)
        with ex.variable_scope("tower", reuse=True):
            ex.summary.histogram("h", jnp.ones(3))
        ex.summary.scalar("x", 1.0)

    with staging.tracing(new_trace()) as trace:
        ModelModule(model_fn).init(jax.random.key(0), None, None)  # type: ignore[arg-type]
    assert list(trace.logged) == ["tower/x", "tower/in/x", "tower/h", "x"]
