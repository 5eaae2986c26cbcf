"""`estimax check --data` reads every format, and names the row that does not fit."""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from run_files import GOOD, load_text

from estimax import input as inputs
from estimax.config.build import plan
from estimax.config.data_report import report
from estimax.config.expressions import evaluate
from estimax.core.errors import InputError

FORMATS = ("csv", "parquet", "jsonl", "tfrecord")


def loaded_over(folder, form, rows, options=""):
    path = folder / f"a.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif form == "jsonl":
        import json

        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif form == "tfrecord":
        with inputs.TFRecordWriter(path) as writer:
            for row in rows:
                given = {k: v for k, v in row.items() if v is not None}
                writer.write(inputs.Example.of(given).serialize())
    else:
        lines = [
            ",".join("" if v is None else str(v) for v in r.values()) for r in rows
        ]
        path.write_text("\n".join([",".join(rows[0]), *lines]) + "\n")
    given = f'{form}, {options}files: "{path}"'
    text = GOOD.replace("csv, files: train.csv", given)
    return load_text(folder, text.replace("runs/small", f"{folder}/model"))


def run_over(folder, form, rows):
    return loaded_over(folder, form, rows).run


ROWS = [
    {"age": 1.5, "city": "Oslo", "late": 0},
    {"age": 2.5, "city": "Rome", "late": 1},
    {"age": 3.5, "city": None, "late": 1},
]


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_that_fits_has_no_problems(tmp_path, form):
    found = report(run_over(tmp_path, form, ROWS), "train")
    assert found.problems == ()
    assert found.rows == 3
    columns = {column.name: column for column in found.columns}
    assert columns["age"].values == "1.5 to 3.5"
    assert columns["city"].missing == 1
    assert columns["late"].values.startswith("label: 1 66.7%")


@pytest.mark.parametrize("form", FORMATS)
def test_a_label_out_of_range_is_found_with_its_row(tmp_path, form):
    rows = [*ROWS, {"age": 1.0, "city": "x", "late": 7}]
    (problem,) = report(run_over(tmp_path, form, rows), "train").problems
    where = "line 5" if form == "csv" else "row 4"
    assert (
        f"a.{form}, {where}: data.label: a binary head needs labels 0 and 1" in problem
    )


@pytest.mark.parametrize("form", FORMATS)
def test_a_missing_column_and_a_missing_number_are_found(tmp_path, form):
    rows = [
        {"agee": 1.0, "city": "a", "late": 0},
        {"agee": 2.0, "city": "a", "late": 1},
    ]
    (problem,) = report(run_over(tmp_path, form, rows), "train").problems
    assert "there is no column 'age'; did you mean 'agee'?" in problem
    rows = [*ROWS, {"age": None, "city": "x", "late": 0}]
    (problem,) = report(run_over(tmp_path, form, rows), "train").problems
    assert "features.age: a missing value; set features.age.default" in problem


BAD = [*ROWS, {"age": None, "city": "Rome", "late": 1}]


@pytest.mark.parametrize("form", FORMATS)
def test_rows_that_training_skips_are_no_problems(tmp_path, form):
    loaded = loaded_over(tmp_path, form, BAD, "on_bad_row: skip, ")
    found = report(loaded.run, "train")
    assert found.problems == ()
    assert len(found.skipped) == 1
    assert "features.age: a missing value" in found.skipped[0]
    train = evaluate(plan(loaded).input_fn("train"))()
    features, _ = next(iter(train))
    assert features["age"].tolist() == [1.5, 2.5, 3.5]


def test_more_bad_rows_than_training_skips_are_a_problem(tmp_path):
    limit = "on_bad_row: skip, max_bad_rows: 0, "
    found = report(loaded_over(tmp_path, "csv", BAD, limit).run, "train")
    assert found.skipped == ()
    assert "features.age: a missing value" in found.problems[0]


def test_a_json_line_that_is_null_is_named(tmp_path):
    run = run_over(tmp_path, "jsonl", ROWS)
    path = tmp_path / "a.jsonl"
    path.write_text(path.read_text() + "null\n")
    with pytest.raises(InputError, match=r"a\.jsonl, line 4: expected a JSON object"):
        report(run, "train")
