"""From the optimizers of a run to optimizers and schedules."""

from __future__ import annotations

from typing import Any

from estimax import optimizers
from estimax.config.schema.optimizers import (
    Adagrad,
    Adam,
    Cosine,
    Exponential,
    Ftrl,
    InverseTime,
    Optimizer,
    Piecewise,
    Polynomial,
    RmsProp,
    Schedule,
    Sgd,
)


def build_optimizer(given: Optimizer) -> optimizers.Optimizer:
    """The optimizer of one section.

    >>> build_optimizer(Adagrad(learning_rate=0.1)).name
    'Adagrad'
    """
    rate = build_rate(given.learning_rate)
    clip = {"global_clipnorm": given.clip_global_norm}
    if isinstance(given, Sgd):
        return optimizers.SGD(rate, given.momentum, given.nesterov, **_only_set(clip))
    if isinstance(given, Adagrad):
        return optimizers.Adagrad(rate, given.initial_accumulator, **_only_set(clip))
    if isinstance(given, Adam):
        make = optimizers.LazyAdam if given.lazy else optimizers.Adam
        return make(rate, given.beta_1, given.beta_2, given.epsilon, **_only_set(clip))
    if isinstance(given, RmsProp):
        return optimizers.RMSProp(
            rate,
            given.rho,
            given.momentum,
            given.epsilon,
            given.centered,
            **_only_set(clip),
        )
    assert isinstance(given, Ftrl)
    return optimizers.Ftrl(
        rate,
        given.learning_rate_power,
        given.initial_accumulator,
        given.l1,
        given.l2,
        given.l2_shrinkage,
        given.beta,
        **_only_set(clip),
    )


def build_rate(given: float | Schedule) -> Any:  # a number, or step -> number
    """A learning rate that may follow a schedule.

    >>> build_rate(Piecewise(boundaries=(5,), values=(1.0, 0.5)))(6).item()
    0.5
    """
    if isinstance(given, float):
        return given
    if isinstance(given, Exponential):
        return optimizers.exponential_decay(
            given.initial, given.decay_steps, given.decay_rate, given.staircase
        )
    if isinstance(given, InverseTime):
        return optimizers.inverse_time_decay(
            given.initial, given.decay_steps, given.decay_rate, given.staircase
        )
    if isinstance(given, Polynomial):
        return optimizers.polynomial_decay(
            given.initial, given.decay_steps, given.end, given.power
        )
    if isinstance(given, Cosine) and given.warmup_steps:
        return optimizers.cosine_decay(
            0.0, given.decay_steps, given.alpha, given.initial, given.warmup_steps
        )
    if isinstance(given, Cosine):
        return optimizers.cosine_decay(given.initial, given.decay_steps, given.alpha)
    assert isinstance(given, Piecewise)
    return optimizers.piecewise_constant(given.boundaries, given.values)


def _only_set(options: dict[str, float | None]) -> Any:  # keyword arguments
    return {name: value for name, value in options.items() if value is not None}
