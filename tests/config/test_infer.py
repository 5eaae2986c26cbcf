"""Features, task and model chosen for a table."""

import dataclasses
import datetime
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from estimax.config.infer import TimeOrder, guess_label, infer
from estimax.config.infer_features import features_of
from estimax.config.profile import profile
from estimax.core.errors import ConfigError, InputError, LabelError


def table_of(folder, columns):
    """A table of 200 rows; a column is a function of the row's number."""
    lines = [",".join(columns)]
    for row in range(200):
        lines.append(",".join(str(make(row)) for make in columns.values()))
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    return profile(str(folder / "t.csv"))


CHANCE = random.Random(1)
NUMBER = CHANCE.gauss


def coin(row):
    """A label that no column knows."""
    return random.Random(row).randrange(2)


def inferred(folder, **columns):
    given = {"x": lambda row: round(NUMBER(0, 1), 3), **columns}
    return infer(table_of(folder, given), "y")


@pytest.mark.parametrize(
    ("label", "head", "vocabulary"),
    [
        (lambda row: row % 2, {"type": "binary"}, None),
        (lambda row: "ny"[row % 2], {"type": "binary"}, ("n", "y")),
        (lambda row: 1 + row % 2, {"type": "binary"}, ("1", "2")),
        (lambda row: row % 3, {"type": "multi_class", "classes": 3}, None),
        (
            lambda row: 9 + row % 3,
            {"type": "multi_class", "classes": 3},
            ("9", "10", "11"),
        ),
        (lambda row: row * 7 % 150, {"type": "regression"}, None),
        (lambda row: row / 3, {"type": "regression"}, None),
    ],
)
def test_the_task_follows_from_the_label(tmp_path, label, head, vocabulary):
    task = inferred(tmp_path, y=label).task
    assert (task.head, task.vocabulary) == (head, vocabulary)


def test_features_follow_from_the_columns(tmp_path):
    found = inferred(
        tmp_path,
        hour=lambda row: row % 10,
        city=lambda row: f"c{row % 30}",
        gap=lambda row: "" if row % 10 == 0 else round(NUMBER(5, 2), 2),
        money=lambda row: round(2.0 ** (row / 9)),
        y=coin,
    )
    sections = {f.name: f.section for f in found.features}
    assert sections["x"] == {"type": "numeric", "normalize": "zscore"}
    assert sections["x_buckets"]["type"] == "bucketized"
    assert sections["hour"] == {"type": "vocabulary", "list": list(range(10))}
    assert sections["city"] == {"type": "vocabulary", "from_data": {}, "strip": True}
    assert sections["gap"]["default"] == "mean"
    assert sections["money"]["transform"] == "log1p"
    model = found.model()
    assert model["dnn"]["features"]["embedding"] == {"dim": 4, "of": ["city"]}
    assert "hour" in model["linear"]["features"]


def test_columns_that_cannot_help_are_left_out_with_the_reason(tmp_path):
    found = inferred(
        tmp_path,
        row_id=lambda row: row,
        same=lambda row: "a",
        nothing=lambda row: "",
        name=lambda row: f"person {row}",
        y=coin,
    )
    reasons = dict(found.skipped)
    assert reasons.keys() == {"row_id", "same", "nothing", "name"}


def test_names_that_are_no_words_are_replaced(tmp_path):
    found = infer(
        table_of(tmp_path, {"a (cm)": lambda r: r / 7, "y": lambda r: r % 2}), "y"
    )
    assert found.features[0].name == "a_cm"
    assert found.features[0].section["column"] == "a (cm)"


def test_a_small_table_is_read_often_and_a_large_one_twice(tmp_path):
    found = inferred(tmp_path, y=coin)
    assert (found.batch_size, found.epochs) == (32, 50)


@pytest.mark.parametrize(
    ("names", "label"),
    [(["a", "target", "b"], "target"), (["a", "b"], "b"), (["Late", "b"], "Late")],
)
def test_the_label_is_guessed_by_name_or_is_the_last(tmp_path, names, label):
    columns = {name: (lambda row: row % 2) for name in names}
    assert guess_label(table_of(tmp_path, columns)) == label


def test_a_label_that_cannot_be_learned_is_told(tmp_path):
    with pytest.raises(LabelError, match="same value in every row"):
        inferred(tmp_path, y=lambda row: 1)
    with pytest.raises(LabelError, match="200 different values"):
        inferred(tmp_path, y=lambda row: f"name {row}")


def test_a_table_without_features_is_told(tmp_path):
    table = table_of(tmp_path, {"same": lambda row: 1, "y": lambda row: row % 2})
    with pytest.raises(ConfigError, match="no column besides 'y'"):
        infer(table, "y")


