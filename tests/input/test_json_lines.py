"""JSON lines are read in blocks, with types, lists, defaults and positions."""

import gzip
import subprocess
import sys

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
        ("{}\nnot json\n", r"line 2 \(byte 3\): expected a JSON object, found b'not"),
        ('{"age": "old"}\n', r"line 1 .*: key 'age': expected float32, found \"old\""),
        ("{}\n\n{}\n", "line 2 .*: expected a JSON object, found an empty line"),
        ("null\n", "line 1 .*: expected a JSON object, found b'null'"),
        ("{}\n{}\nnull\n", "line 3 .*: expected a JSON object, found b'null'"),
        ("{}\n{} {}\n", "line 2 .*: expected a JSON object, found .*Extra data"),
        ('{"age": 1, "age": 2}\n', "line 1 .*: the key 'age' stands twice"),
        ('{"city": "\\ud800"}\n', "line 1 .*: key 'city': expected string"),
        ('{"ids": [2.5]}\n', "line 1 .*: key 'ids': expected int64, found 2.5"),
        ('{"ids": 2}\n', "line 1 .*: key 'ids': expected a list of int64, found 2"),
        ('{"more": ' + "[" * 9999 + "]" * 9999 + "}null\n", "nested too deeply"),
    ],
)
def test_a_line_that_is_no_object_of_the_given_keys_is_an_error(
    tmp_path, text, message
):
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


@pytest.mark.parametrize("bad", ["null", "x", "", "{} {}", '{"age": "old"}'])
def test_ignoring_errors_loses_the_bad_lines_only(tmp_path, bad):
    good = [f'{{"age": {i}}}' for i in range(20)]
    lines = [bad, *good[:10], bad, bad, *good[10:], bad]
    data = json_files(write(tmp_path, "\n".join(lines)), {"age": "int64"})
    assert [row["age"] for row in data.ignore_errors()] == list(range(20))


def test_whole_numbers_with_a_point_are_integers(tmp_path):
    path = write(tmp_path, '{"n": 2.0, "l": [3.0, 4]}\n{"n": 1, "l": []}\n')
    data = json_files(path, {"n": "int64", "l": "int32"}, lists=["l"])
    found = next(iter(data.batch(2)))
    assert found["n"].tolist() == [2, 1]
    assert found["l"].values.tolist() == [3, 4]


def test_a_byte_order_mark_and_line_ends_of_windows_do_not_matter(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"age": 1}\r\n{"age": 2}\r\n')
    assert [row["age"] for row in json_files(path, {"age": "int32"})] == [1, 2]


@pytest.mark.parametrize(
    "wanted", [5_000, pytest.param(50_000, marks=pytest.mark.slow)]
)
def test_no_line_ends_the_process(tmp_path, wanted):
    """Odd lines, in files of two to sixty-one lines, in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-c", FUZZ, str(tmp_path), str(wanted)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines, rows, errors = map(int, done.stdout.split())
    assert lines >= wanted
    assert rows + errors == lines  # one row or one error for every line
    assert rows > wanted / 10


FUZZ = """
import json, logging, random, sys
from pathlib import Path
from estimax.core.errors import InputError
from estimax.input import json_files

logging.disable()
choose = random.Random(1)
words = ["null", "true", "1", "2.0", "-1e9", "1e999", "NaN", '"x"', '"\\\\ud800"', "[]",
         "{}", '["a", null]', "[1, 2]", "{", "}", "[", "]", ",", ":", '"', " ", "\\r",
         "\\t", "\\x00", '{"a": 1}', '{"a": null}', '{"t": ["b"]}', '"a": 3', '"t": []']
dtypes = {"a": "int64", "t": "string", "f": "float32"}
path = Path(sys.argv[1]) / "a.jsonl"
total = rows = errors = 0
while total < int(sys.argv[2]):
    lines = []
    for _ in range(choose.randint(1, 60)):
        if choose.random() < 0.3:
            keys = choose.sample("af", choose.randint(0, 2))
            keys = {key: choose.choice([1, 2.0, None]) for key in keys}
            lines.append(json.dumps(keys))
        else:
            lines.append("".join(choose.choices(words, k=choose.randint(0, 4))))
    lines.append("{}")
    path.write_text("\\n".join(lines), newline="")
    data = json_files(path, dtypes, lists=["t"], defaults={"a": 0, "f": 0.0})
    stream = iter(data.batch(1))
    while True:
        try:
            next(stream)
            rows += 1
        except StopIteration:
            break
        except InputError:
            errors += 1
    total += len(lines)
print(total, rows, errors)
"""
