"""The parts that the docstrings of TensorFlow 1's metrics share.

@document_metric("a scalar")
def true_positives(labels=None, predictions=None, weights=None, *, name=None):
    '''Return the weight of positive labels predicted positive.'''
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

from estimax.core.docstrings import complete_docstring, format_entries

_Function = TypeVar("_Function", bound=Callable[..., Any])

_ARGS = {
    "labels": "True labels, [B] or any shape. A label that is not 0 is positive.",
    "predictions": (
        "Scores within [0, 1], in the shape of the labels up to one trailing axis of "
        "size 1."
    ),
    "thresholds": "T numbers. A score is positive if it is strictly greater.",
    "weights": (
        "Example weights: a scalar, or an array that broadcasts to the predictions, "
        "such as [B]. By default every example weighs 1."
    ),
    "name": (
        "Not used, as the key in `eval_metric_ops` names the metric; accepted because "
        "programs for TensorFlow give it."
    ),
}


def document_metric(
    result: str, *, wrong_value: str = ""
) -> Callable[[_Function], _Function]:
    """Return a decorator that completes the docstring of a metric.

    Args:
      result: What `compute` returns: "a scalar".
      wrong_value: A value that is an error, if the metric checks values: "A prediction
        is outside [0, 1]".
    """
    returns = (
        "A `Sums` of this batch. Merge the `Sums` of all batches, then call `compute` "
        f"for {result}. Without data, the metric before any data."
    )
    fit = "hapes do not fit each other, or only some of the arrays are given."
    error = f"S{fit}"
    if wrong_value:
        error = (
            f"{wrong_value}, s{fit} Inside `jit`, where values cannot be checked, the "
            "result is NaN instead."
        )
    shared = {
        "Args": format_entries(_ARGS),
        "Returns": textwrap.indent(textwrap.fill(returns, 84), "  "),
        "Raises": format_entries({"MetricError": error}),
    }

    def complete(function: _Function) -> _Function:
        opening = f"It is `tf.compat.v1.metrics.{function.__name__}`."
        return complete_docstring(function, shared, opening=opening)

    return complete
