"""The optimizers, with TensorFlow's names, arguments and defaults.

    Adagrad(0.05)
    Adam(exponential_decay(1e-3, 1000, 0.96), global_clipnorm=5.0)
    Ftrl(0.2, l1_regularization_strength=0.01, generation="v1")

Arguments and defaults are those of Keras' legacy optimizers, which tf.estimator uses.
`generation` selects another formula where they differ: "v1" for `tf.compat.v1.train`
(`v1.py` has its argument names) or "keras" for Keras 2.11 and later. Every optimizer
also takes these options:

    clipvalue, clipnorm, global_clipnorm   clip elements, each variable, all together
    decay                                  divide the learning rate by 1 + decay * step
    lr                                     an alias of learning_rate
"""

from __future__ import annotations

import inspect
from typing import TypedDict, Unpack, get_args

import jax
import jax.numpy as jnp

from estimax.core.display import format_value
from estimax.core.errors import did_you_mean
from estimax.optimizers import rules
from estimax.optimizers.clipping import Clip
from estimax.optimizers.optimizer import Optimizer, Schedule
from estimax.optimizers.rules import Generation, check_at_least_zero
from estimax.optimizers.schedules import NamedSchedule

Rate = float | Schedule | jax.Array  # an array that a `model_fn` computes


class OptimizerOptions(TypedDict, total=False):
    """The arguments that every optimizer takes besides its own."""

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
    **options: Unpack[OptimizerOptions],
) -> Optimizer:
    """Stochastic gradient descent, with momentum if given.

    Use it as the simplest baseline, or with momentum for dense networks. The velocity
    sums past changes, as in Keras. The velocity of `Momentum` sums past gradients, as
    in TensorFlow 1. They differ when the learning rate changes.

    Args:
      learning_rate: A number, or a schedule such as `exponential_decay`.
      momentum: Share of the last change that is repeated, between 0 and 1.
      nesterov: Whether to use Nesterov momentum.
      generation: Whose formula to use where they differ: "legacy" (tf.estimator),
        "v1" (tf.compat.v1.train) or "keras" (Keras 2.11 and later).
      **options: `clipvalue`, `clipnorm` or `global_clipnorm` to clip gradients; `decay`
        to divide the learning rate by 1 + decay * step; `lr`, an alias of
        `learning_rate`.

    Returns:
      An `Optimizer`.

    Raises:
      ValueError: `momentum` is outside [0, 1] or `generation` is unknown.

    Example:
      >>> optimizer = SGD(0.1)
      >>> w = jnp.array([1.0])  # the loss is w², its gradient 2 w
      >>> state = optimizer.init(w)
      >>> for step in range(3):
      ...     w, state = optimizer.apply(2 * w, state, w, step=step)
      ...     print(round(float(w[0]) ** 2, 3))
      0.64
      0.41
      0.262
    """
    rule: rules.Rule = rules.GradientDescentRule()
    if momentum:
        rule = rules.MomentumRule(momentum, nesterov, generation)
    return _optimizer("SGD", rule, learning_rate, generation, options)


def Momentum(  # noqa: N802
    learning_rate: Rate,
    momentum: float,
    use_nesterov: bool = False,
    **options: Unpack[OptimizerOptions],
) -> Optimizer:
    """Gradient descent with the momentum of `tf.compat.v1.train.MomentumOptimizer`.

    The velocity is a sum of past gradients, multiplied by the current learning rate.
    For the momentum of Keras use `SGD(learning_rate, momentum)`.

    Args:
      learning_rate: A number, or a schedule such as `exponential_decay`.
      momentum: Share of the velocity that is kept in each step.
      use_nesterov: Whether to use Nesterov momentum.
      **options: `clipvalue`, `clipnorm` or `global_clipnorm` to clip gradients; `decay`
        to divide the learning rate by 1 + decay * step; `lr`, an alias of
        `learning_rate`.

    Returns:
      An `Optimizer`.

    Example:
      >>> Momentum(0.1, 0.9).rule.generation
      'v1'
    """
    rule = rules.MomentumRule(momentum, use_nesterov, "v1")
    return _optimizer("Momentum", rule, learning_rate, "v1", options)


