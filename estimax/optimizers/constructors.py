"""The optimizers by their TensorFlow names, arguments and defaults.

    Adagrad(0.05)
    Adam(exponential_decay(1e-3, 1000, 0.96), global_clipnorm=5.0)
    Ftrl(0.2, l1_regularization_strength=0.01, generation="v1")

Arguments and defaults are those of Keras' legacy optimizers, the ones that
tf.estimator took. `generation` picks another formula where they differ: "v1" for
`tf.compat.v1.train` (whose own argument names are in `v1.py`), "keras" for Keras 2.11
and later. All take these options besides:

    clipvalue, clipnorm, global_clipnorm   clip elements, each variable, all together
    decay                                  divide the learning rate by 1 + decay * step
    lr                                     another name for learning_rate
"""

from __future__ import annotations

import inspect
from typing import TypedDict, Unpack

import jax
import jax.numpy as jnp

from estimax.core.errors import did_you_mean
from estimax.optimizers import rules
from estimax.optimizers.clipping import Clip
from estimax.optimizers.optimizer import Optimizer, Schedule
from estimax.optimizers.rules import Generation

Rate = float | Schedule


class Options(TypedDict, total=False):
    """What every optimizer takes besides its own arguments."""

    clipvalue: float | None
    clipnorm: float | None
    global_clipnorm: float | None
    decay: float
    lr: Rate


def SGD(  # noqa: N802 (the optimizers keep their TensorFlow names)
    learning_rate: Rate = 0.01,
    momentum: float = 0.0,
    nesterov: bool = False,
    *,
    generation: Generation = "legacy",
    **options: Unpack[Options],
) -> Optimizer:
    """Gradient descent, with Keras' momentum (which holds the learning rate) if given.

    >>> SGD(0.1).name
    'SGD'
    """
    rule: rules.Rule = rules.GradientDescent()
    if momentum:
        rule = rules.Momentum(momentum, nesterov, generation)
    return _optimizer("SGD", rule, learning_rate, generation, options)


def Momentum(  # noqa: N802
    learning_rate: Rate,
    momentum: float,
    use_nesterov: bool = False,
    **options: Unpack[Options],
) -> Optimizer:
    """v1's momentum: a velocity of gradients, scaled by the learning rate of today."""
    rule = rules.Momentum(momentum, use_nesterov, "v1")
    return _optimizer("Momentum", rule, learning_rate, "v1", options)


def Adagrad(  # noqa: N802
    learning_rate: Rate = 0.001,
    initial_accumulator_value: float = 0.1,
    epsilon: float | None = None,
    *,
    generation: Generation = "legacy",
    **options: Unpack[Options],
) -> Optimizer:
    """Adagrad; exact when only the touched rows of a table are updated."""
    epsilon = _epsilon(epsilon, generation, v1=0.0)
    rule = rules.Adagrad(initial_accumulator_value, epsilon, generation)
    return _optimizer("Adagrad", rule, learning_rate, generation, options)


def Adam(  # noqa: N802
    learning_rate: Rate = 0.001,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float | None = None,
    amsgrad: bool = False,
    *,
    generation: Generation = "legacy",
    **options: Unpack[Options],
) -> Optimizer:
    """Adam, which moves every row of a table in every step; see LazyAdam.

    `epsilon` is 1e-7, in v1 1e-8, and is added to the uncorrected root.
    """
    epsilon = _epsilon(epsilon, generation, v1=1e-8)
    rule = rules.Adam(beta_1, beta_2, epsilon, amsgrad, generation=generation)
    return _optimizer("Adam", rule, learning_rate, generation, options)


def LazyAdam(  # noqa: N802
    learning_rate: Rate = 0.001,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float | None = None,
    **options: Unpack[Options],
) -> Optimizer:
    """Adam for large tables: rows without a gradient stay, moments included.

    Not Adam: a row seen rarely keeps its old momentum until it is seen again.
    """
    rule = rules.Adam(beta_1, beta_2, _epsilon(epsilon, "legacy"), lazy=True)
    return _optimizer("LazyAdam", rule, learning_rate, "legacy", options)


def AdamW(  # noqa: N802
    learning_rate: Rate = 0.001,
    weight_decay: float = 0.004,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float | None = None,
    amsgrad: bool = False,
    **options: Unpack[Options],
) -> Optimizer:
    """Adam after w -= lr * weight_decay * w; give variables to exclude another group.

    >>> AdamW(weight_decay=0.01).rule.weight_decay
    0.01
    """
    rules.check_at_least_zero(weight_decay=weight_decay)
    epsilon = _epsilon(epsilon, "keras")
    rule = rules.Adam(
        beta_1, beta_2, epsilon, amsgrad, weight_decay, generation="keras"
    )
    return _optimizer("AdamW", rule, learning_rate, "keras", options)


def RMSProp(  # noqa: N802
    learning_rate: Rate = 0.001,
    rho: float = 0.9,
    momentum: float = 0.0,
    epsilon: float | None = None,
    centered: bool = False,
    *,
    generation: Generation = "legacy",
    **options: Unpack[Options],
) -> Optimizer:
    """RMSProp; `rho` is what v1 calls decay, `epsilon` is 1e-7, in v1 1e-10."""
    epsilon = _epsilon(epsilon, generation, v1=1e-10)
    rule = rules.RMSProp(rho, momentum, epsilon, centered, generation)
    return _optimizer("RMSProp", rule, learning_rate, generation, options)


