"""Files read as TensorFlow reads them: lines, names, CSV."""

import base64

import numpy as np
import pytest
from golden_files import load_golden

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.input import (
    CsvDataset,
    Dataset,
    TextLineDataset,
    decode_csv,
    make_csv_dataset,
)

pytestmark = pytest.mark.golden


def cases_of(kind, count):
    cases = load_golden("data.json")[kind]
    assert len(cases) == count
    return cases


def defaults_of(case):
    def one(column):
        dtype, default = column["dtype"], column["default"]
        if default is None:
            return str if dtype == "string" else np.dtype(dtype)
        return default if dtype == "string" else np.array([default], dtype)

    return [one(column) for column in case]


def plain(column):
    if isinstance(column, Strings):
        return [value.decode() for value in column.tolist()]
    return np.asarray(column).tolist()


def same(found, expected, dtype="float64"):
    if found and isinstance(found[0], str):
        return found == expected
    words = {"Infinity": np.inf, "NaN": np.nan}
    numbers = [words.get(v, v) if isinstance(v, str) else v for v in expected]
    return np.array_equal(found, np.array(numbers, dtype), equal_nan=True)


def test_lines_are_cut_as_tensorflow_cuts_them(tmp_path):
    compared = 0
    for case in cases_of("text_line", 10):
        path = tmp_path / f"{case['name']}.txt"
        path.write_bytes(base64.b64decode(case["content_b64"]))
        lines = [line.decode() for line in TextLineDataset(path)]
        assert lines == case["lines"], case["name"]
        compared += 1
    assert compared == 10


def test_files_are_listed_in_tensorflows_order(tmp_path):
    compared = 0
    for case in cases_of("list_files", 5):
        for name in case["files"]:
            (tmp_path / name).write_text("")
        patterns = [str(tmp_path / pattern) for pattern in case["patterns"]]
        data = Dataset.list_files(patterns, shuffle=case["shuffle"])
        found = [path.decode().rsplit("/", 1)[1] for path in data]
        assert found == case["output"], case["name"]
        compared += 1
    assert compared == 5


def test_csv_records_decode_as_in_tensorflow():
    compared = 0
    for case in cases_of("decode_csv", 29):
        defaults = defaults_of(case["record_defaults"])
        if "tf_exception" in case:
            with pytest.raises(InputError):
                decode_csv(case["records"], defaults, **case["args"])
        else:
            columns = decode_csv(case["records"], defaults, **case["args"])
            for column, expected, kind in zip(
                columns, case["output"], case["record_defaults"], strict=True
            ):
                dtype = None if kind["dtype"] == "string" else kind["dtype"]
                assert same(plain(column), expected, dtype), case["name"]
                assert getattr(column, "dtype", None) == dtype, case["name"]
        compared += 1
    assert compared == 29


def test_csv_rows_are_tensorflows(tmp_path):
    compared = 0
    for case in cases_of("csv_dataset", 12):
        path = tmp_path / f"{case['name']}.csv"
        path.write_bytes(case["content"].encode())
        data = CsvDataset(path, defaults_of(case["record_defaults"]), **case["args"])
        if "tf_exception" in case:
            with pytest.raises(InputError):
                list(data)
        else:
            rows = [
                [v.decode() if isinstance(v, bytes) else v.item() for v in row]
                for row in data
            ]
            assert rows == case["rows"], case["name"]
        compared += 1
    assert compared == 12


def test_make_csv_dataset_makes_tensorflows_batches(tmp_path):
    compared = 0
    for case in cases_of("make_csv_dataset", 9):
        path = tmp_path / f"{case['name']}.csv"
        path.write_bytes(case["content"].encode())
        args = dict(case["args"])
        if "column_defaults" in args:
            args["column_defaults"] = defaults_of(args["column_defaults"])
        has_label = args.get("label_name") is not None
        with iter(make_csv_dataset(path, **args)) as batches:
            for expected in case["first_batches"]:
                batch = next(batches)
                features, label = batch if has_label else (batch, None)
                assert list(features) == list(expected["features"]), case["name"]
                for name, column in features.items():
                    check_tensor(column, expected["features"][name], case["name"])
                if has_label:
                    check_tensor(label, expected["label"], case["name"])
            if len(case["first_batches"]) < 4:
                assert next(batches, None) is None, case["name"]
        compared += 1
    assert compared == 9


def check_tensor(column, expected, name):
    dtype = "string" if isinstance(column, Strings) else str(column.dtype)
    assert dtype == expected["dtype"], name
    assert list(column.shape) == expected["shape"], name
    assert plain(column) == expected["values"], name