def Adagrad(  # noqa: N802
    learning_rate: Rate = 0.001,
    initial_accumulator_value: float = 0.1,
    epsilon: float | None = None,
    *,
    generation: Generation = "legacy",
    **options: Unpack[OptimizerOptions],
) -> Optimizer:
    """Adagrad: divide each step by the root of the sum of squared gradients.

    The default of deep models with embeddings: rare ids keep a large learning rate. It
    is exact when only the touched rows of a table are updated. tf.estimator's default
    learning rate of 0.001 is slow; 0.05 is a common choice.

    Args:
      learning_rate: A number, or a schedule such as `exponential_decay`.
      initial_accumulator_value: Initial sum of squares, 0 or more (positive in "v1").
      epsilon: Added to the root against division by 0. None: 1e-7, and 0 in "v1".
      generation: Whose formula to use where they differ: "legacy" (tf.estimator),
        "v1" (tf.compat.v1.train) or "keras" (Keras 2.11 and later).
      **options: `clipvalue`, `clipnorm` or `global_clipnorm` to clip gradients; `decay`
        to divide the learning rate by 1 + decay * step; `lr`, an alias of
        `learning_rate`.

    Returns:
      An `Optimizer`.

    Raises:
      ValueError: `initial_accumulator_value` is negative, or 0 in generation "v1".

    Example:
      >>> optimizer = Adagrad(0.5)
      >>> w = jnp.array([1.0, 100.0])  # large and small gradients move alike
      >>> w, state = optimizer.apply(w, optimizer.init(w), w, step=0)
      >>> [round(x, 2) for x in w.tolist()]
      [0.52, 99.5]
    """
    epsilon = _epsilon(epsilon, generation, v1=0.0)
    rule = rules.AdagradRule(initial_accumulator_value, epsilon, generation)
    return _optimizer("Adagrad", rule, learning_rate, generation, options)


def Adam(  # noqa: N802
    learning_rate: Rate = 0.001,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float | None = None,
    amsgrad: bool = False,
    *,
    generation: Generation = "legacy",
    **options: Unpack[OptimizerOptions],
) -> Optimizer:
    """Adam: the running mean of gradients over the root of the mean of their squares.

    A good default for dense networks. It changes every row of a table in every step,
    so the cost of a step grows with the vocabulary; use `LazyAdam` for large tables.

    Args:
      learning_rate: A number, or a schedule such as `exponential_decay`.
      beta_1: Decay of the mean of gradients, in [0, 1).
      beta_2: Decay of the mean of squared gradients, in [0, 1).
      epsilon: Added to the root of the uncorrected mean of squares. None: 1e-7, and
        1e-8 in "v1".
      amsgrad: Whether to divide by the largest mean of squares so far.
      generation: Whose formula to use where they differ: "legacy" (tf.estimator),
        "v1" (tf.compat.v1.train) or "keras" (Keras 2.11 and later).
      **options: `clipvalue`, `clipnorm` or `global_clipnorm` to clip gradients; `decay`
        to divide the learning rate by 1 + decay * step; `lr`, an alias of
        `learning_rate`.

    Returns:
      An `Optimizer`.

    Example:
      >>> optimizer = Adam(0.1)
      >>> w = jnp.array([1.0])  # the loss is w², its gradient 2 w
      >>> state = optimizer.init(w)
      >>> for step in range(3):
      ...     w, state = optimizer.apply(2 * w, state, w, step=step)
      ...     print(round(float(w[0]) ** 2, 2))
      0.81
      0.64
      0.49
    """
    epsilon = _epsilon(epsilon, generation, v1=1e-8)
    rule = rules.AdamRule(beta_1, beta_2, epsilon, amsgrad, generation=generation)
    return _optimizer("Adam", rule, learning_rate, generation, options)


def LazyAdam(  # noqa: N802
    learning_rate: Rate = 0.001,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float | None = None,
    **options: Unpack[OptimizerOptions],
) -> Optimizer:
    """Adam for large tables: rows without a gradient and their moments do not change.

    A step costs as much as the rows of its batch, whatever the size of the table. The
    result differs from Adam: a row that is seen rarely keeps its old moments until it
    is seen again.

    Args:
      learning_rate: A number, or a schedule such as `exponential_decay`.
      beta_1: Decay of the mean of gradients, in [0, 1).
      beta_2: Decay of the mean of squared gradients, in [0, 1).
      epsilon: Added to the root of the uncorrected mean of squares. None: 1e-7.
      **options: `clipvalue`, `clipnorm` or `global_clipnorm` to clip gradients; `decay`
        to divide the learning rate by 1 + decay * step; `lr`, an alias of
        `learning_rate`.

    Returns:
      An `Optimizer`.

    Example:
      >>> LazyAdam(0.001).has_rows, Adam(0.001).has_rows
      (True, False)
    """
    rule = rules.AdamRule(beta_1, beta_2, _epsilon(epsilon, "legacy"), lazy=True)
    return _optimizer("LazyAdam", rule, learning_rate, "legacy", options)


