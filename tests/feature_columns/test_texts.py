"""Numbers and dates that are written as text, and words with blanks around them."""

import math
import random

import numpy as np
import pytest

from estimax import feature_columns as fc
from estimax.core.errors import FeatureError
from estimax.core.strings import Strings
from estimax.feature_columns.transforms import (
    DateParts,
    HashBucket,
    TextNumbers,
    Vocabulary,
    WordList,
    from_json,
    to_json,
)
from estimax.feature_columns.transforms.texts import number_of_text


@pytest.mark.parametrize(
    ("text", "style", "number"),
    [
        ("$1,302.10", "point", 1302.1),
        ("-$5", "point", -5),
        ("65%", "point", 65),
        ("1e-3", "point", 0.001),
        (".5", "point", 0.5),
        ("12,34", "point", None),  # no group of three: perhaps a comma for the point
        ("1.302,10", "comma", 1302.1),
        ("3,25 €", "comma", 3.25),
        ("1\u00a0302,5", "comma", 1302.5),
        ("3.25", "comma", None),
        ("12 34", "point", None),
        ("abc", "point", None),
        ("%", "point", None),
        ("-", "point", None),
    ],
)
def test_a_text_means_a_number_or_none(text, style, number):
    found = number_of_text(text, style)
    assert found == number if number is None else found == pytest.approx(number)


def test_an_empty_text_is_a_missing_number():
    assert math.isnan(number_of_text(" ", "point"))


def test_a_text_without_a_number_is_an_error_that_names_it():
    with pytest.raises(FeatureError, match=r"'price': expected a number.*'cheap'"):
        TextNumbers("price")({"price": Strings.of(["1", "cheap"])})


def test_numbers_of_a_client_are_taken_as_they_are():
    assert TextNumbers("n")({"n": np.array([1.5, 2.0])}).tolist() == [[1.5], [2.0]]


def parts_of(text, *parts, **options):
    return DateParts("d", parts, **options)({"d": Strings.of([text])})[0].tolist()


def test_parts_are_scaled_for_networks():
    found = parts_of("2024-07-01 12:30", "year", "month", "weekday", "day", "hour",
                     since="2014-01-01")  # fmt: skip
    np.testing.assert_allclose(
        found, [1.0, 2 * 6 / 11 - 1, -1.0, -1.0, 2 * 12.5 / 23 - 1], rtol=1e-6
    )


def test_cyclic_parts_bring_december_near_january():
    january, december = (
        np.array(parts_of(f"2024-{month}-01", "month", cyclic=True))
        for month in ("01", "12")
    )
    june = np.array(parts_of("2024-06-01", "month", cyclic=True))
    near, far = np.linalg.norm(january - december), np.linalg.norm(january - june)
    assert near < 0.6 < far


def test_a_missing_date_is_zeros_and_a_flag():
    given = ("month", "missing", "day")
    assert parts_of(" ", *given, cyclic=True) == [0, 0, 1, 0, 0]
    assert parts_of("2024-01-01", "missing") == [0]


def test_a_zone_is_ignored_and_blanks_are_removed():
    plain = parts_of("2024-05-01 13:45", "hour", "days_since")
    for text in ("2024-05-01T13:45:00Z", " 2024-05-01T13:45+02:00", "2024/5/1 13:45"):
        assert parts_of(text, "hour", "days_since") == plain


def test_a_time_zone_moves_a_date_with_an_offset_to_its_clocks():
    berlin = {"time_zone": "Europe/Berlin"}
    winter = parts_of("2024-01-01T23:30Z", "day", "hour", **berlin)
    assert winter == parts_of("2024-01-02 00:30", "day", "hour")
    summer = parts_of("2024-07-01T22:30:00.5Z", "day", "hour", **berlin)
    assert summer == parts_of("2024-07-02 00:30", "day", "hour", **berlin)
    offset = parts_of("2024-07-01T22:30-0130", "day", "hour", **berlin)
    assert offset == parts_of("2024-07-02 02:00", "day", "hour")
    form = {"format": "%d.%m.%Y %H:%M %z", **berlin}
    assert parts_of("01.07.2024 22:30 +0000", "day", "hour", **form) == summer
    with pytest.raises(FeatureError, match="expected a date"):
        parts_of("0001-01-01T00:00+14:00", "day", **berlin)


