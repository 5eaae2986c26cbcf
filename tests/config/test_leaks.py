"""Columns that give the label away, and good features that do not."""

import random

import pyarrow as pa

from estimax.config.leaks import find_leaks

ROWS = 1_000
CHANCE = random.Random(3)
LABELS = [CHANCE.randrange(2) for _ in range(ROWS)]
NUMBERS = [CHANCE.gauss(50, 10) for _ in range(ROWS)]


def leaks(label, *, is_regression=False, numeric=("n",), rows=ROWS, **columns):
    given = {"label": label, **columns}
    sample = pa.table({c: [str(v) for v in vs[:rows]] for c, vs in given.items()})
    return find_leaks(
        sample, "label", list(columns), numeric=numeric, is_regression=is_regression
    )


def flipped(share):
    """The label, with a share of the rows wrong."""
    chance = random.Random(9)
    return [y ^ int(chance.random() < share) for y in LABELS]


def test_a_copy_of_the_label_in_other_words_is_a_leak():
    words = [("no", "yes")[y] for y in LABELS]
    found = leaks(LABELS, copy=words)
    assert found["copy"].startswith("alone predicts the label: right in 100.0%")


def test_a_column_that_is_right_in_nine_of_ten_rows_stays():
    assert leaks(LABELS, good=flipped(0.1)) == {}
    assert leaks(LABELS, better=flipped(0.02)) == {}


def test_a_threshold_that_gives_the_label_is_a_leak_and_a_blurred_one_stays():
    exact = [y + 0.9 * CHANCE.random() for y in LABELS]
    blurred = [y + CHANCE.gauss(0, 0.4) for y in LABELS]
    assert leaks(LABELS, n=exact).keys() == {"n"}
    assert leaks(LABELS, n=blurred) == {}


def test_a_value_that_never_repeats_predicts_nothing():
    assert leaks(LABELS, name=[f"person {i}" for i in range(ROWS)]) == {}


def test_a_rare_class_is_a_leak_only_if_its_rows_are_found():
    rare = [int(i % 40 == 0) for i in range(ROWS)]
    # Right in 98.75% of the rows, because a constant is right in 97.5% of them.
    half = [int(i % 80 == 0) for i in range(ROWS)]
    assert leaks(rare, copy=rare, half=half).keys() == {"copy"}


def test_a_number_that_is_computed_from_the_label_is_a_leak():
    euros = [0.9 * y + 3 for y in NUMBERS]
    good = [y + CHANCE.gauss(0, 3) for y in NUMBERS]
    options = {"is_regression": True, "numeric": ("label", "euros", "good")}
    found = leaks(NUMBERS, euros=euros, good=good, **options)
    assert found.keys() == {"euros"}
    assert "of its variance" in found["euros"]


def test_one_hot_columns_of_the_label_are_leaks_together():
    kinds = [CHANCE.randrange(4) for _ in range(ROWS)]
    marks = {f"is_{k}": [int(y == k) for y in kinds] for k in range(4)}
    assert leaks(kinds, **marks).keys() == marks.keys()
    one = {"milk": marks["is_0"]}
    assert leaks(kinds, **one) == {}, "a mark of one class may be known in time"
    named = {"label_0": marks["is_0"]}
    assert "is set exactly where the label is '0'" in leaks(kinds, **named)["label_0"]


def test_missing_values_are_a_value_of_their_own():
    gone = ["" if y else "7" for y in LABELS]
    assert leaks(LABELS, n=gone).keys() == {"n"}


def test_a_table_of_few_rows_is_not_judged():
    assert leaks(LABELS, rows=99, copy=LABELS) == {}
