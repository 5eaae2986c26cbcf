"""JSON lines are read in blocks, with types, lists, defaults and positions."""

import gzip

import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.input import json_files

DTYPES = {"age": "float32", "city": "string", "tags": "string", "ids": "int64"}
TEXT = (
    '{"age": 3, "city": "Oslo", "tags": ["a", "b"], "ids": [1], "more": {"x": 1}}\n'
    '{"age": null, "tags": [], "ids": [2, 3]}\n'
)


def write(folder, text=TEXT, name="a.jsonl"):
    path = folder / name
    path.write_text(text)
    return path


def batch(path, **options):
    given = {"lists": ["tags", "ids"], "defaults": {"age": -1.0}} | options
    return next(iter(json_files(path, DTYPES, **given).batch(9)))


def test_values_lists_and_missing_keys_become_columns(tmp_path):
    found = batch(write(tmp_path))
    assert found["age"].tolist() == [3.0, -1.0]
    assert found["age"].dtype == np.float32
    assert found["city"].tolist() == [b"Oslo", b""]
    assert found["tags"].values.tolist() == [b"a", b"b"]
    assert found["ids"].starts.tolist() == [0, 1, 3]


def test_compressed_files_are_read(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(TEXT.encode()))
    assert batch(path, compression="GZIP")["age"].tolist() == [3.0, -1.0]


def test_a_missing_number_without_a_default_is_an_error(tmp_path):
    with pytest.raises(InputError, match="'age'"):
        batch(write(tmp_path), defaults={})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}\nnot json\n", "expected a JSON object on a line, found b'not json'"),
        ('{"age": "old"}\n', "age"),
        ("{}\n\n{}\n", "expected an object on each of 3 lines, found 2"),
    ],
)
def test_a_line_that_is_no_object_is_shown(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        batch(write(tmp_path, text))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lists": ["tag"]}, "no dtype for 'tag'; did you mean 'tags'"),
        ({"defaults": {"agee": 1}}, "no dtype for 'agee'; did you mean 'age'"),
    ],
)
def test_a_key_without_a_dtype_is_refused(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        json_files(write(tmp_path), DTYPES, **options)


def test_reading_resumes_at_the_next_row(tmp_path):
    text = "".join(f'{{"age": {i}}}\n' for i in range(100))
    data = json_files(write(tmp_path, text), {"age": "int64"}).batch(10)
    iterator = iter(data)
    next(iterator)
    state = iterator.get_state()
    expected = next(iterator)["age"].tolist()
    again = iter(data)
    again.set_state(state)
    assert next(again)["age"].tolist() == expected
