"""Learning-rate schedules: functions from the step to a learning rate, in float32.

    rate = polynomial_decay(0.1, decay_steps=1000, end_learning_rate=0.001)
    Adagrad(linear_warmup(rate, 100))
    rate(0)

The step is the number of updates made so far, so the first update is at step 0. Names
and defaults are TensorFlow's. TensorFlow passes the global step to each of these
functions; here it is the argument of the function that they return. With TensorFlow's
arguments and an array as the step, they return the rate at that step (`rate_at_step`).

TensorFlow 1 passes the step second, and `piecewise_constant` gets it first. A call in
that order with a number as the step would otherwise be understood as another schedule:
`exponential_decay(0.1, 1, 100, 0.96)` as one that grows to the hundredfold in every
step. `rate_at_step` refuses it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, ParamSpec

import jax
import jax.numpy as jnp
import numpy as np

from estimax.core.errors import did_you_mean
from estimax.optimizers.optimizer import Schedule
from estimax.optimizers.rules import check_positive

_P = ParamSpec("_P")


@dataclass(frozen=True, eq=False)
class NamedSchedule:
    """A schedule whose `repr` is the call that made it."""

    text: str
    function: Schedule

    def __call__(self, step: Any) -> jax.Array:
        return self.function(step)

    def __repr__(self) -> str:
        return self.text


def _with_repr(make: Callable[_P, Schedule]) -> Callable[_P, Schedule]:
    """Give the schedules that `make` returns a `repr`: its name and arguments.

    Also accept TensorFlow's arguments, with the step among them.
    """

    @wraps(make)
    def named(*args: _P.args, **kwargs: _P.kwargs) -> Schedule:
        rate: Any = rate_at_step(make, args, kwargs)
        if rate is not None:
            return rate  # type: ignore[no-any-return]  # an array, as in TensorFlow
        schedule = make(*args, **kwargs)
        given = inspect.signature(make).bind(*args, **kwargs).arguments
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return NamedSchedule(f"{make.__name__}({shown})", schedule)

    return named


@_with_repr
def exponential_decay(
    learning_rate: float, decay_steps: float, decay_rate: float, staircase: bool = False
) -> Schedule:
    """Return the schedule learning_rate * decay_rate ** (step / decay_steps).

    Args:
      learning_rate: The learning rate at step 0.
      decay_steps: The number of steps of one decay, positive.
      decay_rate: The factor per `decay_steps` steps, e.g. 0.96.
      staircase: Whether the rate stays constant for `decay_steps` steps at a time.

    Returns:
      A function from the step to a float32 scalar.

    Raises:
      ValueError: `decay_steps` is not positive.

    Example:
      >>> rate = exponential_decay(0.5, 10, 0.5, staircase=True)
      >>> float(rate(9)), float(rate(19))
      (0.5, 0.25)
    """
    fraction_at = _make_fraction(decay_steps, staircase)
    return lambda step: learning_rate * _f32(decay_rate) ** fraction_at(step)


@_with_repr
def natural_exp_decay(
    learning_rate: float, decay_steps: float, decay_rate: float, staircase: bool = False
) -> Schedule:
    """Return the schedule learning_rate * exp(-decay_rate * step / decay_steps).

    Args:
      learning_rate: The learning rate at step 0.
      decay_steps: The number of steps of one decay, positive.
      decay_rate: The decay of the exponent per `decay_steps` steps.
      staircase: Whether the rate stays constant for `decay_steps` steps at a time.

    Returns:
      A function from the step to a float32 scalar.

    Raises:
      ValueError: `decay_steps` is not positive.

    Example:
      >>> rate = natural_exp_decay(1.0, 10, 0.5)
      >>> round(float(rate(10)), 4)
      0.6065
    """
    fraction_at = _make_fraction(decay_steps, staircase)
    return lambda step: learning_rate * jnp.exp(-decay_rate * fraction_at(step))


@_with_repr
def inverse_time_decay(
    learning_rate: float, decay_steps: float, decay_rate: float, staircase: bool = False
) -> Schedule:
    """Return the schedule learning_rate / (1 + decay_rate * step / decay_steps).

    Args:
      learning_rate: The learning rate at step 0.
      decay_steps: The number of steps of one decay, positive.
      decay_rate: The growth of the divisor per `decay_steps` steps.
      staircase: Whether the rate stays constant for `decay_steps` steps at a time.

    Returns:
      A function from the step to a float32 scalar.

    Raises:
      ValueError: `decay_steps` is not positive.

    Example:
      >>> rate = inverse_time_decay(1.0, 10, 1.0)
      >>> float(rate(0)), float(rate(10))
      (1.0, 0.5)
    """
    fraction_at = _make_fraction(decay_steps, staircase)
    return lambda step: learning_rate / (1 + decay_rate * fraction_at(step))


@_with_repr
def piecewise_constant(
    boundaries: Sequence[float], values: Sequence[float]
) -> Schedule:
    """Return a schedule that is constant between boundaries.

    Args:
      boundaries: Steps in increasing order. A step equal to a boundary still has the
        value before it.
      values: The learning rates, one more than boundaries.

    Returns:
      A function from the step to a float32 scalar.

    Raises:
      ValueError: The number of values is not the number of boundaries plus one.

    Example:
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


