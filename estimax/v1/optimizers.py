"""The optimizers of `tf.compat.v1.train`, with their own names and arguments.

    from estimax.optimizers import v1
    v1.AdamOptimizer(0.001, beta1=0.9)

Use them to port a program without changing its arguments or its results. Each returns
the optimizer of the same name in `estimax.optimizers` with `generation="v1"`.
"""

from __future__ import annotations

from estimax.optimizers import constructors as new
from estimax.optimizers.constructors import Rate
from estimax.optimizers.optimizer import Optimizer

__all__ = [
    "AdadeltaOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "LazyAdamOptimizer",
    "MomentumOptimizer",
    "ProximalAdagradOptimizer",
    "ProximalGradientDescentOptimizer",
    "RMSPropOptimizer",
]


def GradientDescentOptimizer(  # noqa: N802 (TF's)
    learning_rate: Rate, use_locking: bool = False, name: str = "GradientDescent"
) -> Optimizer:
    """Gradient descent: w -= learning_rate * gradient.

    Args:
      learning_rate: A number, or a schedule such as `exponential_decay`.
      use_locking: Ignored: updates never run at the same time.
      name: Ignored: state is named after the variables.

    Returns:
      An `Optimizer`.

    Example:
      >>> GradientDescentOptimizer(0.1)
      SGD(learning_rate=0.1)
    """
    return new.SGD(learning_rate, generation="v1")


def MomentumOptimizer(  # noqa: N802
    learning_rate: Rate,
    momentum: float,
    use_locking: bool = False,
    name: str = "Momentum",
    use_nesterov: bool = False,
) -> Optimizer:
    """Gradient descent with a velocity that sums past gradients.

    Args:
      learning_rate: A number, or a schedule such as `exponential_decay`.
      momentum: Share of the velocity that is kept in each step.
      use_nesterov: Whether to use Nesterov momentum.
      use_locking: Ignored: updates never run at the same time.
      name: Ignored: state is named after the variables.

    Returns:
      An `Optimizer`.

    Example:
      >>> MomentumOptimizer(0.1, 0.9)
      Momentum(learning_rate=0.1, momentum=0.9, nesterov=False, generation='v1')
    """
    return new.Momentum(learning_rate, momentum, use_nesterov)


def AdagradOptimizer(  # noqa: N802
    learning_rate: Rate,
    initial_accumulator_value: float = 0.1,
    use_locking: bool = False,
    name: str = "Adagrad",
) -> Optimizer:
    """Adagrad without an epsilon.

    Args:
      learning_rate: A number, or a schedule such as `exponential_decay`.
      initial_accumulator_value: Initial sum of squares, positive.
      use_locking: Ignored: updates never run at the same time.
      name: Ignored: state is named after the variables.

    Returns:
      An `Optimizer`.

    Raises:
      ValueError: `initial_accumulator_value` is not positive.

    Example:
      >>> AdagradOptimizer(0.1).rule.epsilon
      0.0
    """
    return new.Adagrad(learning_rate, initial_accumulator_value, generation="v1")


def AdamOptimizer(  # noqa: N802
    learning_rate: Rate = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    use_locking: bool = False,
    name: str = "Adam",
) -> Optimizer:
    """Adam with epsilon 1e-8. Every row of a table changes in every step.

    Args:
      learning_rate: A number, or a schedule such as `exponential_decay`.
      beta1: Decay of the mean of gradients, in [0, 1).
      beta2: Decay of the mean of squared gradients, in [0, 1).
      epsilon: Added to the root of the uncorrected mean of squares.
      use_locking: Ignored: updates never run at the same time.
      name: Ignored: state is named after the variables.

    Returns:
      An `Optimizer`.

    Example:
      >>> AdamOptimizer(0.1).rule.epsilon
      1e-08
    """
    return new.Adam(learning_rate, beta1, beta2, epsilon, generation="v1")


