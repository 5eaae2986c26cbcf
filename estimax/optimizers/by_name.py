"""From whatever a user calls an optimizer to an `Optimizer`.

by_name("Adagrad", learning_rate=0.05)
as_optimizer("ftrl"), as_optimizer(optax.adam(1e-3)), as_optimizer(lambda: SGD(0.1))
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

import optax

from estimax.core.errors import did_you_mean
from estimax.optimizers import constructors
from estimax.optimizers.optimizer import Optimizer, Schedule

_NAMES: Final = (
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "LazyAdam",
    "Momentum",
    "Nadam",
    "ProximalAdagrad",
    "ProximalGradientDescent",
    "RMSProp",
    "SGD",
)


def by_name(
    name: str,
    learning_rate: float | Schedule | None = None,
    **options: Any,  # whatever the optimizer of that name takes
) -> Optimizer:
    """Make an optimizer from its name, in upper or lower case, and its arguments.

    Without a learning rate it gets the default of Keras' legacy optimizer.

    >>> by_name("adagrad", 0.05).learning_rate
    0.05
    """
    known = {known.lower(): known for known in _NAMES}
    if name.lower() not in known:
        near = did_you_mean(name.lower(), known)
        raise ValueError(f"unknown optimizer {name!r}{near}")
    make: Callable[..., Optimizer] = getattr(constructors, known[name.lower()])
    if learning_rate is not None:
        options["learning_rate"] = learning_rate
    missing = [
        argument.name
        for argument in inspect.signature(make).parameters.values()
        if argument.default is argument.empty
        and argument.kind is not argument.VAR_KEYWORD
        and argument.name not in options
    ]
    if missing:
        raise ValueError(
            f"optimizer {name!r} needs {' and '.join(missing)}. Give the optimizer "
            f"itself: ex.optimizers.{known[name.lower()]}(…)."
        )
    return make(**options)


def as_optimizer(value: object) -> Optimizer:
    """Accept an Optimizer, an optax transformation, a name, or a function making one.

    >>> as_optimizer("SGD").name, as_optimizer(optax.adam(1e-3)).name
    ('SGD', 'optax')
    """
    made = value
    if callable(value) and not isinstance(value, Optimizer):
        made = value()
    if isinstance(made, Optimizer):
        return made
    if isinstance(made, str):
        return by_name(made)
    if isinstance(made, optax.GradientTransformation):
        wrapped = optax.with_extra_args_support(made)
        return Optimizer("optax", None, None, transformation=wrapped)
    raise TypeError(
        f"expected an optimizer, got {type(made).__name__}: {made!r}. Accepted are an "
        "estimax optimizer (optimizers.Adagrad(0.05)), an optax transformation, a name "
        f"({', '.join(_NAMES)}), or a function without arguments that returns one."
    )