def AdamW(  # noqa: N802
    learning_rate: Rate = 0.001,
    weight_decay: float = 0.004,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float | None = None,
    amsgrad: bool = False,
    **options: Unpack[OptimizerOptions],
) -> Optimizer:
    """Adam with decoupled weight decay: w -= lr * weight_decay * w before each step.

    Use it for dense networks that overfit. To exclude variables such as biases from the
    decay, train them by an optimizer of their own (see `group`).

    Args:
      learning_rate: A number, or a schedule such as `exponential_decay`.
      weight_decay: Share of the variable removed per step, times the learning rate.
      beta_1: Decay of the mean of gradients, in [0, 1).
      beta_2: Decay of the mean of squared gradients, in [0, 1).
      epsilon: Added to the root of the uncorrected mean of squares. None: 1e-7.
      amsgrad: Whether to divide by the largest mean of squares so far.
      **options: `clipvalue`, `clipnorm` or `global_clipnorm` to clip gradients; `decay`
        to divide the learning rate by 1 + decay * step; `lr`, an alias of
        `learning_rate`.

    Returns:
      An `Optimizer`.

    Raises:
      ValueError: `weight_decay` is negative.

    Example:
      >>> optimizer = AdamW(0.1, weight_decay=0.5)
      >>> w = jnp.array([2.0])
      >>> w, state = optimizer.apply(jnp.zeros(1), optimizer.init(w), w, step=0)
      >>> round(float(w[0]), 4)
      1.9
    """
    check_at_least_zero(weight_decay=weight_decay)
    epsilon = _epsilon(epsilon, "keras")
    rule = rules.AdamRule(
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
    **options: Unpack[OptimizerOptions],
) -> Optimizer:
    """RMSProp: divide each step by the root of a running mean of squared gradients.

    Use it for recurrent networks, or to reproduce a model trained with it.

    Args:
      learning_rate: A number, or a schedule such as `exponential_decay`.
      rho: Decay of the running mean; TensorFlow 1 calls it `decay`.
      momentum: Share of the last change that is repeated. 0: no velocity is kept.
      epsilon: Added to or under the root. None: 1e-7, and 1e-10 in "v1".
      centered: Whether to subtract the squared mean of gradients (their variance).
      generation: Whose formula to use where they differ: "legacy" (tf.estimator),
        "v1" (tf.compat.v1.train) or "keras" (Keras 2.11 and later).
      **options: `clipvalue`, `clipnorm` or `global_clipnorm` to clip gradients; `decay`
        to divide the learning rate by 1 + decay * step; `lr`, an alias of
        `learning_rate`.

    Returns:
      An `Optimizer`.

    Example:
      >>> sorted(RMSProp(0.01, momentum=0.9, centered=True).init(jnp.zeros(2)))
      ['mg', 'momentum', 'rms']
    """
    epsilon = _epsilon(epsilon, generation, v1=1e-10)
    rule = rules.RMSPropRule(rho, momentum, epsilon, centered, generation)
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
    **options: Unpack[OptimizerOptions],
) -> Optimizer:
    """FTRL-proximal, the usual optimizer of linear models over sparse features.

    With l1 regularization, weights that do not help are exactly 0. A variable that does
    not start at 0 is largely forgotten at its first update, so do not use it for hidden
    layers.

    Args:
      learning_rate: A number, or a schedule such as `exponential_decay`.
      learning_rate_power: Exponent of the sum of squares, 0 or less. 0 keeps the
        learning rate fixed.
      initial_accumulator_value: Initial sum of squares, 0 or more.
      l1_regularization_strength: Weight of |w| in the loss, 0 or more.
      l2_regularization_strength: Weight of w² in the loss, 0 or more.
      l2_shrinkage_regularization_strength: Weight of an l2 penalty that is added to
        the gradient, 0 or more. It shrinks w; `l2_regularization_strength` stabilizes
        the update.
      beta: Added to l2 as beta / (2 * learning_rate), as in the FTRL paper.
      generation: Whose formula to use where they differ: "legacy" (tf.estimator),
        "v1" (tf.compat.v1.train) or "keras" (Keras 2.11 and later).
      **options: `clipvalue`, `clipnorm` or `global_clipnorm` to clip gradients; `decay`
        to divide the learning rate by 1 + decay * step; `lr`, an alias of
        `learning_rate`.

    Returns:
      An `Optimizer`.

    Raises:
      ValueError: `learning_rate_power` is positive or another argument is negative.

    Example:
      >>> w, grads = jnp.zeros(2), jnp.array([0.3, -2.0])
      >>> optimizer = Ftrl(0.1, l1_regularization_strength=0.5)
      >>> w, state = optimizer.apply(grads, optimizer.init(w), w, step=0)
      >>> [round(x, 3) for x in w.tolist()]
      [0.0, 0.074]
    """
    rule = rules.FtrlRule(
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
    **options: Unpack[OptimizerOptions],
) -> Optimizer:
    """Adagrad followed by a proximal step, which shrinks w by l1 and l2.

    Use it to reproduce `tf.compat.v1.train.ProximalAdagradOptimizer`. For new linear
    models `Ftrl` gives sparser weights.

    Args:
      learning_rate: A number, or a schedule such as `exponential_decay`.
      initial_accumulator_value: Initial sum of squares, positive.
      l1_regularization_strength: Weight of |w| in the loss, 0 or more.
      l2_regularization_strength: Weight of w² in the loss, 0 or more.
      **options: `clipvalue`, `clipnorm` or `global_clipnorm` to clip gradients; `decay`
        to divide the learning rate by 1 + decay * step; `lr`, an alias of
        `learning_rate`.

    Returns:
      An `Optimizer`.

    Raises:
      ValueError: `initial_accumulator_value` is not positive or a strength is negative.

    Example:
      >>> w = jnp.array([0.01, 1.0])
      >>> optimizer = ProximalAdagrad(0.1, l1_regularization_strength=1.0)
      >>> w, state = optimizer.apply(jnp.zeros(2), optimizer.init(w), w, step=0)
      >>> [round(x, 3) for x in w.tolist()]
      [0.0, 0.684]
    """
    rule = rules.ProximalRule(
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
    **options: Unpack[OptimizerOptions],
) -> Optimizer:
    """Gradient descent followed by a proximal step, which shrinks w by l1 and l2.

    Use it to reproduce `tf.compat.v1.train.ProximalGradientDescentOptimizer`.

    Args:
      learning_rate: A number, or a schedule such as `exponential_decay`.
      l1_regularization_strength: Weight of |w| in the loss, 0 or more.
      l2_regularization_strength: Weight of w² in the loss, 0 or more.
      **options: `clipvalue`, `clipnorm` or `global_clipnorm` to clip gradients; `decay`
        to divide the learning rate by 1 + decay * step; `lr`, an alias of
        `learning_rate`.

    Returns:
      An `Optimizer`.

    Raises:
      ValueError: A strength is negative.

    Example:
      >>> w = jnp.array([0.05, 1.0])
      >>> optimizer = ProximalGradientDescent(0.1, l1_regularization_strength=1.0)
      >>> w, state = optimizer.apply(jnp.zeros(2), optimizer.init(w), w, step=0)
      >>> [round(x, 3) for x in w.tolist()]
      [0.0, 0.9]
    """
    rule = rules.ProximalRule(
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
    **options: Unpack[OptimizerOptions],
) -> Optimizer:
    """Adadelta: steps scaled by the ratio of past changes to past gradients.

    Use it to reproduce a model trained with it; it learns slowly at first, because the
    running mean of changes starts at 0.

    Args:
      learning_rate: A number or a schedule. The original paper uses 1.0.
      rho: Decay of both running means.
      epsilon: Added under both roots. None: 1e-7, and 1e-8 in "v1".
      generation: Whose formula to use where they differ: "legacy" (tf.estimator),
        "v1" (tf.compat.v1.train) or "keras" (Keras 2.11 and later).
      **options: `clipvalue`, `clipnorm` or `global_clipnorm` to clip gradients; `decay`
        to divide the learning rate by 1 + decay * step; `lr`, an alias of
        `learning_rate`.

    Returns:
      An `Optimizer`.

    Example:
      >>> sorted(Adadelta(1.0).init(jnp.zeros(2)))
      ['accum_grad', 'accum_var']
    """
    rule = rules.AdadeltaRule(rho, _epsilon(epsilon, generation, v1=1e-8))
    return _optimizer("Adadelta", rule, learning_rate, generation, options)


