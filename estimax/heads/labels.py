"""Labels made ready for a head: looked up, checked and shaped.

    rule = ClassLabels("MultiClassHead 'color'", 3, ("red", "green", "blue"))
    ids = labels_for(rule, labels, logits, width=1)      # int32 [B, 1]

A rule is the host half of a head: it turns text into ids and refuses values out of
range, naming the rows. In a traced `model_fn` it runs in the input thread, on every
batch, because neither words nor values are known inside `jit`. Labels that the model
computed on the device have only their dtype and shape checked.
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

from estimax import staging, transforms
from estimax.core.errors import LabelError
from estimax.core.numbers import Words, cast, is_real
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings

KEY = "labels"  # under which a rule finds the raw labels

_Numbers = TypeVar("_Numbers", NDArray[Any], jax.Array)


class LabelRule(Protocol):
    """A `staging.HostTransform` of labels, in two steps that sequences use apart."""

    @property
    def head(self) -> str:
        """What messages call the head."""

    @property
    def name(self) -> str:
        """What to call the result."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The raw values it reads: the labels."""

    def convert(self, given: staging.Raw) -> NDArray[Any]:
        """Labels as numbers, before their range is checked."""

    def check(
        self,
        numbers: NDArray[Any],
        given: staging.Raw,
        rows: NDArray[Any] | None = None,
    ) -> None:
        """Raise for numbers out of range, naming the rows of the first.

        `rows` has the row of each value, where that is not its place on axis 0.
        """

    @property
    def dtype(self) -> type[np.generic]:
        """What labels are on the device."""

    def on_device(self, labels: jax.Array) -> jax.Array:
        """The same for labels that only the device knows: their dtype, no values."""

    def __call__(self, raw: Mapping[str, staging.Raw]) -> NDArray[Any]:
        """Convert, then check."""


@dataclass(frozen=True)
class NumberLabels:
    """Numbers within [low, high], or words of a vocabulary, as float32."""

    head: str
    low: float | None = None
    high: float | None = None
    vocabulary: tuple[str, ...] | None = None
    name: str = KEY
    keys: tuple[str, ...] = (KEY,)
    dtype: type[np.generic] = np.float32

    @cached_property
    def _words(self) -> transforms.WordList:
        return transforms.WordList.of(self.vocabulary or ())

    def convert(self, given: staging.Raw) -> NDArray[Any]:
        """Look words up, or take numbers as they are."""
        check_dense(self.head, given)
        if self.vocabulary is not None:
            return lookup(self.head, self._words, given)
        return check_numbers(self.head, given)

    def check(
        self,
        numbers: NDArray[Any],
        given: staging.Raw,
        rows: NDArray[Any] | None = None,
    ) -> None:
        """Refuse what is out of range; NaN is."""
        if self.low is not None and self.high is not None:
            inside = (numbers >= self.low) & (numbers <= self.high)
            expected = f"within [{self.low:g}, {self.high:g}]"
            if self.vocabulary is not None:
                expected = f"one of {_shortened(self.vocabulary[: int(self.high) + 1])}"
            check_all(self.head, inside, given, expected, rows)

    def on_device(self, labels: jax.Array) -> jax.Array:
        """Cast to float32."""
        return _not_words(self, labels).astype(jnp.float32)

    def __call__(self, raw: Mapping[str, staging.Raw]) -> NDArray[Any]:
        """Convert, then check."""
        return _checked(self, raw[KEY])


@dataclass(frozen=True)
class ClassLabels:
    """Class ids in [0, n_classes), or words of a vocabulary, as int32."""

    head: str
    n_classes: int
    vocabulary: tuple[str, ...] | None = None
    name: str = KEY
    keys: tuple[str, ...] = (KEY,)
    dtype: type[np.generic] = np.int32

    @cached_property
    def _words(self) -> transforms.WordList:
        return transforms.WordList.of(self.vocabulary or ())

    def convert(self, given: staging.Raw) -> NDArray[Any]:
        """Look words up, or take integers as they are."""
        check_dense(self.head, given)
        if self.vocabulary is not None:
            return lookup(self.head, self._words, given)
        return check_integers(self.head, check_numbers(self.head, given))

    def check(
        self,
        numbers: NDArray[Any],
        given: staging.Raw,
        rows: NDArray[Any] | None = None,
    ) -> None:
        """Refuse ids out of range."""
        inside = (numbers >= 0) & (numbers < self.n_classes)
        check_all(self.head, inside, given, self._expected, rows)

    def on_device(self, labels: jax.Array) -> jax.Array:
        """Cast to int32."""
        return check_integers(self.head, _not_words(self, labels)).astype(jnp.int32)

    def __call__(self, raw: Mapping[str, staging.Raw]) -> NDArray[Any]:
        """Convert, then check."""
        return _checked(self, raw[KEY])

    @property
    def _expected(self) -> str:
        if self.vocabulary is not None:
            return f"one of {_shortened(self.vocabulary)}"
        return f"class ids from 0 to {self.n_classes - 1}"


