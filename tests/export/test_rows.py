"""Predictions as rows."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import estimax as ex
from estimax.core.errors import ConfigError, InputError
from estimax.export.scoring.rows import CsvRows, JsonLines, JsonList, open_rows

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
    rows = JsonList(file)
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
        pytest.raises(ConfigError, match=r"unknown kind of file 'cvs'; did you mean"),
        open_rows(tmp_path / "out.cvs"),
    ):
        pass


def test_tfrecords_are_examples_in_which_a_missing_value_has_no_key(tmp_path):
    path = tmp_path / "out.tfrecord"
    kept = {"id": pa.array([7, None]), "tags": [["a", "b"], None], "none": [None, None]}
    with open_rows(path) as rows:
        rows.write(kept | BATCH)
    first, second = map(ex.input.Example.parse, ex.input.TFRecordDataset(str(path)))
    assert {key: feature.values for key, feature in first.features.items()} == {
        "id": (7,),
        "tags": (b"a", b"b"),
        "probabilities": (0.25, 0.75),
        "class_ids": (1,),
        "classes": (b"yes",),
    }
    assert set(second.features) == {"probabilities", "class_ids", "classes"}


def test_parquet_has_the_types_of_its_schema(tmp_path):
    path = tmp_path / "out.parquet"
    schema = pa.schema({"id": pa.string(), "p": pa.list_(pa.float64(), 2)})
    with open_rows(path, schema=schema) as rows:
        rows.write({"id": [None, None], "p": np.ones((2, 2), np.float32)})
        rows.write({"id": [1], "p": np.ones((1, 2), np.float32)})
    table = pq.read_table(path)
    assert table.schema.equals(schema)
    assert table["id"].to_pylist() == [None, None, "1"]


@pytest.mark.parametrize("ids", [["a"], [1, "a"]])
def test_a_value_of_another_type_than_its_parquet_column_is_explained(tmp_path, ids):
    path = tmp_path / "out.parquet"
    batches = [{"id": [1, 2]}, {"id": ids}]
    with (
        pytest.raises(InputError, match=r"'id'.*Convert the column to text"),
        open_rows(path) as rows,
    ):
        list(map(rows.write, batches))
    assert not list(tmp_path.iterdir())


def test_nested_predictions_stay_nested_in_parquet(tmp_path):
    path = tmp_path / "out.parquet"
    steps = np.arange(12.0).reshape(2, 3, 2)
    with open_rows(path) as rows:
        rows.write({"steps": steps, "empty": np.ones((2, 0))})
    table = pq.read_table(path)
    assert table["steps"].to_pylist() == steps.tolist()
    assert table["empty"].to_pylist() == [[], []]