def Adamax(  # noqa: N802
    learning_rate: Rate = 0.001,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float | None = None,
    **options: Unpack[OptimizerOptions],
) -> Optimizer:
    """Adam with a decaying maximum of |g| in place of the root of the second moment.

    Rows without a gradient do not change, so a step on a large table is cheap.

    Args:
      learning_rate: A number, or a schedule such as `exponential_decay`.
      beta_1: Decay of the mean of gradients, in [0, 1).
      beta_2: Decay of the maximum, in [0, 1).
      epsilon: Added to the maximum. None: 1e-7.
      **options: `clipvalue`, `clipnorm` or `global_clipnorm` to clip gradients; `decay`
        to divide the learning rate by 1 + decay * step; `lr`, an alias of
        `learning_rate`.

    Returns:
      An `Optimizer`.

    Example:
      >>> Adamax(0.001).has_rows
      True
    """
    rule = rules.AdamaxRule(beta_1, beta_2, _epsilon(epsilon, "legacy"))
    return _optimizer("Adamax", rule, learning_rate, "legacy", options)


def Nadam(  # noqa: N802
    learning_rate: Rate = 0.001,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float | None = None,
    **options: Unpack[OptimizerOptions],
) -> Optimizer:
    """Adam with Nesterov momentum, as in Keras' legacy Nadam.

    The moments of every row of a table decay in every step, so the cost of a step grows
    with the vocabulary.

    Args:
      learning_rate: A number, or a schedule such as `exponential_decay`.
      beta_1: Decay of the mean of gradients, in [0, 1).
      beta_2: Decay of the mean of squared gradients, in [0, 1).
      epsilon: Added to the root of the corrected mean of squares. None: 1e-7.
      **options: `clipvalue`, `clipnorm` or `global_clipnorm` to clip gradients; `decay`
        to divide the learning rate by 1 + decay * step; `lr`, an alias of
        `learning_rate`.

    Returns:
      An `Optimizer`.

    Example:
      >>> Nadam(0.001).rule.rows_without_gradient
      'decay_slots'
    """
    rule = rules.NadamRule(beta_1, beta_2, _epsilon(epsilon, "legacy"))
    return _optimizer("Nadam", rule, learning_rate, "legacy", options)


