"""Checks of the options of heads, their logits, loss functions and prediction keys.

Every function takes what error messages call the head, such as "BinaryClassHead 'a'",
as its first argument.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp

from estimax.core.errors import SpecError, did_you_mean

HEAD_REDUCTIONS = ("sum_over_batch_size", "sum", "auto")


def check_reduction(head: str, reduction: str) -> None:
    """Raise `SpecError` if the reduction is unknown."""
    if reduction not in HEAD_REDUCTIONS:
        near = did_you_mean(str(reduction), HEAD_REDUCTIONS)
        raise SpecError(f"{head}: unknown loss_reduction {reduction!r}{near}")


def validate_thresholds(
    head: str, thresholds: Iterable[float] | None
) -> tuple[float, ...]:
    """Return the thresholds as a tuple; raise unless each is between 0 and 1."""
    given = () if thresholds is None else tuple(thresholds)
    for threshold in given:
        if not 0.0 < threshold < 1.0:
            raise SpecError(
                f"{head}: thresholds must be strictly between 0 and 1, got {threshold}."
            )
    return given


def validate_vocabulary(
    head: str, vocabulary: Sequence[str] | None, n_classes: int | None = None
) -> tuple[str, ...] | None:
    """Return the vocabulary as a tuple; None if there is none or it is empty."""
    if vocabulary is None:
        return None
    if not isinstance(vocabulary, list | tuple):
        raise SpecError(
            f"{head}: label_vocabulary must be a list or tuple of strings, got "
            f"{type(vocabulary).__name__}."
        )
    words = tuple(w.decode() if isinstance(w, bytes) else str(w) for w in vocabulary)
    if words and n_classes is not None and len(words) != n_classes:
        raise SpecError(
            f"{head}: label_vocabulary has {len(words)} words for {n_classes} classes. "
            "Give one word for each class, in the order of the class ids."
        )
    if len(set(words)) < len(words):
        twice = next(word for word in words if words.count(word) > 1)
        raise SpecError(f"{head}: label_vocabulary has {twice!r} more than once.")
    return words or None


def check_loss_fn(head: str, loss_fn: Callable[..., Any] | None) -> None:
    """Raise unless a loss function takes labels and logits by these names.

    Besides, it may take features, and keyword-only options that have a default.
    """
    if loss_fn is None:
        return
    named = [p for p in _parameters(loss_fn) if p.kind not in _VARIADIC]
    taken = [p.name for p in named if p.kind is not p.KEYWORD_ONLY]
    required = {p.name for p in named if p.kind is p.KEYWORD_ONLY and _is_required(p)}
    missing = {"labels", "logits"} - {p.name for p in named}
    unknown = ({*taken} | required) - {"labels", "logits", "features", "loss_reduction"}
    if missing or unknown:
        raise SpecError(
            f"{head}: loss_fn must take labels and logits by these names, and may take "
            f"features; it takes ({', '.join(taken)}). Bind other options with "
            "functools.partial, or make them keyword-only with a default."
        )


def call_loss_fn(
    head: str,
    loss_fn: Callable[..., Any],
    labels: jax.Array,
    logits: jax.Array,
    features: Any,
    width: int,
) -> jax.Array:
    """Return the losses [..., width] that a loss function computes for [..., K]."""
    options = {}
    if any(p.name == "features" for p in _parameters(loss_fn)):
        options["features"] = features
    losses = jnp.asarray(loss_fn(labels=labels, logits=logits, **options), jnp.float32)
    expected = (*logits.shape[:-1], width)
    if losses.shape != expected:
        raise SpecError(
            f"{head}: loss_fn must return the loss of each example, shape "
            f"{list(expected)}, got {list(losses.shape)}. The head applies weights "
            "and reduces."
        )
    return losses


def check_focal_gamma(head: str, gamma: Any, loss_fn: object) -> None:
    """Raise `SpecError` unless it is None, or a positive number without a `loss_fn`."""
    if gamma is None:
        return
    if loss_fn is not None:
        raise SpecError(
            f"{head}: loss_fn and focal_gamma are both given, and each of them is the "
            "loss. Leave one out."
        )
    if not _is_number(gamma) or not gamma > 0:
        raise SpecError(
            f"{head}: focal_gamma must be a number above 0, such as 2.0, got {gamma!r}."
        )


def check_sampling_rate(head: str, rate: Any) -> None:
    """Raise `SpecError` unless it is None or a share of the examples."""
    if rate is not None and not (_is_number(rate) and 0 < rate <= 1):
        raise SpecError(
            f"{head}: sampling_rate is the share of the examples of class 0 that was "
            f"kept in the training data, above 0 and at most 1; got {rate!r}."
        )


def validate_class_weights(
    head: str, given: Any, n_classes: int, words: Sequence[str] | None
) -> tuple[float, ...] | None:
    """Return the weight of each class in the order of the ids; None if there are none.

    >>> validate_class_weights("Head", {"dog": 5}, 2, ["cat", "dog"])
    (1.0, 5.0)
    """
    if given is None:
        return None
    if not isinstance(given, Mapping):
        if isinstance(given, str) or len(given) != n_classes:
            raise SpecError(
                f"{head}: class_weights must be a dict from class to weight, or "
                f"{n_classes} weights in the order of the class ids, got {given!r}."
            )
        given = dict(enumerate(given))
    known: dict[Any, int] = {i: i for i in range(n_classes)}
    known |= {str(i): i for i in range(n_classes)}  # the keys of a run file are text
    known |= {word: i for i, word in enumerate(words or ())}
    found = [1.0] * n_classes
    for name, weight in given.items():
        if name not in known:
            classes = list(words or range(n_classes))
            near = did_you_mean(str(name), map(str, classes))
            raise SpecError(f"{head}: class_weights: unknown class {name!r}{near}")
        if not _is_number(weight) or not 0 <= weight < float("inf"):
            raise SpecError(
                f"{head}: class_weights: the weight of class {name!r} must be a number "
                f"of at least 0, got {weight!r}."
            )
        found[known[name]] = float(weight)
    if not any(found):
        raise SpecError(f"{head}: class_weights: the weights of all classes are 0.")
    return tuple(found)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def validate_logits(head: str, logits: Any, dimension: int) -> jax.Array:
    """Return the logits as float32 [..., dimension]; raise for another shape."""
    array = jnp.asarray(logits)
    if array.ndim < 2 or array.shape[-1] != dimension:
        raise SpecError(
            f"{head}: logits must have shape [B, {dimension}] (or more axes before the "
            f"last), got {list(array.shape)}. Make the last layer of size "
            "head.logits_dimension."
        )
    return array.astype(jnp.float32)


def select_predictions(
    head: str, predictions: Mapping[str, Any], keys: Iterable[str] | None
) -> dict[str, Any]:
    """Return the predictions with these keys; all of them if no keys are given."""
    wanted = [keys] if isinstance(keys, str) else list(keys or predictions)
    for key in wanted:
        if key not in predictions:
            near = did_you_mean(str(key), predictions)
            raise SpecError(f"{head}: unknown prediction key {key!r}{near}")
    return {key: predictions[key] for key in wanted}


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty
