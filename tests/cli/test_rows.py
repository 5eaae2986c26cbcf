"""Predictions as rows."""

import io
import json

import numpy as np
import pytest

from estimax.cli.rows import CsvRows, JsonLines, JsonRows, open_rows
from estimax.core.errors import ConfigError

BATCH = {
    "probabilities": np.array([[0.25, 0.75], [0.5, 0.5]]),
    "class_ids": np.array([[1], [0]]),
    "classes": np.array([[b"yes"], [b"no"]], dtype=object),
    "all_class_ids": np.array([[0, 1], [0, 1]]),
}


def test_csv_spreads_vectors_and_names_columns_once():
    file = io.StringIO()
    rows = CsvRows(file)
    rows.write(BATCH)
    rows.write(BATCH)
    assert file.getvalue().splitlines() == [
        "probabilities_0,probabilities_1,class_ids,classes",
        "0.25,0.75,1,yes",
        "0.5,0.5,0,no",
        "0.25,0.75,1,yes",
        "0.5,0.5,0,no",
    ]


def test_json_lines_keep_vectors():
    file = io.StringIO()
    JsonLines(file).write(BATCH)
    first = json.loads(file.getvalue().splitlines()[0])
    assert first == {"probabilities": [0.25, 0.75], "class_ids": 1, "classes": "yes"}


def test_json_is_one_list_over_all_batches():
    file = io.StringIO()
    rows = JsonRows(file)
    rows.write(BATCH)
    rows.write(BATCH)
    rows.close()
    assert len(json.loads(file.getvalue())) == 4


def test_a_json_file_without_rows_is_an_empty_list(tmp_path):
    with open_rows(tmp_path / "out.json"):
        pass
    assert json.loads((tmp_path / "out.json").read_text()) == []


def test_a_file_that_failed_half_way_does_not_appear(tmp_path):
    path = tmp_path / "out.csv"
    short = {"a": np.ones(2), "b": np.ones(3)}
    with pytest.raises(ValueError, match="longer"), open_rows(path) as rows:
        rows.write(short)
    assert not path.exists()


def test_an_unknown_kind_of_file_is_refused(tmp_path):
    with (
        pytest.raises(ConfigError, match=r"unknown kind of file '\.cvs'; did you mean"),
        open_rows(tmp_path / "out.cvs"),
    ):
        pass