@_with_repr
def polynomial_decay(
    learning_rate: float,
    decay_steps: float,
    end_learning_rate: float = 0.0001,
    power: float = 1.0,
    cycle: bool = False,
) -> Schedule:
    """Return a schedule that falls to `end_learning_rate` as a power of the steps left.

    Args:
      learning_rate: The learning rate at step 0.
      decay_steps: The number of steps of one decay, positive.
      end_learning_rate: The learning rate at `decay_steps` and after.
      power: The exponent; 1 is a straight line.
      cycle: Whether to start again when the decay has ended. The n-th period lasts
        until n * decay_steps and starts from a lower rate than the one before.

    Returns:
      A function from the step to a float32 scalar.

    Raises:
      ValueError: `decay_steps` is not positive.

    Example:
      >>> rate = polynomial_decay(1.0, 10, end_learning_rate=0.0)
      >>> float(rate(5)), float(rate(20))
      (0.5, 0.0)
    """
    check_positive(decay_steps=decay_steps)

    def rate(step: Any) -> jax.Array:
        t, total = _f32(step), _f32(decay_steps)
        if cycle:
            # ceil: the last step of a period still belongs to it.
            total = total * jnp.maximum(jnp.ceil(t / total), 1)
        left = 1 - jnp.minimum(t, total) / total
        return (learning_rate - end_learning_rate) * left**power + end_learning_rate

    return rate


