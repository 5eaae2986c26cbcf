"""Features, task and model chosen for a table."""

import dataclasses
import random

import pytest

from estimax.config.infer import guess_label, infer
from estimax.config.profile import profile
from estimax.core.errors import ConfigError, LabelError


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
    ("label", "head", "vocabulary", "metric"),
    [
        (lambda row: row % 2, {"type": "binary"}, None, "auc"),
        (lambda row: "ny"[row % 2], {"type": "binary"}, ("n", "y"), "auc"),
        (lambda row: 1 + row % 2, {"type": "binary"}, ("1", "2"), "auc"),
        (lambda row: row % 3, {"type": "multi_class", "classes": 3}, None, "accuracy"),
        (
            lambda row: 9 + row % 3,
            {"type": "multi_class", "classes": 3},
            ("9", "10", "11"),
            "accuracy",
        ),
        (lambda row: row * 7 % 150, {"type": "regression"}, None, "average_loss"),
        (lambda row: row / 3, {"type": "regression"}, None, "average_loss"),
    ],
)
def test_the_task_follows_from_the_label(tmp_path, label, head, vocabulary, metric):
    task = inferred(tmp_path, y=label).task
    assert (task.head, task.vocabulary, task.metric) == (head, vocabulary, metric)


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
    assert sections["city"] == {"type": "vocabulary", "from_data": {}}
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
        day=lambda row: f"2020-01-{1 + row % 28:02}",
        name=lambda row: f"person {row}",
        y=coin,
    )
    reasons = dict(found.skipped)
    assert reasons.keys() == {"row_id", "same", "nothing", "day", "name"}
    assert "dates" in reasons["day"]


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