def _optimizer(
    name: str,
    rule: rules.Rule,
    learning_rate: Rate,
    generation: Generation,
    options: OptimizerOptions,
) -> Optimizer:
    _check_generation(generation)
    _check_options(name, options)
    rate = _decay_by_step(options.get("lr", learning_rate), options.get("decay", 0.0))
    _check_rate(name, rate)
    clip = Clip(
        value=options.get("clipvalue"),
        norm=options.get("clipnorm"),
        global_norm=options.get("global_clipnorm"),
        first_only=generation == "keras",
    )
    unset = (clip.value, clip.norm, clip.global_norm) == (None, None, None)
    return Optimizer(name, rule, rate, None if unset else clip)


def _check_generation(generation: str) -> None:
    known = get_args(Generation)
    if generation not in known:
        raise ValueError(
            f"unknown generation {generation!r}{did_you_mean(generation, known)}"
        )


def _check_options(name: str, options: OptimizerOptions) -> None:
    unknown = [
        given for given in options if given not in OptimizerOptions.__annotations__
    ]
    if unknown:
        own = inspect.signature(globals()[name]).parameters.keys() - {"options"}
        near = did_you_mean(unknown[0], own | OptimizerOptions.__annotations__.keys())
        raise TypeError(f"{name}: unexpected argument {unknown[0]!r}{near}")


def _check_rate(name: str, rate: Rate) -> None:
    if callable(rate):
        return
    if isinstance(rate, bool) or not hasattr(rate, "__float__"):
        raise TypeError(
            f"{name}: learning_rate must be a number or a function of the step "
            f"(see optimizers.exponential_decay), got {format_value(rate)}."
        )


def _decay_by_step(rate: Rate, decay: float) -> Rate:
    """Return `rate` divided by 1 + decay * step, which is Keras' option `decay`."""
    if not decay:
        return rate
    check_at_least_zero(decay=decay)
    if isinstance(rate, jax.Array):
        raise ValueError(
            "decay: the learning rate is an array that the model_fn computes. Divide "
            "it there by 1 + decay * ex.get_global_step()."
        )

    def rate_at(step: jax.Array) -> jax.Array:
        now = rate(step) if callable(rate) else rate
        return now / (1 + decay * jnp.asarray(step, jnp.float32))

    return NamedSchedule(f"{rate} / (1 + {decay} * step)", rate_at)


def _epsilon(
    epsilon: float | None, generation: Generation, *, v1: float = 1e-7
) -> float:
    """Return `epsilon` or the generation's default; "legacy" replaces 0 as well."""
    if generation == "legacy":
        return epsilon or 1e-7
    if epsilon is None:
        return v1 if generation == "v1" else 1e-7
    return epsilon