def test_a_column_that_predicts_the_label_is_left_out_unless_it_is_kept(tmp_path):
    columns = {"x": lambda row: NUMBER(0, 1), "copy": coin, "late": coin}
    table = table_of(tmp_path, columns)
    found = infer(table, "late")
    assert found.leaks == ("copy",)
    assert "alone predicts the label" in dict(found.skipped)["copy"]
    kept = infer(table, "late", keep=["copy"])
    assert [f.name for f in kept.features if "buckets" not in f.name] == ["x", "copy"]


def test_a_dropped_column_is_left_out(tmp_path):
    columns = {"x": lambda row: NUMBER(0, 1), "z": coin, "y": lambda row: row % 2}
    found = infer(table_of(tmp_path, columns), "y", drop=["z"])
    assert dict(found.skipped) == {"z": "was dropped"}


def test_steps_are_planned_with_all_rows_of_a_long_table(tmp_path):
    columns = {"x": lambda row: NUMBER(0, 1), "y": coin}
    whole = table_of(tmp_path, columns)
    part = profile(str(tmp_path / "t.csv"), most_rows=60)
    assert not part.is_complete
    found = infer(part, "y")
    assert found.steps == infer(whole, "y").steps
    assert found.source(for_training=True)["shuffle"] == {"buffer_rows": 200}


def test_the_shuffle_buffer_holds_at_most_64_million_values(tmp_path):
    columns = {"x": lambda row: NUMBER(0, 1), "y": coin}
    found = infer(table_of(tmp_path, columns), "y")
    large = dataclasses.replace(found, train_rows=50_000_000)
    assert large.shuffled_rows == 32_000_000, "two columns: x and the label"


def test_a_column_of_two_values_has_no_long_tail(tmp_path):
    found = inferred(tmp_path, rare=lambda row: int(row % 40 == 0), y=coin)
    sections = {f.name: f.section for f in found.features}
    assert "transform" not in sections["rare"]


@pytest.mark.parametrize("name", ["zip", "Zip Code", "home_zipcode", "postcode"])
def test_zip_codes_are_words(tmp_path, name):
    columns = {"x": lambda row: NUMBER(0, 1), name: lambda row: 10115 + row % 40}
    found = infer(table_of(tmp_path, {**columns, "y": coin}), "y")
    assert found.features[-1].section["type"] == "vocabulary"
    assert found.features[-1].section["from_data"] == {}


def sections_of(folder, **columns):
    return {f.name: f.section for f in inferred(folder, **columns, y=coin).features}


def test_numbers_that_name_things_are_categories(tmp_path):
    chance = random.Random(5)
    found = sections_of(
        tmp_path,
        Store=lambda row: 1 + row % 30 if row % 7 else 1,
        minute=lambda row: row % 40,
        age=lambda row: round(chance.gauss(40, 12)),
    )
    # The last id is that of stores which training has not seen.
    assert found["minute"]["type"] == "numeric"  # only 5 rows of each
    assert found["age"]["type"] == "numeric"
    rows = [dataclasses.replace(c, rows=9_000)
            for c in table_of(tmp_path, {
                "Store": lambda row: 1 + row % 30,
                "minute": lambda row: row % 40,
                "y": coin}).columns]  # fmt: skip
    store, minute, _ = rows
    (only,) = features_of(store, set())
    assert only.section == {"type": "identity", "buckets": 32, "default": 31}
    both = features_of(minute, set())
    names = ["minute", "minute_number", "minute_number_buckets"]
    assert [one.name for one in both] == names
    assert [one.is_extra for one in both] == [True, False, False]


def test_small_counts_are_words_and_numbers(tmp_path):
    found = sections_of(tmp_path, rooms=lambda row: row % 9)
    assert found["rooms"]["type"] == "vocabulary"
    assert found["rooms_number"] == {
        "type": "numeric", "column": "rooms", "normalize": "zscore"}  # fmt: skip


def test_a_wide_and_deep_model_reads_small_counts_as_words_only(tmp_path):
    found = inferred(tmp_path, rooms=lambda row: row % 9, y=coin)
    sections = found.sections()
    assert "rooms_number" not in sections["features"]
    assert "rooms_number" not in sections["model"]["dnn"]["features"]["numeric"]
    assert "rooms" in sections["model"]["dnn"]["features"]["indicator"]
    both = found.with_models(("trees", "network")).sections()
    assert {"rooms", "rooms_number"} <= both["features"].keys()


