"""Convert labels to numbers, check their range and fit their shape to the logits.

    rule = ClassLabels("MultiClassHead 'color'", 3, ("red", "green", "blue"))
    ids = labels_for(rule, labels, logits, width=1)      # int32 [B, 1]

A label rule is the part of a head that runs on the host: it converts text to ids and
raises `LabelError` for values out of range, with their rows. In a traced `model_fn` it
runs in the input thread on every batch, because text and values are not available
inside `jit`. Of labels that the model computed on the device, only dtype and shape are
checked. The functions at the end name classes in predictions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from estimax import staging
from estimax.core.device_dtypes import Words, cast, is_real
from estimax.core.errors import LabelError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.feature_columns import transforms

KEY = "labels"  # the key of the raw labels among the inputs of a rule

_Numbers = TypeVar("_Numbers", NDArray[Any], jax.Array)


class LabelRule(Protocol):
    """A `staging.HostTransform` of labels, in two steps: `convert`, then `check`.

    Sequences call the steps separately, to blank the labels of masked steps between.
    """

    @property
    def head(self) -> str:
        """What error messages call the head."""

    @property
    def name(self) -> str:
        """The name of the result."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the raw values it reads."""

    def convert(self, given: staging.Raw) -> NDArray[Any]:
        """Return the labels as numbers, before their range is checked."""

    def check(
        self,
        numbers: NDArray[Any],
        given: staging.Raw,
        rows: NDArray[Any] | None = None,
    ) -> None:
        """Raise `LabelError` for numbers out of range, with the rows of the first five.

        `rows` holds the row of each value, if that is not its index on axis 0.
        """

    @property
    def dtype(self) -> type[np.generic]:
        """The dtype of the labels on the device."""

    def on_device(self, labels: jax.Array) -> jax.Array:
        """Check the dtype of labels computed on the device, and cast them."""

    def __call__(self, raw: Mapping[str, staging.Raw]) -> NDArray[Any]:
        """Convert, then check."""


class _HostLabels:
    """What the label rules below share: the lookup of words, and both steps."""

    head: str
    vocabulary: tuple[str, ...] | None
    dtype: type[np.generic]

    def __call__(self: LabelRule, raw: Mapping[str, staging.Raw]) -> NDArray[Any]:
        """Convert, then check."""
        given = raw[KEY]
        numbers = self.convert(given)
        self.check(numbers, given)
        return cast(numbers, self.dtype)

    @cached_property
    def _words(self) -> transforms.WordList:
        return transforms.WordList.of(self.vocabulary or ())

    def _numbers_of(self, given: staging.Raw) -> NDArray[Any]:
        """Return the ids of words, or numbers unchanged; raise for sparse labels."""
        check_dense(self.head, given)
        if self.vocabulary is not None:
            return lookup(self.head, self._words, given)
        return check_numbers(self.head, given)

    def _check_not_words(self, labels: jax.Array) -> jax.Array:
        """Return labels of the device; raise if words of a vocabulary are expected."""
        if self.vocabulary is not None:
            raise LabelError(
                f"{self.head}: with a label_vocabulary, labels must be text, got dtype "
                f"{labels.dtype}, computed by the model. Leave label_vocabulary out."
            )
        return labels


@dataclass(frozen=True)
class NumberLabels(_HostLabels):
    """Rule for numbers within [low, high], or words of a vocabulary; float32."""

    head: str
    low: float | None = None
    high: float | None = None
    vocabulary: tuple[str, ...] | None = None
    name: str = KEY
    keys: tuple[str, ...] = (KEY,)
    dtype: type[np.generic] = np.float32

    def convert(self, given: staging.Raw) -> NDArray[Any]:
        """Return the ids of words, or numbers unchanged."""
        return self._numbers_of(given)

    def check(
        self,
        numbers: NDArray[Any],
        given: staging.Raw,
        rows: NDArray[Any] | None = None,
    ) -> None:
        """Raise `LabelError` for labels outside [low, high] or NaN."""
        if self.low is not None and self.high is not None:
            inside = (numbers >= self.low) & (numbers <= self.high)
            expected = f"within [{self.low:g}, {self.high:g}]"
            if self.vocabulary is not None:
                expected = (
                    f"one of {_shorten_words(self.vocabulary[: int(self.high) + 1])}"
                )
            check_all(self.head, inside, given, expected, rows)

    def on_device(self, labels: jax.Array) -> jax.Array:
        """Cast to float32."""
        return self._check_not_words(labels).astype(jnp.float32)