@_with_repr
def cosine_decay(
    learning_rate: float,
    decay_steps: float,
    alpha: float = 0.0,
    warmup_target: float | None = None,
    warmup_steps: float = 0,
) -> Schedule:
    """Return a schedule along half a cosine, from `learning_rate` to `alpha` times it.

    With `warmup_target` and `warmup_steps` the rate first rises in a line from
    `learning_rate` to the target. The cosine then starts from the target.

    Args:
      learning_rate: The learning rate at step 0.
      decay_steps: The number of steps of the cosine, without the warm-up; positive.
      alpha: The final learning rate, as a share of the highest.
      warmup_target: The learning rate after the warm-up. None: no warm-up.
      warmup_steps: The number of steps of the warm-up. 0: no warm-up.

    Returns:
      A function from the step to a float32 scalar.

    Raises:
      ValueError: `decay_steps` is not positive.

    Example:
      >>> rate = cosine_decay(0.0, 10, warmup_target=1.0, warmup_steps=4)
      >>> [round(float(rate(step)), 2) for step in (0, 2, 4, 9, 14)]
      [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    check_positive(decay_steps=decay_steps)
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


@_with_repr
def cosine_decay_restarts(
    learning_rate: float,
    first_decay_steps: float,
    t_mul: float = 2.0,
    m_mul: float = 1.0,
    alpha: float = 0.0,
) -> Schedule:
    """Return a schedule of consecutive cosine decays, each of which starts high again.

    The step of a restart has the full height of the new period.

    Args:
      learning_rate: The learning rate at step 0.
      first_decay_steps: The number of steps of the first period, positive.
      t_mul: The length of a period relative to the one before, 1 or more.
      m_mul: The height of a period relative to the one before.
      alpha: The lowest learning rate, as a share of `learning_rate`.

    Returns:
      A function from the step to a float32 scalar.

    Raises:
      ValueError: `first_decay_steps` is not positive or `t_mul` is below 1.

    Example:
      >>> rate = cosine_decay_restarts(1.0, 10, m_mul=0.5)
      >>> [round(float(rate(step)), 2) for step in (0, 5, 10)]
      [1.0, 0.5, 0.5]
    """
    check_positive(first_decay_steps=first_decay_steps)
    if t_mul < 1:
        raise ValueError(
            f"cosine_decay_restarts: t_mul must be 1 or more, got {t_mul}: periods "
            "that shrink end at a last step, after which there is no rate."
        )

    def rate(step: Any) -> jax.Array:
        t = _f32(step) / first_decay_steps
        period = _period_of(t, t_mul)
        done = (t - _period_start(period, t_mul)) / _f32(t_mul) ** period
        wave = 0.5 * _f32(m_mul) ** period * (1 + jnp.cos(math.pi * done))
        return learning_rate * ((1 - alpha) * wave + alpha)

    return rate


@_with_repr
def linear_cosine_decay(
    learning_rate: float,
    decay_steps: float,
    num_periods: float = 0.5,
    alpha: float = 0.0,
    beta: float = 0.001,
) -> Schedule:
    """Return a schedule that is a falling line times a cosine.

    At step 0 it is `beta` above `learning_rate` (relative to it), as in TensorFlow.

    Args:
      learning_rate: The learning rate at step 0.
      decay_steps: The number of steps of one decay, positive.
      num_periods: The number of periods of the cosine within `decay_steps`.
      alpha: Added to the line.
      beta: Added to the product.

    Returns:
      A function from the step to a float32 scalar.

    Raises:
      ValueError: `decay_steps` is not positive.

    Example:
      >>> rate = linear_cosine_decay(1.0, 10)
      >>> [round(float(rate(step)), 3) for step in (0, 5, 10)]
      [1.001, 0.251, 0.001]
    """
    no_noise = _f32(0.0)
    return _linear_cosine(
        learning_rate, decay_steps, num_periods, alpha, beta, lambda step: no_noise
    )


@_with_repr
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
    """Return `linear_cosine_decay` with Gaussian noise added to the line.

    The noise depends on the seed and the step only, so a resumed run repeats it.

    Args:
      learning_rate: The learning rate at step 0.
      decay_steps: The number of steps of one decay, positive.
      initial_variance: The variance of the noise at step 0.
      variance_decay: The variance is divided by (1 + step) to this power.
      num_periods: The number of periods of the cosine within `decay_steps`.
      alpha: Added to the line.
      beta: Added to the product.
      seed: The seed of the noise.

    Returns:
      A function from the step to a float32 scalar.

    Raises:
      ValueError: `decay_steps` is not positive.

    Example:
      >>> rate = noisy_linear_cosine_decay(1.0, 10, seed=1)
      >>> float(rate(3)) == float(rate(3))
      True
    """

    def noise(step: jax.Array) -> jax.Array:
        t = jnp.minimum(step, decay_steps)
        variance = initial_variance / (1 + t) ** variance_decay
        key = jax.random.fold_in(jax.random.key(seed), step.astype(jnp.int32))
        return jnp.sqrt(variance) * jax.random.normal(key)

    return _linear_cosine(learning_rate, decay_steps, num_periods, alpha, beta, noise)


@_with_repr
def linear_warmup(schedule: float | Schedule, warmup_steps: float) -> Schedule:
    """Return a schedule that rises from 0 in a line, then follows another schedule.

    The line ends at the value of `schedule` at step 0. After `warmup_steps` the
    schedule is read at its own step, not shifted.

    Args:
      schedule: A learning rate, or a schedule.
      warmup_steps: The number of steps of the line, positive.

    Returns:
      A function from the step to a float32 scalar.

    Raises:
      ValueError: `warmup_steps` is not positive.

    Example:
      >>> rate = linear_warmup(0.1, 10)
      >>> round(float(rate(5)), 6), round(float(rate(50)), 6)
      (0.05, 0.1)
    """
    check_positive(warmup_steps=warmup_steps)

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
    **arguments: Any,  # the arguments of the schedule of that name
) -> Schedule:
    """Return a schedule from its name in TensorFlow 1 or Keras.

    Args:
      name: `"exponential_decay"` or `"ExponentialDecay"`, for example.
      **arguments: The arguments of that schedule. Keras' `initial_learning_rate` is
        accepted for `learning_rate`.

    Returns:
      A function from the step to a float32 scalar.

    Raises:
      ValueError: No schedule has this name.

    Example:
      >>> rate = schedule_by_name("CosineDecay", learning_rate=1.0, decay_steps=9)
      >>> float(rate(0))
      1.0
      >>> rate
      cosine_decay(learning_rate=1.0, decay_steps=9)
    """
    if name not in _SCHEDULES:
        raise ValueError(f"unknown schedule {name!r}{did_you_mean(name, _SCHEDULES)}")
    if "initial_learning_rate" in arguments:
        arguments["learning_rate"] = arguments.pop("initial_learning_rate")
    return _SCHEDULES[name](**arguments)


def _period_of(t: jax.Array, t_mul: float) -> jax.Array:
    """Return the index of the period at time `t`, in lengths of the first period."""
    if t_mul == 1:
        return jnp.floor(t)
    guess = jnp.floor(jnp.log(1 - t * (1 - t_mul)) / math.log(t_mul))
    # The logarithm rounds, so at a restart the guess may be off by one. Compare it
    # with the exact starts of the periods beside it.
    guess = jnp.where(t >= _period_start(guess + 1, t_mul), guess + 1, guess)
    return jnp.where(t < _period_start(guess, t_mul), guess - 1, guess)


def _period_start(period: jax.Array, t_mul: float) -> jax.Array:
    """Return the time at which a period starts, in lengths of the first period."""
    return period if t_mul == 1 else (1 - _f32(t_mul) ** period) / (1 - t_mul)


def _linear_cosine(
    learning_rate: float,
    decay_steps: float,
    num_periods: float,
    alpha: float,
    beta: float,
    noise: Schedule,
) -> Schedule:
    check_positive(decay_steps=decay_steps)

    def rate(step: Any) -> jax.Array:
        done = jnp.minimum(_f32(step), decay_steps) / decay_steps
        line = 1 - done + noise(_f32(step))
        wave = 0.5 * (1 + jnp.cos(math.pi * 2 * num_periods * done))
        return learning_rate * ((alpha + line) * wave + beta)

    return rate


def _make_fraction(decay_steps: float, staircase: bool) -> Schedule:
    """Return a function from the step to step / decay_steps, whole if `staircase`."""
    check_positive(decay_steps=decay_steps)

    def fraction_at(step: Any) -> jax.Array:
        fraction = _f32(step) / decay_steps
        return jnp.floor(fraction) if staircase else fraction

    return fraction_at


def _f32(value: Any) -> jax.Array:  # Any: a number, a step, or a list of numbers
    return jnp.asarray(value, jnp.float32)


_STEP = "global_step"
# The argument that is in the place of TensorFlow's number of steps, and up to where it
# is understood as given by position. More is a number of steps.
_AT_MOST: Final = {
    "alpha": 1,
    "end_learning_rate": 1,
    "initial_variance": 9,
    "num_periods": 9,
    "t_mul": 9,
}
_FLAGS: Final = ("staircase", "cycle")


def rate_at_step(
    make: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> jax.Array | None:
    """Return the rate of a schedule at the step that is among the arguments.

    Return None for arguments without a step, in our order.

    Raises:
      ValueError: The step is a number, or a flag is not a boolean.
    """
    own = inspect.signature(make)
    given = _bound(_with_step(own), args, kwargs)
    if given is None or not (_has_array(given) or _is_wrong(own, args, kwargs)):
        _check_flags(own, args, kwargs)
        return None
    step = given.pop(_STEP)
    given.pop("name", None)
    if not isinstance(step, jax.Array):
        name = make.__name__
        raise ValueError(
            f"{name}: these are TensorFlow's arguments, with {step!r} as the step. "
            f"Here the training passes the step: write {_call(name, given)}. To "
            "compute the rate in a model_fn, give the step as an array."
        )
    rate: jax.Array = make(**given)(step)
    return rate


def _with_step(own: inspect.Signature) -> inspect.Signature:
    """Return the signature in TensorFlow's order."""
    listed = list(own.parameters.values())
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    place = 0 if listed[0].name == "boundaries" else 1
    listed.insert(place, inspect.Parameter(_STEP, kind))
    name = inspect.Parameter("name", inspect.Parameter.KEYWORD_ONLY, default=None)
    return inspect.Signature([*listed, name])


def _bound(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any] | None:
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError:
        return None


def _has_array(given: Mapping[str, Any]) -> bool:
    return isinstance(given[_STEP], jax.Array)


def _is_wrong(
    own: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    """Return whether arguments do not fit our order, or mean another schedule in it."""
    given = _bound(own, args, kwargs)
    if given is None:
        return True
    if any(not _is_flag(given.get(name, True)) for name in _FLAGS):
        return True
    third = [*own.parameters][2] if len(args) > 2 else ""
    limit = _AT_MOST.get(third)
    return limit is not None and isinstance(args[2], int | float) and args[2] > limit


def _check_flags(
    own: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    given = _bound(own, args, kwargs) or {}
    for name in _FLAGS:
        if not _is_flag(given.get(name, True)):
            raise ValueError(f"{name} must be True or False, got {given[name]!r}.")


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _call(name: str, given: Mapping[str, Any]) -> str:
    first, *rest = given.items()
    listed = [repr(first[1]), *(f"{key}={value!r}" for key, value in rest)]
    return f"{name}({', '.join(listed)})"