def test_rows_are_kept_in_memory_for_the_evaluations_of_a_network(tmp_path):
    found = inferred(tmp_path, y=coin).with_models(("trees", "network"))
    assert found.source(for_training=True)["cache"] is True
    assert "cache" not in found.source(for_training=False)
    long = dataclasses.replace(found, train_rows=40_000_000)
    assert "cache" not in long.source(for_training=True)
    alone = found.with_models(("trees",))  # which are evaluated once
    assert "cache" not in alone.source(for_training=True)


def test_numbers_that_are_text_are_read(tmp_path):
    def price(row):
        return f"${row % 97}.{row % 7}0"

    found = sections_of(tmp_path, price=price, rate=lambda row: f"{row % 31}%")
    assert found["price"]["text"] == found["rate"]["text"] == "point"


def test_a_date_gives_the_parts_that_differ(tmp_path):
    found = inferred(
        tmp_path,
        day=lambda row: "" if row % 9 == 0 else f"2020-01-{1 + row % 28:02}",
        stamp=lambda row: f"{1 + row // 60:02}/06/2020 {row % 24}:15",
        y=coin,
    )
    sections = {f.name: f.section for f in found.features}
    assert sections["day"] == {
        "type": "date",
        "parts": ["weekday", "day", "days_since", "missing"],
        "since": "2020-01-01",
    }
    assert sections["stamp"]["parts"] == ["month", "hour", "days_since"]
    assert sections["stamp"]["format"] == "%m/%d/%Y %H:%M"
    assert found.time is not None
    assert not found.time.is_used


def test_rows_in_the_order_of_time_are_split_by_it(tmp_path):
    found = inferred(
        tmp_path, day=lambda row: f"2020-{1 + row // 20:02}-{1 + row % 20:02}", y=coin
    )
    assert found.time is not None
    assert (found.time.column, found.time.is_used) == ("day", True)


def test_one_value_or_none_is_a_feature(tmp_path):
    found = sections_of(tmp_path, paid=lambda row: "2024-05-01" if row % 2 else "")
    assert found["paid"] == {
        "type": "vocabulary", "list": ["2024-05-01"], "strip": True}  # fmt: skip


def test_a_weight_is_left_out_and_proposed(tmp_path):
    found = inferred(tmp_path, instance_weight=lambda row: 1 + row % 77 / 7, y=coin)
    assert found.weight == "instance_weight"
    assert "instance_weight" in dict(found.skipped)


def test_an_id_of_few_rows_is_left_out(tmp_path):
    found = inferred(tmp_path, user_id=lambda row: row // 2, y=coin)
    assert "2.0 rows for each value" in dict(found.skipped)["user_id"]


def test_infinite_numbers_count_as_missing(tmp_path):
    found = inferred(tmp_path, z=lambda row: "inf" if row == 3 else row / 7, y=coin)
    assert "inf" in found.null_words
    section = next(f.section for f in found.features if f.name == "z")
    assert section["default"] == "mean"


@pytest.mark.parametrize(
    ("label", "words"),
    [
        (lambda row: "", "has no value in any row"),
        (lambda row: "inf" if row == 1 else row / 7, "is infinite in 1 rows"),
        (lambda row: f"${row}.50", "numbers written as text, such as"),
    ],
)
def test_a_label_that_is_no_label_is_told(tmp_path, label, words):
    with pytest.raises(LabelError, match=words):
        inferred(tmp_path, y=label)


def test_a_first_line_of_data_is_recognized(tmp_path):
    rows = [f"{i},{i % 7}.5,Oslo,{i % 2}" for i in range(10, 60)]
    (tmp_path / "t.csv").write_text("30,2.5,Oslo,1\n" + "\n".join(rows) + "\n")
    with pytest.raises(InputError, match="line 1: the first line looks like data"):
        profile(str(tmp_path / "t.csv"))


def test_dates_of_parquet_are_read_if_they_are_text(tmp_path):
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(i) for i in range(60)]
    table = pa.table(
        {"day": days, "text": [str(day) for day in days], "y": [0, 1] * 30}
    )
    pq.write_table(table, tmp_path / "t.parquet")
    found = infer(profile(str(tmp_path / "t.parquet")), "y")
    assert [f.section["type"] for f in found.features] == ["date"]
    assert "store them as text" in dict(found.skipped)["day"]
    assert found.time == TimeOrder("text", True, "orders the rows of the file")


def test_years_are_names_of_columns(tmp_path):
    rows = [f"c{i},{i * 90},{i * 91},{i * 92}" for i in range(60)]
    (tmp_path / "t.csv").write_text("country,2001,2002,2003\n" + "\n".join(rows) + "\n")
    assert profile(str(tmp_path / "t.csv")).names[1:] == ["2001", "2002", "2003"]
