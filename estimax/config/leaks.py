"""Find columns that give the label away: copies of it, and values derived from it.

    find_leaks(sample, "late", columns, numeric={"delay"}, is_regression=False)
    # {"was_late": "alone predicts the label: right in 100.0% of held-out rows, …"}

Each column alone predicts the label: by the most frequent label (or the mean) of each
value, and a number also by a tree with one split. The predictor is fitted on one half
of the rows and judged on the other half. A column is a leak if it removes 99% of the
errors of a constant answer, or explains 99.9% of the variance of a number. Informative
columns stay: a threshold that is right in 90% of the rows, or in 98%, is no leak.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from estimax.config.profile import NULL_WORDS

LEAST_ROWS = 100  # fewer rows with a label cannot tell a leak from a good feature
_LEAST_OTHERS = 10  # held-out rows that a constant answer gets wrong
_LEAK_OF_CLASSES = 0.99  # the share of a constant's errors that are removed
_LEAK_OF_NUMBERS = 0.999  # the share of the variance that is explained


@dataclass(frozen=True)
class _Column:
    """The values of a column: ids of distinct texts, and the numbers they are."""

    codes: Any  # int [rows]
    count: int  # of distinct texts
    numbers: Any | None  # float [count], NaN for a missing value


def find_leaks(
    sample: Any,  # a pyarrow table of text
    label: str,
    columns: Sequence[str],
    *,
    numeric: Collection[str],
    is_regression: bool,
) -> dict[str, str]:
    """Return the columns that alone predict the label, each with the reason.

    Args:
      sample: Rows of the table, all values as text.
      label: The column to predict.
      columns: The columns to judge.
      numeric: The columns that hold numbers.
      is_regression: Whether the label is a number, and not a class.

    Returns:
      A sentence without its subject for each leak; empty if the sample has fewer than
      100 rows with a label.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.utf8_trim_whitespace(sample[label])
    rows = sample.filter(pc.invert(pc.is_in(texts, pa.array(NULL_WORDS))))
    if rows.num_rows < LEAST_ROWS:
        return {}
    half = np.random.default_rng(0).permutation(rows.num_rows) % 2 == 0
    of_label = _encode(rows[label], is_number=is_regression)
    found = {}
    for name in columns:
        column = _encode(rows[name], is_number=name in numeric)
        if is_regression:
            reason = _leak_of_numbers(column, of_label, half)
        else:
            reason = _leak_of_classes(column, of_label, half)
        if reason is not None:
            found[name] = reason
    if not is_regression and of_label.count > 2:
        others = [name for name in columns if name not in found]
        found |= _one_hot_columns(rows, label, others)
    return found


def _encode(texts: Any, *, is_number: bool) -> _Column:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    coded = pc.utf8_trim_whitespace(texts).combine_chunks().dictionary_encode()
    words = coded.dictionary
    numbers = None
    if is_number:
        known = pc.if_else(pc.is_in(words, pa.array(NULL_WORDS)), None, words)
        parsed = pc.cast(known, pa.float64()).fill_null(np.nan)
        numbers = np.where(np.isfinite(parsed), parsed, np.nan)
    return _Column(np.asarray(coded.indices), len(words), numbers)


def _leak_of_classes(column: _Column, label: _Column, half: Any) -> str | None:
    import numpy as np

    labels = label.codes
    constant = np.bincount(labels[half], minlength=label.count).argmax()
    held = labels[~half]
    wrong = int((held != constant).sum())
    if wrong < _LEAST_OTHERS:
        return None
    guesses = [_by_value(column, labels, label.count, half)]
    if column.numbers is not None:
        guesses.append(_by_split(column, labels, label.count, half))
    errors = min(int((guess != held).sum()) for guess in guesses)
    if errors > (1 - _LEAK_OF_CLASSES) * wrong:
        return None
    right, of_constant = 1 - errors / len(held), 1 - wrong / len(held)
    return (
        f"alone predicts the label: right in {right:.1%} of held-out rows, where a "
        f"constant answer is right in {of_constant:.1%}"
    )