def Ftrl(  # noqa: N802
    learning_rate: Rate = 0.001,
    learning_rate_power: float = -0.5,
    initial_accumulator_value: float = 0.1,
    l1_regularization_strength: float = 0.0,
    l2_regularization_strength: float = 0.0,
    l2_shrinkage_regularization_strength: float = 0.0,
    beta: float = 0.0,
    *,
    generation: Generation = "legacy",
    **options: Unpack[Options],
) -> Optimizer:
    """FTRL-proximal, the optimizer of linear models; l1 makes weights exactly 0."""
    rule = rules.Ftrl(
        learning_rate_power,
        initial_accumulator_value,
        l1_regularization_strength,
        l2_regularization_strength,
        l2_shrinkage_regularization_strength,
        beta,
        generation,
    )
    return _optimizer("Ftrl", rule, learning_rate, generation, options)


def ProximalAdagrad(  # noqa: N802
    learning_rate: Rate,
    initial_accumulator_value: float = 0.1,
    l1_regularization_strength: float = 0.0,
    l2_regularization_strength: float = 0.0,
    **options: Unpack[Options],
) -> Optimizer:
    """Adagrad, then a proximal step for l1 and l2."""
    rule = rules.Proximal(
        True,
        initial_accumulator_value,
        l1_regularization_strength,
        l2_regularization_strength,
    )
    return _optimizer("ProximalAdagrad", rule, learning_rate, "v1", options)


def ProximalGradientDescent(  # noqa: N802
    learning_rate: Rate,
    l1_regularization_strength: float = 0.0,
    l2_regularization_strength: float = 0.0,
    **options: Unpack[Options],
) -> Optimizer:
    """Gradient descent, then a proximal step for l1 and l2."""
    rule = rules.Proximal(
        False,
        l1_regularization_strength=l1_regularization_strength,
        l2_regularization_strength=l2_regularization_strength,
    )
    return _optimizer("ProximalGradientDescent", rule, learning_rate, "v1", options)


def Adadelta(  # noqa: N802
    learning_rate: Rate = 0.001,
    rho: float = 0.95,
    epsilon: float | None = None,
    *,
    generation: Generation = "legacy",
    **options: Unpack[Options],
) -> Optimizer:
    """Adadelta; `epsilon` is 1e-7, in v1 1e-8."""
    rule = rules.Adadelta(rho, _epsilon(epsilon, generation, v1=1e-8))
    return _optimizer("Adadelta", rule, learning_rate, generation, options)


def Adamax(  # noqa: N802
    learning_rate: Rate = 0.001,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float | None = None,
    **options: Unpack[Options],
) -> Optimizer:
    """Adam with a maximum in place of the second moment."""
    rule = rules.Adamax(beta_1, beta_2, _epsilon(epsilon, "legacy"))
    return _optimizer("Adamax", rule, learning_rate, "legacy", options)


def Nadam(  # noqa: N802
    learning_rate: Rate = 0.001,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float | None = None,
    **options: Unpack[Options],
) -> Optimizer:
    """Adam with Nesterov's look-ahead, as Keras' legacy Nadam schedules it."""
    rule = rules.Nadam(beta_1, beta_2, _epsilon(epsilon, "legacy"))
    return _optimizer("Nadam", rule, learning_rate, "legacy", options)


def _optimizer(
    name: str,
    rule: rules.Rule,
    learning_rate: Rate,
    generation: Generation,
    options: Options,
) -> Optimizer:
    rules.check_generation(generation)
    _check_options(name, options)
    rate = _decayed(options.get("lr", learning_rate), options.get("decay", 0.0))
    _check_rate(name, rate)
    clip = Clip(
        value=options.get("clipvalue"),
        norm=options.get("clipnorm"),
        global_norm=options.get("global_clipnorm"),
        first_only=generation == "keras",
    )
    unset = (clip.value, clip.norm, clip.global_norm) == (None, None, None)
    return Optimizer(name, rule, rate, None if unset else clip)


def _check_options(name: str, options: Options) -> None:
    unknown = [given for given in options if given not in Options.__annotations__]
    if unknown:
        own = inspect.signature(globals()[name]).parameters.keys() - {"options"}
        near = did_you_mean(unknown[0], own | Options.__annotations__.keys())
        raise TypeError(f"{name}: unexpected argument {unknown[0]!r}{near}")


def _check_rate(name: str, rate: Rate) -> None:
    if callable(rate):
        return
    if isinstance(rate, bool) or not hasattr(rate, "__float__"):
        raise TypeError(
            f"{name}: learning_rate must be a number or a function of the step "
            f"(see optimizers.exponential_decay), got {rate!r}."
        )


def _decayed(rate: Rate, decay: float) -> Rate:
    """Keras' `decay`: the rate divided by 1 + decay * step."""
    if not decay:
        return rate
    rules.check_at_least_zero(decay=decay)

    def decayed(step: jax.Array) -> jax.Array:
        now = rate(step) if callable(rate) else rate
        return now / (1 + decay * jnp.asarray(step, jnp.float32))

    return decayed


def _epsilon(
    epsilon: float | None, generation: Generation, *, v1: float = 1e-7
) -> float:
    """The default of the generation; legacy takes 0 for it, as TensorFlow does."""
    if generation == "legacy":
        return epsilon or 1e-7
    if epsilon is None:
        return v1 if generation == "v1" else 1e-7
    return epsilon
