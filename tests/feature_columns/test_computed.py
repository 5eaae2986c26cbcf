"""Columns of one number that the host computes: expressions and date differences."""

import math

import numpy as np
import pytest

from estimax import feature_columns as fc
from estimax.canned.trees.table import table_of
from estimax.core.errors import BundleError, FeatureError
from estimax.feature_columns.transforms import (
    Bucketize,
    DateDifference,
    Expression,
    from_json,
    to_json,
)
from estimax.transforms import Scaling

NAN = math.nan
ROW = {"a": 6.0, "b": 4.0, "zero": 0.0, "none": NAN, "x y": 2.5}


def value(text, **features):
    raw = {k: np.array([v]) for k, v in {**ROW, **features}.items()}
    return Expression(text)(raw).item()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + b * 2", 14),
        ("(a + b) * 2", 20),
        ("a - b - 1", 1),
        ("a / b / 2", 0.75),
        ("-a ** 2", -36),
        ("2 ** -1 * a", 3),
        ("2 ** 3 ** 2 + 0 * a", 512),
        ("-a % b", 2),
        ("-a // b", -2),
        ("+a", 6),
        ("1.5e1 + .5 + a", 21.5),
        ("`x y` * 2", 5),
        ("a > b", 1),
        ("a + 1 > b * 2", 0),
        ("1 < b < a", 1),
        ("7 > b > a", 0),
        ("not a > b", 0),
        ("not a == b and b == 4 or 0", 1),
        ("a == 6 or b == 0 and 0", 1),
        ("1 if a > b else 2", 1),
        ("1 if a < b else 2 if b < 0 else 3", 3),
        ("a + 1 if zero else b", 4),
        ("max(a, b, 5) - min(a, b, 5)", 2),
        ("clip(a, 0, 5)", 5),
        ("round(a / 7)", 1),
        ("round(a / 7, 2)", 0.86),
        ("where(a > 5, b, 0)", 4),
        ("log1p(a / b)", math.log1p(1.5)),
        ("log(a) + log2(b) + exp(1)", math.log(6) + 2 + math.e),
        ("log10(a * 100 / 6)", 2),
        ("sqrt(b) + abs(-a) + sign(-b)", 2 + 6 - 1),
        ("floor(a / b) + ceil(a / b) + expm1(0)", 3),
        ("sin(pi / 2) + cos(0) + tan(0) + tanh(0) + zero", 2),
    ],
)  # fmt: skip
def test_an_expression_has_the_value_that_python_would_give(text, expected):
    assert value(text) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a / zero", NAN),
        ("zero / zero", NAN),
        ("a % zero", NAN),
        ("log(zero)", NAN),
        ("log(-a)", NAN),
        ("sqrt(-a)", NAN),
        ("zero ** -1", NAN),
        ("exp(1000 + a)", NAN),
        ("1e39 * a", NAN),  # beyond float32
        ("none + 1", NAN),
        ("none ** 0", NAN),
        ("1 ** none", NAN),
        ("none == none", NAN),
        ("none > 1", NAN),
        ("not none", NAN),
        ("max(a, none)", NAN),
        ("nan if a > 0 else 1", NAN),
        ("1 if none else 2", NAN),
        ("1 if a > 0 else none", 1),
        ("where(a < 0, none, 2)", 2),
        ("isnan(none)", 1),
        ("isnan(a / zero)", 1),
        ("isnan(a)", 0),
        ("coalesce(none, a / zero, b)", 4),
        ("zero and none", 0),
        ("none and zero", 0),
        ("a and none", NAN),
        ("none or a", 1),
        ("none or zero", NAN),
        ("not isnan(none) and none > 3", 0),
    ],
)
def test_missing_numbers_stay_missing(text, expected):
    assert value(text) == pytest.approx(expected, nan_ok=True)


def test_infinite_input_is_missing_and_integers_are_exact():
    assert math.isnan(value("a + 1", a=math.inf))
    assert value("a - b", a=np.int64(2**40 + 1), b=np.int64(2**40)) == 1
    assert value("a + b", a=np.bool_(True), b=np.uint8(3)) == 4


