"""The names of `tf.estimator.experimental`, and of the experimental module of its v1.

They are stable in estimax, and most are also at the top: `ex.RNNClassifier`.
"""

from typing import TYPE_CHECKING, Any

from estimax.canned import (
    KMeans,
    RNNClassifier,
    RNNEstimator,
    dnn_logit_fn_builder,
    linear_logit_fn_builder,
)
from estimax.core import migration
from estimax.estimator import call_logit_fn
from estimax.export import build_raw_supervised_input_receiver_fn
from estimax.hooks import (
    InMemoryEvaluatorHook,
    make_early_stopping_hook,
    make_stop_at_checkpoint_step_hook,
    read_eval_metrics,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)

__all__ = [
    "InMemoryEvaluatorHook",
    "KMeans",
    "RNNClassifier",
    "RNNEstimator",
    "build_raw_supervised_input_receiver_fn",
    "call_logit_fn",
    "dnn_logit_fn_builder",
    "linear_logit_fn_builder",
    "make_early_stopping_hook",
    "make_stop_at_checkpoint_step_hook",
    "read_eval_metrics",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
]


if not TYPE_CHECKING:  # a type checker must report a name that does not exist

    def __getattr__(name: str) -> Any:
        migration.missing("estimax.experimental", name, __all__)
