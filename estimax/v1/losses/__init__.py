"""The losses of `tf.compat.v1.losses`, for a `model_fn` ported from TensorFlow 1.

    loss = ex.losses.sparse_softmax_cross_entropy(labels, logits, weights)

Names, positions of arguments, defaults and reductions are TensorFlow's. Each function
returns a float32 scalar, and adds it to the losses that `get_total_loss` sums. The
`loss_fn` of a head needs one loss for each example instead: see `ex.heads.losses`.
Read `reduction.py` first.
"""

from typing import TYPE_CHECKING, Any

from estimax.core import migration
from estimax.staging.variables import regularization_losses as get_regularization_losses
from estimax.v1.losses.functions import (
    absolute_difference,
    cosine_distance,
    hinge_loss,
    huber_loss,
    log_loss,
    mean_pairwise_squared_error,
    mean_squared_error,
    sigmoid_cross_entropy,
    softmax_cross_entropy,
    sparse_softmax_cross_entropy,
)
from estimax.v1.losses.reduction import (
    Reduction,
    add_loss,
    compute_weighted_loss,
    get_losses,
    get_regularization_loss,
    get_total_loss,
)

__all__ = [
    "Reduction",
    "absolute_difference",
    "add_loss",
    "compute_weighted_loss",
    "cosine_distance",
    "get_losses",
    "get_regularization_loss",
    "get_regularization_losses",
    "get_total_loss",
    "hinge_loss",
    "huber_loss",
    "log_loss",
    "mean_pairwise_squared_error",
    "mean_squared_error",
    "sigmoid_cross_entropy",
    "softmax_cross_entropy",
    "sparse_softmax_cross_entropy",
]


if not TYPE_CHECKING:  # a type checker must report a name that does not exist

    def __getattr__(name: str) -> Any:
        migration.missing("estimax.losses", name, __all__)