def block(column, **features):
    return fc.DenseFeatures([column]).apply({}, features).tolist()


def test_a_missing_result_is_the_default_or_an_error_with_its_numbers():
    given = {"a": [6.0, 1.0], "b": [2.0, 0.0]}
    assert block(fc.expression_column("a / b", default_value=9), **given) == [[3], [9]]
    scaled = fc.expression_column("a / b", normalizer_fn=Scaling(fill=9.0, std=2.0))
    assert block(scaled, **given) == [[1.5], [4.5]]
    both = fc.expression_column("a / b", default_value=8, normalizer_fn=Scaling(mean=3))
    assert block(both, **given) == [[0], [5]]
    with pytest.raises(FeatureError, match=r"missing where a = 1.0, b = 0.0. Give"):
        block(fc.expression_column("a / b"), **given)


def test_buckets_and_codes_of_an_expression():
    ratio = fc.expression_column("a / b", name="ratio")
    given = {"a": [6.0, 1.0, 1.0], "b": [2.0, 1.0, 0.0]}
    codes = fc.piecewise_linear_column(ratio, [0, 2])
    assert codes.name == "ratio_piecewise_linear"
    assert block(codes, **given) == [[1, 0], [0.5, 0], [0, 1]]
    assert block(fc.periodic_column(ratio, [4]), **given)[2] == [0, 0]
    buckets = fc.bucketized_column(ratio, [2])
    # A missing number is in the last bucket, as that of a numeric column.
    assert block(buckets, **given) == [[0, 1], [1, 0], [0, 1]]
    filled = fc.bucketized_column(fc.expression_column("a / b", default_value=0), [2])
    assert block(filled, **given) == [[0, 1], [1, 0], [1, 0]]
    city = {"city": ["Oslo", "Oslo", "Oslo"]}
    cross = fc.crossed_column([filled, "city"], 1000)
    found = cross.ids({**given, **city}, "error").ids[:, 0].tolist()
    plain = fc.crossed_column(
        [fc.bucketized_column(fc.numeric_column("r"), [2]), "city"], 1000
    )
    wanted = plain.ids({"r": [3.0, 1.0, 0.0], **city}, "error").ids
    assert found == wanted[:, 0].tolist()


def test_trees_read_an_expression_with_its_missing_values():
    table = table_of([fc.expression_column("a / b", name="r", default_value=1)], "M")
    numbers, _ = table.read({"a": [6.0, 1.0], "b": [2.0, 0.0]})
    assert table.names == ("r",)
    np.testing.assert_array_equal(numbers, [[3], [NAN]])


def test_the_parse_spec_gives_way_to_that_of_other_columns():
    ratio = fc.expression_column("a / b")
    spec = fc.make_parse_example_spec([ratio, fc.numeric_column("a", dtype="int64")])
    assert (spec["a"].dtype, spec["a"].default_value) == ("int64", None)
    assert math.isnan(spec["b"].default_value)
    with pytest.raises(FeatureError, match="declared in two ways"):
        fc.make_parse_example_spec([fc.numeric_column("a", shape=2), ratio])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"a": [1.0], "c": [1.0]}, "needs feature 'b'"),
        ({"a": ["x"], "b": [1.0]}, "'a' must be dense numbers, found text"),
        ({"a": [[1.0, 2.0]], "b": [1.0]}, r"'a' must have one number in a row"),
        ({"a": [1.0, 2.0], "b": [1.0]}, "differ in rows"),
    ],
)
def test_features_that_do_not_fit_are_named(given, words):
    with pytest.raises(FeatureError, match=words):
        block(fc.expression_column("a / b"), **given)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"expression": 3}, "must be a str"),
        ({"expression": "a /"}, "found the end at position 4"),
        ({"expression": "a", "default_value": "x"}, "default_value must be a finite"),
        ({"expression": "a", "default_value": NAN}, "default_value must be a finite"),
        ({"expression": "a", "normalizer_fn": abs}, "must be an ex.transforms.Scaling"),
        ({"expression": "a", "name": ""}, "name must be a text"),
    ],
)
def test_mistakes_in_an_expression_column_are_named(options, words):
    with pytest.raises(FeatureError, match=words):
        fc.expression_column(**options)