def _by_value(column: _Column, labels: Any, classes: int, half: Any) -> Any:
    """Return the most frequent class of each held-out row's value.

    A number that was not seen has the class of the nearest one that was.
    """
    import numpy as np

    at = column.codes[half] * classes + labels[half]
    counts = np.bincount(at, minlength=column.count * classes)
    counts = counts.reshape(column.count, classes)
    class_of = counts.argmax(axis=1)
    seen = counts.any(axis=1)
    class_of[~seen] = counts.sum(axis=0).argmax()
    if column.numbers is not None:
        unseen = np.flatnonzero(~seen & np.isfinite(column.numbers))
        known = np.flatnonzero(seen & np.isfinite(column.numbers))
        if known.size:
            known = known[np.argsort(column.numbers[known])]
            values = column.numbers[known]
            middles = (values[1:] + values[:-1]) / 2
            nearest = np.searchsorted(middles, column.numbers[unseen])
            class_of[unseen] = class_of[known[nearest]]
    return class_of[column.codes[~half]]


def _by_split(column: _Column, labels: Any, classes: int, half: Any) -> Any:
    """Return what a tree with one split predicts for the held-out rows."""
    import numpy as np

    assert column.numbers is not None, "only numbers are split"
    values = column.numbers[column.codes]
    fitted, fitted_labels = values[half], labels[half]
    constant = np.bincount(fitted_labels, minlength=classes).argmax()
    is_known = np.isfinite(fitted)
    fitted, fitted_labels = fitted[is_known], fitted_labels[is_known]
    order = np.argsort(fitted, kind="stable")
    fitted, fitted_labels = fitted[order], fitted_labels[order]
    held = values[~half]
    places = np.flatnonzero(np.diff(fitted) > 0)  # the last row of the left side
    if not places.size:
        return np.full(len(held), constant)
    left = (fitted_labels[:, None] == np.arange(classes)).cumsum(axis=0)
    right = left[-1] - left
    best = places[(left.max(axis=1) + right.max(axis=1))[places].argmax()]
    edge = (fitted[best] + fitted[best + 1]) / 2
    sides = np.where(held <= edge, left[best].argmax(), right[best].argmax())
    return np.where(np.isfinite(held), sides, constant)


def _leak_of_numbers(column: _Column, label: _Column, half: Any) -> str | None:
    import numpy as np

    assert label.numbers is not None, "the label of a regression is a number"
    targets = label.numbers[label.codes]
    is_known = np.isfinite(targets)
    fitted, held = half & is_known, ~half & is_known
    if not fitted.any() or not held.any():
        return None
    codes = column.codes[fitted]
    counts = np.bincount(codes, minlength=column.count)
    sums = np.bincount(codes, targets[fitted], minlength=column.count)
    seen = counts > 0
    means = np.where(seen, sums / np.maximum(counts, 1), targets[fitted].mean())
    if column.numbers is not None:
        known = np.flatnonzero(seen & np.isfinite(column.numbers))
        unseen = np.flatnonzero(~seen & np.isfinite(column.numbers))
        if known.size:
            known = known[np.argsort(column.numbers[known])]
            means[unseen] = np.interp(
                column.numbers[unseen], column.numbers[known], means[known]
            )
    variance = targets[held].var()
    if not variance > 0:
        return None
    error = np.square(targets[held] - means[column.codes[held]]).mean()
    explained = 1 - error / variance
    if explained < _LEAK_OF_NUMBERS:
        return None
    return f"alone predicts the label: it explains {explained:.2%} of its variance"


def _one_hot_columns(rows: Any, label: str, columns: Sequence[str]) -> dict[str, str]:
    """Return columns of two values that each mark one class of the label.

    A column is a leak if it is named after the label, or if all such columns together
    mark all classes, or all but one.
    """
    import numpy as np

    labels = _encode(rows[label], is_number=False)
    sizes = np.bincount(labels.codes, minlength=labels.count)
    words = rows[label].to_pylist()
    marked: dict[str, int] = {}
    for name in columns:
        column = _encode(rows[name], is_number=False)
        if column.count != 2:
            continue
        for value in range(2):
            here = column.codes == value
            kind = int(np.bincount(labels.codes[here]).argmax())
            differ = int((here != (labels.codes == kind)).sum())
            if sizes[kind] >= _LEAST_OTHERS and differ <= 0.01 * sizes[kind]:
                marked[name] = kind
    is_whole = len(set(marked.values())) >= labels.count - 1
    return {
        name: f"is set exactly where the label is "
        f"{words[int((labels.codes == kind).argmax())].strip()!r}"
        for name, kind in marked.items()
        if is_whole or label.casefold() in name.casefold()
    }