@dataclass(frozen=True)
class ClassLabels(_HostLabels):
    """Rule for class ids in [0, n_classes), or words of a vocabulary; int32."""

    head: str
    n_classes: int
    vocabulary: tuple[str, ...] | None = None
    name: str = KEY
    keys: tuple[str, ...] = (KEY,)
    dtype: type[np.generic] = np.int32

    def convert(self, given: staging.Raw) -> NDArray[Any]:
        """Return the ids of words, or integers unchanged."""
        return check_integers(self.head, self._numbers_of(given))

    def check(
        self,
        numbers: NDArray[Any],
        given: staging.Raw,
        rows: NDArray[Any] | None = None,
    ) -> None:
        """Raise `LabelError` for ids outside [0, n_classes)."""
        inside = (numbers >= 0) & (numbers < self.n_classes)
        check_all(self.head, inside, given, self._expected, rows)

    def on_device(self, labels: jax.Array) -> jax.Array:
        """Cast to int32."""
        return check_integers(self.head, self._check_not_words(labels)).astype(
            jnp.int32
        )

    @property
    def _expected(self) -> str:
        if self.vocabulary is not None:
            return f"one of {_shorten_words(self.vocabulary)}"
        return f"class ids from 0 to {self.n_classes - 1}"


@dataclass(frozen=True)
class IndicatorLabels(_HostLabels):
    """Rule for several classes of an example; float32 [..., n_classes] in [0, 1].

    Labels are such indicators, or sparse: class ids or words of a vocabulary.
    """

    head: str
    n_classes: int
    vocabulary: tuple[str, ...] | None = None
    name: str = KEY
    keys: tuple[str, ...] = (KEY,)
    dtype: type[np.generic] = np.float32

    @cached_property
    def _classes(self) -> ClassLabels:
        return ClassLabels(self.head, self.n_classes, self.vocabulary)

    def convert(self, given: staging.Raw) -> NDArray[Any]:
        """Return indicators for sparse classes, or indicators unchanged."""
        if isinstance(given, Sparse):
            return self._spread(given)
        if isinstance(given, Strings):
            raise LabelError(
                f"{self.head}: text labels must be sparse (a VarLenFeature), or given "
                f"as 0/1 indicators [B, {self.n_classes}]."
            )
        return np.asarray(given)

    def check(
        self,
        numbers: NDArray[Any],
        given: staging.Raw,
        rows: NDArray[Any] | None = None,
    ) -> None:
        """Raise `LabelError` for indicators outside [0, 1]."""
        if not isinstance(given, Sparse):
            inside = (numbers >= 0) & (numbers <= 1)
            check_all(self.head, inside, given, "indicators within [0, 1]", rows)

    def on_device(self, labels: jax.Array) -> jax.Array:
        """Cast to float32."""
        return labels.astype(jnp.float32)

    def _spread(self, given: Sparse) -> NDArray[np.float32]:
        rows = given.indices[:, :-1]
        numbers = self._classes.convert(given.values)
        inside = (numbers >= 0) & (numbers < self.n_classes)
        check_all(self.head, inside, given.values, self._classes._expected, rows[:, 0])
        spread = np.zeros((*given.dense_shape[:-1], self.n_classes), np.float32)
        spread[(*rows.T, numbers)] = 1.0
        return spread


def labels_for(
    rule: LabelRule,
    labels: Any,  # an array, text, sparse, a tracer or a placeholder for one
    logits: jax.Array,
    width: int,
) -> jax.Array:
    """Return labels converted and checked, [..., width] for logits [..., K].

    A missing last axis of size 1 is added. Labels are never broadcast.
    """
    check_given(rule.head, labels)
    if staging.can_stage(labels):
        ready = staging.stage(rule, {KEY: labels})
    else:
        ready = rule.on_device(labels)
    return fit_labels(rule.head, ready, logits, width)


def check_given(head: str, labels: Any) -> None:
    """Raise `LabelError` if labels are None or a dict."""
    if labels is None:
        raise LabelError(
            f"{head}: labels are missing. Training and evaluation need them: return "
            "(features, labels) from the input_fn and pass labels to the head."
        )
    if isinstance(labels, Mapping):
        raise LabelError(
            f"{head}: expected one array of labels, got a dict of {sorted(labels)}. "
            "Pass one of its values, or use MultiHead for all of them."
        )


def fit_labels(
    head: str, labels: jax.Array, logits: jax.Array, width: int
) -> jax.Array:
    """Return labels [..., width] for logits [..., K]; raise for another shape."""
    given = labels.shape
    if labels.ndim == logits.ndim - 1:
        labels = labels[..., None]
    if labels.shape != (*logits.shape[:-1], width):
        leading = ", ".join(str(n) for n in logits.shape[:-1])
        either = f"[{leading}] or " if width == 1 else ""
        raise LabelError(
            f"{head}: labels must have shape {either}[{leading}, {width}] for logits "
            f"of shape {list(logits.shape)}, got {list(given)}."
            f"{_shape_advice(head, given)}"
        )
    return labels