def test_a_format_reads_other_dates():
    wanted = parts_of("2024-05-01", "days_since")
    assert parts_of("01.05.2024", "days_since", format="%d.%m.%Y") == wanted


@pytest.mark.parametrize("text", ["soon", "2024-13-01", "2023-02-29", "20240501"])
def test_a_text_that_is_no_date_is_an_error_that_names_it(text):
    with pytest.raises(FeatureError, match=rf"'d': expected a date.*{text}"):
        parts_of(text, "month")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"parts": ["moth"]}, "did you mean 'month'"),
        ({"parts": []}, "parts must be some of"),
        ({"parts": "month"}, "parts must be a list"),
        ({"parts": ["day", "day"]}, "listed twice"),
        ({"since": "May"}, "since must be a date"),
        ({"time_zone": "Berlin"}, "unknown time zone 'Berlin'"),
    ],
)
def test_mistakes_in_a_date_column_are_named(options, words):
    with pytest.raises(FeatureError, match=words):
        fc.date_column("d", **options)


@pytest.mark.parametrize(
    "transform",
    [
        TextNumbers("n", "comma"),
        DateParts("d", ("month", "missing"), cyclic=True, format="%Y"),
        DateParts("d", time_zone="Europe/Berlin"),
        HashBucket("s", 10, strip=True),
        Vocabulary("s", WordList.of(["a"]), strip=True),
    ],
)
def test_a_bundle_carries_them(tmp_path, transform):
    assert from_json(to_json(transform, tmp_path), tmp_path) == transform


def test_a_bundle_without_strip_is_as_before(tmp_path):
    assert "strip" not in to_json(HashBucket("s", 10), tmp_path)
    assert "time_zone" not in to_json(DateParts("d"), tmp_path)


def test_strip_removes_the_blanks_of_any_words():
    chance = random.Random(3)
    for _ in range(200):
        count = chance.randrange(6)
        words = ["".join(chance.choices(" \tab", k=chance.randrange(5)))
                 for _ in range(count)]  # fmt: skip
        some = Strings.of(["x ", *words, " y"])[1 : count + 1]
        assert some.strip().tolist() == [word.encode().strip() for word in words]


def test_a_stripped_word_has_the_id_of_the_plain_word():
    given = {"s": ["a", " a\t", "  "]}
    listed = fc.categorical_column_with_vocabulary_list("s", ["b", "a"], strip=True)
    assert listed.ids(given, "error").ids.tolist() == [[1], [1], [-1]]
    hashed = fc.categorical_column_with_hash_bucket("s", 99, strip=True)
    first, second, empty = hashed.ids(given, "error").ids.tolist()
    assert (first, empty) == (second, [-1])


def test_strip_is_for_text():
    with pytest.raises(FeatureError, match="strip is for text"):
        fc.categorical_column_with_hash_bucket("n", 9, "int64", strip=True)


def test_numbers_as_text_are_bucketized_and_encoded():
    price = fc.numeric_column("price", text="point")
    given = {"price": ["$15", "1,000"]}
    cut = fc.bucketized_column(price, [10, 100])
    assert fc.DenseFeatures([cut]).apply({}, given).tolist() == [[0, 1, 0], [0, 0, 1]]
    coded = fc.piecewise_linear_column(price, [10, 20])
    assert fc.DenseFeatures([coded]).apply({}, given).tolist() == [[0.5, 0], [1, 0]]


def test_a_missing_number_is_the_default_or_an_error():
    given = {"price": ["$15", ""]}
    filled = fc.numeric_column("price", text="point", default_value=7)
    assert fc.DenseFeatures([filled]).apply({}, given).tolist() == [[15], [7]]
    coded = fc.piecewise_linear_column(
        fc.numeric_column("price", text="point"), [0, 20]
    )
    assert fc.DenseFeatures([coded]).apply({}, given).tolist() == [[0.75, 0], [0, 1]]
    plain = fc.numeric_column("price", text="point")
    with pytest.raises(FeatureError, match="a number is missing"):
        fc.DenseFeatures([plain]).apply({}, given)