def LazyAdamOptimizer(  # noqa: N802
    learning_rate: Rate = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    use_locking: bool = False,
    name: str = "Adam",
) -> Optimizer:
    """Adam of `tf.contrib.opt`, which leaves rows without a gradient as they are.

    Args:
      learning_rate: A number, or a schedule such as `exponential_decay`.
      beta1: Decay of the mean of gradients, in [0, 1).
      beta2: Decay of the mean of squared gradients, in [0, 1).
      epsilon: Added to the root of the uncorrected mean of squares.
      use_locking: Ignored: updates never run at the same time.
      name: Ignored: state is named after the variables.

    Returns:
      An `Optimizer`.

    Example:
      >>> LazyAdamOptimizer(0.1).has_rows
      True
    """
    return new.LazyAdam(learning_rate, beta1, beta2, epsilon)


def RMSPropOptimizer(  # noqa: N802
    learning_rate: Rate,
    decay: float = 0.9,
    momentum: float = 0.0,
    epsilon: float = 1e-10,
    use_locking: bool = False,
    centered: bool = False,
    name: str = "RMSProp",
) -> Optimizer:
    """RMSProp whose running mean of squares starts at 1.

    Args:
      learning_rate: A number, or a schedule such as `exponential_decay`.
      decay: Decay of the running mean; `optimizers.RMSProp` calls it `rho`.
      momentum: Share of the last change that is repeated.
      epsilon: Added under the root.
      centered: Whether to subtract the squared mean of gradients (their variance).
      use_locking: Ignored: updates never run at the same time.
      name: Ignored: state is named after the variables.

    Returns:
      An `Optimizer`.

    Example:
      >>> RMSPropOptimizer(0.1, decay=0.8).rule.rho
      0.8
    """
    return new.RMSProp(
        learning_rate, decay, momentum, epsilon, centered, generation="v1"
    )


def FtrlOptimizer(  # noqa: N802
    learning_rate: Rate,
    learning_rate_power: float = -0.5,
    initial_accumulator_value: float = 0.1,
    l1_regularization_strength: float = 0.0,
    l2_regularization_strength: float = 0.0,
    use_locking: bool = False,
    name: str = "Ftrl",
    accum_name: str | None = None,
    linear_name: str | None = None,
    l2_shrinkage_regularization_strength: float = 0.0,
    beta: float | None = None,
) -> Optimizer:
    """FTRL-proximal, the usual optimizer of linear models over sparse features.

    Args:
      learning_rate: A number, or a schedule such as `exponential_decay`.
      learning_rate_power: Exponent of the sum of squares, 0 or less.
      initial_accumulator_value: Initial sum of squares, 0 or more.
      l1_regularization_strength: Weight of |w| in the loss, 0 or more.
      l2_regularization_strength: Weight of w² in the loss, 0 or more.
      l2_shrinkage_regularization_strength: Weight of an l2 penalty that is added to the
        gradient, 0 or more.
      accum_name: Ignored.
      linear_name: Ignored.
      beta: Added to l2 as beta / (2 * learning_rate). None: 0.
      use_locking: Ignored: updates never run at the same time.
      name: Ignored: state is named after the variables.

    Returns:
      An `Optimizer`.

    Raises:
      ValueError: `learning_rate_power` is positive or another argument is negative.

    Example:
      >>> FtrlOptimizer(0.1, l1_regularization_strength=0.5).name
      'Ftrl'
    """
    return new.Ftrl(
        learning_rate,
        learning_rate_power,
        initial_accumulator_value,
        l1_regularization_strength,
        l2_regularization_strength,
        l2_shrinkage_regularization_strength,
        beta or 0.0,
        generation="v1",
    )


def AdadeltaOptimizer(  # noqa: N802
    learning_rate: Rate = 0.001,
    rho: float = 0.95,
    epsilon: float = 1e-8,
    use_locking: bool = False,
    name: str = "Adadelta",
) -> Optimizer:
    """Adadelta with epsilon 1e-8.

    Args:
      learning_rate: A number, or a schedule such as `exponential_decay`.
      rho: Decay of both running means.
      epsilon: Added under both roots.
      use_locking: Ignored: updates never run at the same time.
      name: Ignored: state is named after the variables.

    Returns:
      An `Optimizer`.

    Example:
      >>> AdadeltaOptimizer(1.0)
      Adadelta(learning_rate=1.0, rho=0.95, epsilon=1e-08)
    """
    return new.Adadelta(learning_rate, rho, epsilon, generation="v1")


ProximalAdagradOptimizer = new.ProximalAdagrad
ProximalGradientDescentOptimizer = new.ProximalGradientDescent
