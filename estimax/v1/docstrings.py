"""Docstrings that the metrics and the losses of TensorFlow 1 share, written once.

    @document_metric("a scalar")
    def true_positives(labels=None, predictions=None, weights=None, *, name=None):
        '''Return the weight of positive labels predicted positive.'''

A decorator adds what the docstring leaves out: the name in TensorFlow, the entry in
`Args:` of each parameter that has none, `Returns:` and `Raises:`. What the docstring
says itself stays as it is. `help` and the API reference show the complete text.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

_METRIC_ARGS = {
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
_LOSS_ARGS = {
    "labels": "True numbers, [B, D] or any shape.",
    "predictions": "Predicted numbers, in the shape of the labels.",
    "logits": "Logits, in the shape of the labels.",
    "weights": (
        "Weights: a scalar, or an array with as many axes as the labels, where each "
        "is equal or 1, such as [B, 1]."
    ),
    "scope": "The name of the loss in the current variable scope, for `get_losses`.",
    "loss_collection": ("The collection that the result is added to; None for none."),
    "reduction": (
        "A `Reduction`. By default the sum is divided by the number of weights that "
        "are not 0."
    ),
}
_SECTIONS = ("Args", "Returns", "Raises", "Example")


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
    raises = f"MetricError: S{fit}"
    if wrong_value:
        raises = (
            f"MetricError: {wrong_value}, s{fit} Inside `jit`, where values cannot be "
            "checked, the result is NaN instead."
        )
    return lambda function: _complete(
        function, "metrics", _METRIC_ARGS, returns, [raises]
    )


def document_loss(function: _Function) -> _Function:
    """Complete the docstring of a loss of labels and predictions, and return it."""
    labels, predictions = list(inspect.signature(function).parameters)[:2]
    returns = (
        "A float32 scalar; an array in the shape of the labels for `Reduction.NONE`."
    )
    raises = [
        f"LabelError: The shapes of {labels} and {predictions} differ.",
        "SpecError: The weights do not fit, or the reduction is unknown.",
    ]
    return _complete(function, "losses", _LOSS_ARGS, returns, raises)


def _complete(
    function: _Function,
    module: str,
    args: Mapping[str, str],
    returns: str,
    raises: Iterable[str],
) -> _Function:
    """Add the sections and entries that the docstring of a function lacks."""
    if function.__doc__ is None:  # python -OO removes docstrings
        return function
    head, sections = _split_sections(inspect.getdoc(function) or "")
    summary, _, text = head.partition("\n\n")
    origin = f"It is `tf.compat.v1.{module}.{function.__name__}`."
    text = textwrap.fill(f"{origin} {text}", 86)
    own = _entries_by_name(sections.get("Args", ""))
    names = inspect.signature(function).parameters
    found = {
        "Args": "\n".join(
            own[name] if name in own else _format_entry(f"{name}: {args[name]}")
            for name in names
        ),
        "Returns": textwrap.indent(textwrap.fill(returns, 84), "  "),
        "Raises": "\n".join(_format_entry(entry) for entry in raises),
        # The docstring's own text comes last, so that it replaces the shared one.
        **{title: body for title, body in sections.items() if title != "Args"},
    }
    blocks = [f"{title}:\n{found[title]}" for title in _SECTIONS if title in found]
    function.__doc__ = "\n\n".join([summary, text, *blocks]) + "\n"
    return function


def _split_sections(text: str) -> tuple[str, dict[str, str]]:
    """Return the text before the first section, and the sections by title."""
    parts = re.split(rf"^({'|'.join(_SECTIONS)}):\n", text, flags=re.MULTILINE)
    bodies = (body.rstrip() for body in parts[2::2])
    return parts[0].strip(), dict(zip(parts[1::2], bodies, strict=True))


def _entries_by_name(section: str) -> dict[str, str]:
    """Return the entries of `Args:` by the name of their parameter."""
    entries = re.split(r"\n(?=  \S)", section) if section else []
    return {entry.split(":")[0].strip(): entry for entry in entries}


def _format_entry(text: str) -> str:
    return textwrap.fill(text, 86, initial_indent="  ", subsequent_indent=" " * 4)