def between(start, end, **options):
    column = fc.date_difference_column("start", "end", default_value=-99, **options)
    return block(column, start=[start], end=[end])[0][0]


@pytest.mark.parametrize(
    ("start", "end", "options", "expected"),
    [
        ("2024-02-28", "2024-03-01", {}, 2),
        ("2024-03-01", "2024-02-28", {}, -2),
        ("2024-01-01 12:00", "2024-01-02", {}, 0.5),
        ("2024-01-01", "2024-01-02", {"unit": "hours"}, 24),
        ("2024-01-01", "2024-01-02", {"unit": "minutes"}, 1440),
        ("2024-01-01", "2024-01-02", {"unit": "seconds"}, 86400),
        ("2024-01-01", "2024-01-15", {"unit": "weeks"}, 2),
        ("2000-01-01", "2004-01-01", {"unit": "years"}, 4),
        ("01.02.2024", "03.02.2024", {"format": "%d.%m.%Y"}, 2),
        ("", "2024-01-01", {}, -99),
        ("2024-01-01", " ", {}, -99),
        # Both have an offset: the time that passed. One has none: as it is written.
        ("2024-01-01T00:00Z", "2024-01-01T03:00+02:00", {"unit": "hours"}, 1),
        ("2024-01-01T00:00", "2024-01-01T03:00+02:00", {"unit": "hours"}, 3),
        # The clocks of a zone: the day on which summer time begins has 23 hours.
        ("2024-03-31", "2024-04-01", {"time_zone": "Europe/Berlin"}, 1),
        ("2024-03-30T23:00Z", "2024-04-01", {"time_zone": "Europe/Berlin"}, 1),
        ("2024-03-30T23:00Z", "2024-03-31T22:00Z", {"time_zone": "Europe/Berlin"}, 1),
    ],
)
def test_the_time_between_two_dates(start, end, options, expected):
    assert between(start, end, **options) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        ("soon", "2024-01-01", "feature 'start': expected a date such as 2024-05-01"),
        ("2024-01-01", "2024-13-01", "feature 'end': expected a date.*2024-13-01"),
        ("2024-01-01", "2024-01-01T00:00+25:00", r"feature 'end'.*\+25:00"),
    ],
)
def test_a_date_that_cannot_be_read_is_named(start, end, words):
    with pytest.raises(FeatureError, match=words):
        between(start, end)


def test_a_missing_date_without_a_default_is_named():
    column = fc.date_difference_column("start", "end")
    assert column.name == "end_minus_start"
    with pytest.raises(FeatureError, match="where start = 2024-01-01, end = "):
        block(column, start=["2024-01-01"], end=[""])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"unit": "day"}, "unknown unit 'day'; did you mean 'days'?"),
        ({"time_zone": "Europe/Berln"}, "did you mean 'Europe/Berlin'?"),
        ({"time_zone": "../etc"}, "unknown time zone '../etc'; write one such as"),
    ],
)
def test_mistakes_in_a_date_difference_are_named(options, words):
    with pytest.raises(FeatureError) as error:
        fc.date_difference_column("a", "b", **options)
    assert words in str(error.value)


def test_a_bundle_carries_a_computed_number_and_its_buckets(tmp_path):
    inner = Expression("a / b", required=True)
    source = Bucketize("r", (1.0, 2.0), normalizer=Scaling(fill=0.0), numbers=inner)
    plain = DateDifference("a", "b", "years")
    in_zone = DateDifference("a", "b", time_zone="Europe/Berlin")
    for one in (inner, source, plain, in_zone):
        assert from_json(to_json(one, tmp_path), tmp_path) == one
    assert "numbers" not in to_json(Bucketize("r", (1.0,)), tmp_path)
    with pytest.raises((BundleError, FeatureError), match="position"):
        from_json({"type": "expression", "expression": "a +"}, tmp_path)
    with pytest.raises(BundleError, match="expression"):
        from_json({"type": "expression", "expression": 3}, tmp_path)
