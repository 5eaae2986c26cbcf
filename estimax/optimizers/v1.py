"""`tf.compat.v1.train`'s optimizers with their own names and arguments.

    from estimax.optimizers import v1
    v1.AdamOptimizer(0.001, beta1=0.9)

For programs being ported: each is the optimizer of that name in generation "v1".
"""

from __future__ import annotations

from estimax.optimizers import constructors as new
from estimax.optimizers.constructors import Rate
from estimax.optimizers.optimizer import Optimizer


def GradientDescentOptimizer(learning_rate: Rate) -> Optimizer:  # noqa: N802 (TF's)
    """Gradient descent."""
    return new.SGD(learning_rate, generation="v1")


def MomentumOptimizer(  # noqa: N802
    learning_rate: Rate, momentum: float, use_nesterov: bool = False
) -> Optimizer:
    """A velocity of gradients."""
    return new.Momentum(learning_rate, momentum, use_nesterov)


def AdagradOptimizer(  # noqa: N802
    learning_rate: Rate, initial_accumulator_value: float = 0.1
) -> Optimizer:
    """Adagrad without an epsilon."""
    return new.Adagrad(learning_rate, initial_accumulator_value, generation="v1")


def AdamOptimizer(  # noqa: N802
    learning_rate: Rate = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
) -> Optimizer:
    """Adam with epsilon 1e-8."""
    return new.Adam(learning_rate, beta1, beta2, epsilon, generation="v1")


def LazyAdamOptimizer(  # noqa: N802
    learning_rate: Rate = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
) -> Optimizer:
    """tf.contrib's Adam that leaves rows without a gradient alone."""
    return new.LazyAdam(learning_rate, beta1, beta2, epsilon)


def RMSPropOptimizer(  # noqa: N802
    learning_rate: Rate,
    decay: float = 0.9,
    momentum: float = 0.0,
    epsilon: float = 1e-10,
    centered: bool = False,
) -> Optimizer:
    """RMSProp whose mean of squares starts at one; `decay` is rho."""
    return new.RMSProp(
        learning_rate, decay, momentum, epsilon, centered, generation="v1"
    )


def FtrlOptimizer(  # noqa: N802
    learning_rate: Rate,
    learning_rate_power: float = -0.5,
    initial_accumulator_value: float = 0.1,
    l1_regularization_strength: float = 0.0,
    l2_regularization_strength: float = 0.0,
    l2_shrinkage_regularization_strength: float = 0.0,
    beta: float = 0.0,
) -> Optimizer:
    """FTRL-proximal."""
    return new.Ftrl(
        learning_rate,
        learning_rate_power,
        initial_accumulator_value,
        l1_regularization_strength,
        l2_regularization_strength,
        l2_shrinkage_regularization_strength,
        beta,
        generation="v1",
    )


def AdadeltaOptimizer(  # noqa: N802
    learning_rate: Rate = 0.001, rho: float = 0.95, epsilon: float = 1e-8
) -> Optimizer:
    """Adadelta with epsilon 1e-8."""
    return new.Adadelta(learning_rate, rho, epsilon, generation="v1")


ProximalAdagradOptimizer = new.ProximalAdagrad
ProximalGradientDescentOptimizer = new.ProximalGradientDescent