def check_dense(head: str, given: staging.Raw) -> None:
    """Raise `LabelError` for sparse labels."""
    if isinstance(given, Sparse):
        raise LabelError(
            f"{head}: labels are sparse, but this head needs one for every example. "
            "Parse them as a FixedLenFeature; only MultiLabelHead takes sparse labels."
        )


def check_numbers(head: str, given: staging.Raw) -> NDArray[Any]:
    """Return the labels as an array of numbers; raise for text."""
    if isinstance(given, Strings):
        raise LabelError(
            f"{head}: labels are text, the first {_word(given, 0)!r}. Give the head "
            "label_vocabulary=[...], or turn them into numbers in the input_fn."
        )
    numbers = np.asarray(given)
    if not is_real(numbers.dtype):
        raise LabelError(
            f"{head}: labels must be real numbers, got dtype {numbers.dtype}. Convert "
            "them in the input_fn."
        )
    return numbers


def check_integers(head: str, numbers: _Numbers) -> _Numbers:
    """Return the labels; raise `LabelError` unless their dtype is an integer."""
    if numbers.dtype.kind not in "iu":
        raise LabelError(
            f"{head}: class ids must be integers, got dtype {numbers.dtype}. Cast them "
            "in the input_fn; for numbers to predict, use RegressionHead."
        )
    return numbers


def lookup(
    head: str, words: transforms.WordList, given: staging.Raw
) -> NDArray[np.int64]:
    """Return the ids of text labels; -1 for words not in the vocabulary."""
    if not isinstance(given, Strings):
        raise LabelError(
            f"{head}: with a label_vocabulary, labels must be text, got dtype "
            f"{np.asarray(given).dtype}. Leave label_vocabulary out for numbers."
        )
    ids = words.ids_of(given, oov_buckets=0, default=-1, drop=False)
    return ids.reshape(given.shape)


def check_all(
    head: str,
    inside: NDArray[np.bool_],
    given: staging.Raw,
    expected: str,
    rows: NDArray[Any] | None = None,
) -> None:
    """Raise `LabelError` unless all are inside, with the first five that are not.

    `rows` holds the row of each value of flat `given`, if that is not its index.
    """
    if inside.all():
        return
    outside = np.flatnonzero(~inside)
    per_row = max(inside.size // max(len(inside), 1), 1)
    shown = []
    for i in outside[:_SHOWN].tolist():
        value = _word(given, i) if isinstance(given, Strings) else given.reshape(-1)[i]
        row = i // per_row if rows is None else rows[i]
        text = repr(value) if isinstance(value, str) else str(value)
        shown.append(f"{text} in row {row}")
    more = f" and {len(outside) - _SHOWN} more" if len(outside) > _SHOWN else ""
    raise LabelError(
        f"{head}: labels must be {expected}; found {', '.join(shown)}{more} "
        f"({inside.size} labels in the batch)."
    )


_SHOWN = 5


def _word(strings: Strings, index: int) -> str:
    if not strings.size:
        return ""
    return str(strings.reshape((-1,))[index].decode(errors="replace"))


def _shorten_words(words: tuple[str, ...]) -> str:
    shown = ", ".join(map(repr, words[:_SHOWN]))
    more = f", … ({len(words)} words)" if len(words) > _SHOWN else ""
    return f"[{shown}{more}]"


def _shape_advice(head: str, shape: tuple[int, ...]) -> str:
    if "ClassHead" in head and shape and shape[-1] > 1:
        return (
            " For one-hot labels pass jnp.argmax(labels, -1); for several classes at "
            "once use MultiLabelHead."
        )
    return ""


def words_of(n_classes: int, vocabulary: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the name of every class: its word, or its id in decimal digits.

    >>> words_of(3, None), words_of(2, ("no", "yes"))
    (('0', '1', '2'), ('no', 'yes'))
    """
    if vocabulary is None:
        return tuple(map(str, range(n_classes)))
    # Only a BinaryClassHead with one word lacks a word; TensorFlow names it UNK.
    return (*vocabulary, *("UNK",) * (n_classes - len(vocabulary)))


def all_class_ids(logits: jax.Array, n_classes: int) -> jax.Array:
    """Return all class ids for every row, [B, n_classes]; logits may have more axes."""
    ids = jnp.arange(n_classes, dtype=jnp.int32)
    return jnp.broadcast_to(ids, (logits.shape[0], n_classes))


def all_classes(logits: jax.Array, words: tuple[str, ...]) -> Words:
    """Return all class names for every row, [B, len(words)]."""
    return Words(all_class_ids(logits, len(words)), words)