@dataclass(frozen=True)
class IndicatorLabels:
    """Several classes an example, as float32 [..., n_classes] of 0 and 1.

    Given as such (fractions are accepted), or sparse: ids, or words of a vocabulary.
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
        """Spread sparse classes out; take indicators as they are."""
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
        """Refuse indicators outside of [0, 1]."""
        if not isinstance(given, Sparse):
            inside = (numbers >= 0) & (numbers <= 1)
            check_all(self.head, inside, given, "indicators within [0, 1]", rows)

    def on_device(self, labels: jax.Array) -> jax.Array:
        """Cast to float32."""
        return labels.astype(jnp.float32)

    def __call__(self, raw: Mapping[str, staging.Raw]) -> NDArray[Any]:
        """Convert, then check."""
        return _checked(self, raw[KEY])

    def _spread(self, given: Sparse) -> NDArray[np.float32]:
        rows = given.indices[:, :-1]
        numbers = self._classes.convert(given.values)
        inside = (numbers >= 0) & (numbers < self.n_classes)
        check_all(self.head, inside, given.values, self._classes._expected, rows[:, 0])
        spread = np.zeros((*given.dense_shape[:-1], self.n_classes), np.float32)
        spread[(*rows.T, numbers)] = 1.0
        return spread


def _checked(rule: LabelRule, given: staging.Raw) -> NDArray[Any]:
    numbers = rule.convert(given)
    rule.check(numbers, given)
    return cast(numbers, rule.dtype)


def labels_for(
    rule: LabelRule,
    labels: Any,  # an array, text, sparse, a tracer or a placeholder for one
    logits: jax.Array,
    width: int,
) -> jax.Array:
    """Labels by the rule, with the leading axes of the logits and a last one of width.

    A missing last axis of size 1 is added; nothing is ever broadcast.
    """
    check_given(rule.head, labels)
    if staging.can_stage(labels):
        ready = staging.stage(rule, {KEY: labels})
    else:
        ready = rule.on_device(labels)
    return fit_labels(rule.head, ready, logits, width)


def check_given(head: str, labels: Any) -> None:
    """Raise if there are no labels, or several by name."""
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
    """Labels of shape [D0..DN, width] for logits [D0..DN, K]; raises for others."""
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
    """Raise for sparse labels."""
    if isinstance(given, Sparse):
        raise LabelError(
            f"{head}: labels are sparse, but every example has its label here. Parse "
            "them as a FixedLenFeature; only MultiLabelHead takes sparse labels."
        )


def check_numbers(head: str, given: staging.Raw) -> NDArray[Any]:
    """The labels as an array of numbers; raises for text."""
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
    """The labels, if their dtype is an integer one."""
    if numbers.dtype.kind not in "iu":
        raise LabelError(
            f"{head}: class ids must be integers, got dtype {numbers.dtype}. Cast them "
            "in the input_fn; for numbers to predict, use RegressionHead."
        )
    return numbers


def lookup(
    head: str, words: transforms.WordList, given: staging.Raw
) -> NDArray[np.int64]:
    """The ids of text labels; -1 for words not in the vocabulary."""
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
    """Raise unless every value is inside, naming the first that are not.

    `rows` holds the row of each value of flat `given`, where that is not its index.
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


def _shortened(words: tuple[str, ...]) -> str:
    shown = ", ".join(map(repr, words[:_SHOWN]))
    more = f", … ({len(words)} words)" if len(words) > _SHOWN else ""
    return f"[{shown}{more}]"


def _not_words(rule: NumberLabels | ClassLabels, labels: jax.Array) -> jax.Array:
    if rule.vocabulary is not None:
        raise LabelError(
            f"{rule.head}: with a label_vocabulary, labels must be text, got dtype "
            f"{labels.dtype}, computed by the model. Leave label_vocabulary out."
        )
    return labels


def _shape_advice(head: str, shape: tuple[int, ...]) -> str:
    if "ClassHead" in head and shape and shape[-1] > 1:
        return (
            " For one-hot labels pass jnp.argmax(labels, -1); for several classes at "
            "once use MultiLabelHead."
        )
    return ""


def words_of(n_classes: int, vocabulary: tuple[str, ...] | None) -> tuple[str, ...]:
    """The name of every class: its word, or its id in decimal digits.

    >>> words_of(3, None), words_of(2, ("no", "yes"))
    (('0', '1', '2'), ('no', 'yes'))
    """
    if vocabulary is None:
        return tuple(map(str, range(n_classes)))
    # A word is missing only in a BinaryClassHead of one word; TensorFlow says UNK.
    return (*vocabulary, *("UNK",) * (n_classes - len(vocabulary)))


def all_class_ids(logits: jax.Array, n_classes: int) -> jax.Array:
    """Every class id in every row, [D0, n_classes]; axes between are left out."""
    ids = jnp.arange(n_classes, dtype=jnp.int32)
    return jnp.broadcast_to(ids, (logits.shape[0], n_classes))


def all_classes(logits: jax.Array, words: tuple[str, ...]) -> Words:
    """Every class name in every row, [D0, len(words)]."""
    return Words(all_class_ids(logits, len(words)), words)
