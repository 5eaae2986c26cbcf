"""Optimizers, learning-rate schedules, clipping and train ops, as in TensorFlow.

Read `rules.py` for the formulas and `optimizer.py` for what an optimizer is.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from estimax.core import migration
from estimax.optimizers.clipping import (
    Clip,
    clip_by_average_norm,
    clip_by_global_norm,
    clip_by_norm,
    clip_by_value,
    global_norm,
    l1,
    l1_l2,
    l2,
    l2_loss,
)
from estimax.optimizers.constructors import (
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    Ftrl,
    LazyAdam,
    Momentum,
    Nadam,
    ProximalAdagrad,
    ProximalGradientDescent,
    RMSProp,
)
from estimax.optimizers.minimize import (
    Group,
    TrainOp,
    as_optimizer,
    as_train_op,
    assign,
    by_name,
    group,
    minimize,
)
from estimax.optimizers.moving_average import (
    MovingAverage,
    init_average,
    init_average_at_zero,
    update_average,
)
from estimax.optimizers.optimizer import Optimizer
from estimax.optimizers.rows import (
    gather_rows,
    init_slots,
    sum_duplicates,
    update_rows,
    update_touched,
)
from estimax.optimizers.rules import Rule
from estimax.optimizers.schedules import (
    cosine_decay,
    cosine_decay_restarts,
    exponential_decay,
    inverse_time_decay,
    linear_cosine_decay,
    linear_warmup,
    natural_exp_decay,
    noisy_linear_cosine_decay,
    piecewise_constant,
    polynomial_decay,
    schedule_by_name,
)

__all__ = [
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Clip",
    "Ftrl",
    "Group",
    "LazyAdam",
    "Momentum",
    "MovingAverage",
    "Nadam",
    "Optimizer",
    "ProximalAdagrad",
    "ProximalGradientDescent",
    "RMSProp",
    "Rule",
    "TrainOp",
    "as_optimizer",
    "as_train_op",
    "assign",
    "by_name",
    "clip_by_average_norm",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "cosine_decay",
    "cosine_decay_restarts",
    "exponential_decay",
    "gather_rows",
    "global_norm",
    "group",
    "init_average",
    "init_average_at_zero",
    "init_slots",
    "inverse_time_decay",
    "l1",
    "l1_l2",
    "l2",
    "l2_loss",
    "linear_cosine_decay",
    "linear_warmup",
    "minimize",
    "natural_exp_decay",
    "noisy_linear_cosine_decay",
    "piecewise_constant",
    "polynomial_decay",
    "schedule_by_name",
    "sum_duplicates",
    "update_average",
    "update_rows",
    "update_touched",
    "v1",
]


if TYPE_CHECKING:
    from estimax.v1 import optimizers as v1
else:  # a type checker must report a name that does not exist

    def __getattr__(name: str) -> Any:
        if name == "v1":  # by name: its package is above this one
            return import_module("estimax.v1.optimizers")
        migration.missing("estimax.optimizers", name, __all__)
