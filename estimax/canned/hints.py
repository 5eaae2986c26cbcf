"""What to try if a canned model is no better than always answering the mean label.

tf.estimator's learning rates are small: Adagrad at 0.001 hardly moves in a thousand
steps. The canned estimators keep these defaults and say so when an evaluation shows it.
"""

from __future__ import annotations

from typing import Any

from estimax import heads, optimizers

# Learning rates that suit most tabular models.
GOOD_RATES = {
    "Adagrad": 0.05,
    "Adam": 0.001,
    "Ftrl": 0.05,
    "LazyAdam": 0.001,
    "RMSProp": 0.001,
    "SGD": 0.01,
}


def python_hint(head: Any, **given: optimizers.Optimizer | None) -> str:
    """Return what to try, as arguments of Python.

    Args:
      head: The head of the model.
      **given: By argument name, the optimizer of each part; None if it is not known.
    """
    pieces = []
    for argument, optimizer in given.items():
        if optimizer is not None and is_slow(optimizer):
            name = optimizer.name
            better = f"{argument}=ex.optimizers.{name}({GOOD_RATES[name]:g})"
            pieces.append(f"{better} (the learning rate is {optimizer.learning_rate})")
    hint = f"Try {' and '.join(pieces)}" if pieces else "Train for more steps"
    if isinstance(head, heads.RegressionHead) and not head.is_scaled:
        return (
            f"{hint}, or scale the labels to a mean of 0 and a standard deviation of 1."
        )
    if pieces:
        return f"{hint}."
    return (
        f"{hint}, scale numeric features to a standard deviation of about 1 "
        "(normalizer_fn), and check that the labels belong to the features."
    )


def is_slow(optimizer: optimizers.Optimizer) -> bool:
    """Return whether the rate of an optimizer is a number below a good one."""
    rate = optimizer.learning_rate
    return isinstance(rate, float) and rate < GOOD_RATES.get(optimizer.name, 0.0)
