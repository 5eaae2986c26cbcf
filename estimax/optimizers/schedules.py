"""Learning-rate schedules: functions of the step, computed in float32.

    rate = polynomial_decay(0.1, decay_steps=1000, end_learning_rate=0.001)
    Adagrad(linear_warmup(rate, 100))
    rate(0)

The step is the number of updates made so far, so the first update sees step 0. Names
and defaults are TensorFlow's; the global step is not an argument but what the
returned function takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp

from estimax.core.errors import did_you_mean
from estimax.optimizers.optimizer import Schedule


def exponential_decay(
    learning_rate: float, decay_steps: float, decay_rate: float, staircase: bool = False
) -> Schedule:
    """learning_rate * decay_rate ** (step / decay_steps), in stairs if asked.

    >>> float(exponential_decay(0.5, 10, 0.5, staircase=True)(19))
    0.25
    """
    passed = _make_passed(decay_steps, staircase)
    return lambda step: learning_rate * _f32(decay_rate) ** passed(step)


def natural_exp_decay(
    learning_rate: float, decay_steps: float, decay_rate: float, staircase: bool = False
) -> Schedule:
    """learning_rate * exp(-decay_rate * step / decay_steps), in stairs if asked."""
    passed = _make_passed(decay_steps, staircase)
    return lambda step: learning_rate * jnp.exp(-decay_rate * passed(step))


def inverse_time_decay(
    learning_rate: float, decay_steps: float, decay_rate: float, staircase: bool = False
) -> Schedule:
    """learning_rate / (1 + decay_rate * step / decay_steps), in stairs if asked."""
    passed = _make_passed(decay_steps, staircase)
    return lambda step: learning_rate / (1 + decay_rate * passed(step))


def piecewise_constant(
    boundaries: Sequence[float], values: Sequence[float]
) -> Schedule:
    """values[i] after i boundaries; a step equal to a boundary has the old value.

    >>> rate = piecewise_constant([10], [1.0, 0.5])
    >>> float(rate(10)), float(rate(11))
    (1.0, 0.5)
    """
    if len(values) != len(boundaries) + 1:
        raise ValueError(
            f"piecewise_constant: {len(boundaries)} boundaries need "
            f"{len(boundaries) + 1} values, got {len(values)}."
        )
    edges, levels = jnp.asarray(boundaries, jnp.float32), _f32(values)
    return lambda step: levels[jnp.sum(_f32(step) > edges)]


def polynomial_decay(
    learning_rate: float,
    decay_steps: float,
    end_learning_rate: float = 0.0001,
    power: float = 1.0,
    cycle: bool = False,
) -> Schedule:
    """From learning_rate to end_learning_rate over decay_steps, along a power.

    With `cycle` the decay starts again when it has ended, each time from a lower rate.
    """
    _check_positive(decay_steps=decay_steps)

    def rate(step: Any) -> jax.Array:
        t, total = _f32(step), _f32(decay_steps)
        if cycle:
            # The step that ends a period still belongs to it; step 0 starts the first.
            total = total * jnp.maximum(jnp.ceil(t / total), 1)
        left = 1 - jnp.minimum(t, total) / total
        return (learning_rate - end_learning_rate) * left**power + end_learning_rate

    return rate


def cosine_decay(
    learning_rate: float,
    decay_steps: float,
    alpha: float = 0.0,
    warmup_target: float | None = None,
    warmup_steps: float = 0,
) -> Schedule:
    """Half a cosine from learning_rate down to alpha times it.

    With a `warmup_target` the rate first climbs from learning_rate to the target over
    `warmup_steps`, and the cosine, then from the target, begins after that.
    """
    _check_positive(decay_steps=decay_steps)
    climbs = warmup_target is not None and warmup_steps > 0
    peak = warmup_target if climbs and warmup_target is not None else learning_rate
    start = warmup_steps if climbs else 0

    def rate(step: Any) -> jax.Array:
        t = _f32(step)
        done = jnp.clip((t - start) / decay_steps, 0, 1)
        decayed = peak * ((1 - alpha) * 0.5 * (1 + jnp.cos(math.pi * done)) + alpha)
        if not climbs:
            return decayed
        climbing = learning_rate + (peak - learning_rate) * t / warmup_steps
        return jnp.where(t < warmup_steps, climbing, decayed)

    return rate


def cosine_decay_restarts(
    learning_rate: float,
    first_decay_steps: float,
    t_mul: float = 2.0,
    m_mul: float = 1.0,
    alpha: float = 0.0,
) -> Schedule:
    """Cosines in a row, each t_mul times as long and m_mul times as high as the last.

    The step of a restart is at full height.
    """
    _check_positive(first_decay_steps=first_decay_steps)
    if t_mul < 1:
        raise ValueError(
            f"cosine_decay_restarts: t_mul must be 1 or more, got {t_mul}: periods "
            "that shrink add up to a last step, and there is no rate after it."
        )

    def rate(step: Any) -> jax.Array:
        t = _f32(step) / first_decay_steps
        period = _period_of(t, t_mul)
        done = (t - _period_start(period, t_mul)) / _f32(t_mul) ** period
        wave = 0.5 * _f32(m_mul) ** period * (1 + jnp.cos(math.pi * done))
        return learning_rate * ((1 - alpha) * wave + alpha)

    return rate


def _period_of(t: jax.Array, t_mul: float) -> jax.Array:
    if t_mul == 1:
        return jnp.floor(t)
    guess = jnp.floor(jnp.log(1 - t * (1 - t_mul)) / math.log(t_mul))
    # The logarithm rounds: at a restart it may land a hair to the wrong side.
    guess = jnp.where(t >= _period_start(guess + 1, t_mul), guess + 1, guess)
    return jnp.where(t < _period_start(guess, t_mul), guess - 1, guess)


def _period_start(period: jax.Array, t_mul: float) -> jax.Array:
    """Where a period starts, in lengths of the first."""
    return period if t_mul == 1 else (1 - _f32(t_mul) ** period) / (1 - t_mul)


def linear_cosine_decay(
    learning_rate: float,
    decay_steps: float,
    num_periods: float = 0.5,
    alpha: float = 0.0,
    beta: float = 0.001,
) -> Schedule:
    """A falling line times a cosine; at step 0 slightly above learning_rate."""
    no_noise = _f32(0.0)
    return _linear_cosine(
        learning_rate, decay_steps, num_periods, alpha, beta, lambda step: no_noise
    )


def noisy_linear_cosine_decay(
    learning_rate: float,
    decay_steps: float,
    initial_variance: float = 1.0,
    variance_decay: float = 0.55,
    num_periods: float = 0.5,
    alpha: float = 0.0,
    beta: float = 0.001,
    *,
    seed: int = 0,
) -> Schedule:
    """linear_cosine_decay with noise on the line; the same seed and step, the same."""

    def noise(step: jax.Array) -> jax.Array:
        t = jnp.minimum(step, decay_steps)
        variance = initial_variance / (1 + t) ** variance_decay
        key = jax.random.fold_in(jax.random.key(seed), step.astype(jnp.int32))
        return jnp.sqrt(variance) * jax.random.normal(key)

    return _linear_cosine(learning_rate, decay_steps, num_periods, alpha, beta, noise)


def _linear_cosine(
    learning_rate: float,
    decay_steps: float,
    num_periods: float,
    alpha: float,
    beta: float,
    noise: Schedule,
) -> Schedule:
    _check_positive(decay_steps=decay_steps)

    def rate(step: Any) -> jax.Array:
        done = jnp.minimum(_f32(step), decay_steps) / decay_steps
        line = 1 - done + noise(_f32(step))
        wave = 0.5 * (1 + jnp.cos(math.pi * 2 * num_periods * done))
        return learning_rate * ((alpha + line) * wave + beta)

    return rate


def linear_warmup(schedule: float | Schedule, warmup_steps: float) -> Schedule:
    """From 0 to the schedule's first value in a line, then the schedule at its step.

    >>> rate = linear_warmup(0.1, 10)
    >>> round(float(rate(5)), 6), round(float(rate(50)), 6)
    (0.05, 0.1)
    """
    _check_positive(warmup_steps=warmup_steps)

    def rate(step: Any) -> jax.Array:
        t = _f32(step)
        later = schedule(step) if callable(schedule) else _f32(schedule)
        target = schedule(_f32(0)) if callable(schedule) else schedule
        return jnp.where(t < warmup_steps, target * t / warmup_steps, later)

    return rate


_SCHEDULES: Final[dict[str, Callable[..., Schedule]]] = {
    "exponential_decay": exponential_decay,
    "natural_exp_decay": natural_exp_decay,
    "inverse_time_decay": inverse_time_decay,
    "piecewise_constant": piecewise_constant,
    "polynomial_decay": polynomial_decay,
    "cosine_decay": cosine_decay,
    "cosine_decay_restarts": cosine_decay_restarts,
    "linear_cosine_decay": linear_cosine_decay,
    "noisy_linear_cosine_decay": noisy_linear_cosine_decay,
    # The names of the Keras classes.
    "ExponentialDecay": exponential_decay,
    "InverseTimeDecay": inverse_time_decay,
    "PiecewiseConstantDecay": piecewise_constant,
    "PolynomialDecay": polynomial_decay,
    "CosineDecay": cosine_decay,
    "CosineDecayRestarts": cosine_decay_restarts,
}


def schedule_by_name(
    name: str,
    **arguments: Any,  # whatever the schedule of that name takes
) -> Schedule:
    """Make a schedule from its v1 or Keras name; Keras' argument names work too.

    >>> rate = schedule_by_name("CosineDecay", initial_learning_rate=1.0, decay_steps=9)
    >>> float(rate(0))
    1.0
    """
    if name not in _SCHEDULES:
        raise ValueError(f"unknown schedule {name!r}{did_you_mean(name, _SCHEDULES)}")
    if "initial_learning_rate" in arguments:
        arguments["learning_rate"] = arguments.pop("initial_learning_rate")
    return _SCHEDULES[name](**arguments)


def _make_passed(decay_steps: float, staircase: bool) -> Schedule:
    """How many times decay_steps has passed: a fraction, or whole in stairs."""
    _check_positive(decay_steps=decay_steps)

    def passed(step: Any) -> jax.Array:
        fraction = _f32(step) / decay_steps
        return jnp.floor(fraction) if staircase else fraction

    return passed


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}.")


def _f32(value: Any) -> jax.Array:  # Any: a number, a step, or a list of numbers
    return jnp.asarray(value, jnp.float32)
