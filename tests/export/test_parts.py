"""Parts of files: together they have every row once, in the order of the file."""

import codecs
import dataclasses
import gzip
import json
import os
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import estimax as ex
from estimax.core.errors import InputError
from estimax.export import TensorInfo
from estimax.export.scoring.plan import FilePart
from estimax.export.scoring.planning import content_checksum, cut
from estimax.export.scoring.tables import InputColumns, read_part

WANTED = InputColumns({"x": TensorInfo("x", "float32", (None,))}, ["id"])
IDS = [f"row {i}" for i in range(1000)]


def write_csv(path, ids):
    # Quotes, with line breaks and doubled quotes in them.
    ids = [f'"{i}\n""{i}"""' if n % 7 == 3 else i for n, i in enumerate(ids)]
    lines = [f"{n},{i}" for n, i in enumerate(ids)]
    path.write_bytes(("\r\n".join(["x,id", *lines])).encode())


def write_json_lines(path, ids):
    lines = [json.dumps({"x": n, "id": i}) for n, i in enumerate(ids)]
    for n in range(0, len(lines), 50):
        lines[n] += "\n  \n"  # a line without a row, and one of two spaces
    path.write_text("\n" + "\n".join(lines))


def write_parquet(path, ids):
    table = pa.table({"x": np.arange(len(ids), dtype=np.float32), "id": ids})
    pq.write_table(table, path, row_group_size=70)


def write_tfrecord(path, ids):
    numbers = np.arange(len(ids), dtype=np.float32)
    records = ex.input.serialize_examples({"x": numbers, "id": ids})
    with ex.input.TFRecordWriter(path) as writer:
        writer.write_all(records)


WRITERS = {
    "csv": write_csv,
    "jsonl": write_json_lines,
    "parquet": write_parquet,
    "tfrecord": write_tfrecord,
}


def read(path, part):
    """The numbers and ids of the rows of a part."""
    numbers, ids = [], []
    for batch in read_part(str(path), part, WANTED):
        numbers += np.asarray(batch.columns["x"], np.float64).tolist()
        column = batch.columns["id"]
        column = column.values if isinstance(column, ex.Sparse) else column
        ids += column.to_pylist() if hasattr(column, "to_pylist") else list(column)
    texts = [i.decode() if isinstance(i, bytes) else i for i in ids]
    return numbers, [text.partition("\n")[0] for text in texts]


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("rows", [1, 64, 999, 1000, 5000])
def test_parts_have_every_row_once_and_in_order(tmp_path, form, rows):
    path = tmp_path / f"in.{form}"
    WRITERS[form](path, IDS[:100] if rows == 1 else IDS)
    parts = cut(str(path), form, rows=rows)
    found = [read(path, part) for part in parts]
    count = 100 if rows == 1 else 1000
    assert [n for numbers, _ in found for n in numbers] == list(range(count))
    assert [i for _, ids in found for i in ids] == IDS[:count]
    assert [len(ids) for _, ids in found] == [part.rows for part in parts]
    if form != "parquet":
        assert {part.rows for part in parts[:-1]} <= {rows}


def test_rows_that_end_with_a_carriage_return_alone_are_cut_too(tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes(b"x,id\r" + b"".join(b"%d,a\r" % n for n in range(50)))
    parts = cut(str(path), "csv", rows=20)
    assert [n for part in parts for n in read(path, part)[0]] == list(range(50))


def test_parts_survive_json(tmp_path):
    write_csv(tmp_path / "in.csv", IDS)
    parts = cut(str(tmp_path / "in.csv"), "csv", rows=300)
    saved = json.loads(json.dumps([dataclasses.asdict(part) for part in parts]))
    assert [FilePart.from_json(one) for one in saved] == parts


def test_row_groups_are_parts(tmp_path):
    write_parquet(tmp_path / "in.parquet", IDS)
    path = str(tmp_path / "in.parquet")
    assert [p.rows for p in cut(path, "parquet", rows=10)] == [70] * 14 + [20]


def test_a_large_row_group_is_cut_into_pieces_of_whole_batches(tmp_path):
    path = tmp_path / "in.parquet"
    rows = 20_000
    table = pa.table({"x": np.arange(rows, dtype=np.float32), "id": ["a"] * rows})
    pq.write_table(table, path)
    parts = cut(str(path), "parquet", rows=5000, pieces=3)
    assert [part.rows for part in parts] == [8192, 8192, 3616]
    found = [n for part in parts for n in read(path, part)[0]]
    assert found == list(range(rows))


def test_a_compressed_file_is_one_part(tmp_path):
    write_csv(tmp_path / "in.csv", IDS)
    path = tmp_path / "in.csv.gz"
    path.write_bytes(gzip.compress((tmp_path / "in.csv").read_bytes()))
    (part,) = cut(str(path), "csv", rows=10)
    assert read(path, part)[1] == IDS
    assert content_checksum(str(path), "csv") is None


def test_a_file_without_rows_has_no_parts(tmp_path):
    for form, writer in WRITERS.items():
        writer(tmp_path / form, [])
        assert cut(str(tmp_path / form), form, rows=10) == [], form


def test_an_error_in_a_part_names_the_line_in_the_file(tmp_path):
    path = tmp_path / "in.csv"
    lines = ["x,id", *(f"{n},a" for n in range(100))]
    lines[80] = "old,a"
    path.write_text("\n".join(lines) + "\n")
    *_, last = cut(str(path), "csv", rows=40)[:2]
    with pytest.raises(InputError, match=r"in.csv, line 81 .*'old'"):
        read(path, last)
    path = tmp_path / "in.jsonl"
    path.write_text("\n" + '{"x": 1, "id": "a"}\n' * 50 + "{'x'\n")
    with pytest.raises(InputError, match=r"in.jsonl, line 52: expected a JSON object"):
        read(path, cut(str(path), "jsonl", rows=40)[1])


@pytest.mark.parametrize("form", ["csv", "jsonl", "tfrecord"])
def test_a_file_that_became_shorter_is_an_error_and_loses_no_row_silently(
    tmp_path, form
):
    path = tmp_path / f"in.{form}"
    WRITERS[form](path, IDS)
    parts = cut(str(path), form, rows=600)
    WRITERS[form](path, IDS[:900])
    assert read(path, parts[0])[1] == IDS[:600]
    with pytest.raises(InputError, match=r"has changed"):
        read(path, parts[1])


def test_the_checksum_depends_on_every_byte(tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes(b"x,id\n" + b"1,a\n" * 100_000)
    before = content_checksum(str(path), "csv")
    data = bytearray(path.read_bytes())
    data[100_005] ^= 1
    path.write_bytes(data)
    assert content_checksum(str(path), "csv") != before


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_bytes(codecs.BOM_UTF8 + b'\n{"x": 1, "id": "a"}\n')
    whole = FilePart("jsonl")
    assert read(path, whole) == ([1.0], ["a"])
    assert [read(path, part) for part in cut(str(path), "jsonl", rows=4)] == [
        ([1.0], ["a"])
    ]


def test_json_lines_of_a_pipe_are_read(tmp_path):
    path = tmp_path / "in.jsonl"
    os.mkfifo(path)
    text = '{"x": 1, "id": "a"}\n'
    writer = threading.Thread(target=path.write_text, args=(text,))
    writer.start()
    assert read(path, FilePart("jsonl")) == ([1.0], ["a"])
    writer.join()


def test_a_damaged_compressed_file_is_an_input_error(tmp_path):
    path = tmp_path / "in.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"x": 1, "id": "a"}\n' * 1000)[:-20])
    with pytest.raises(InputError, match=r"in.jsonl.gz \(byte \d+ of the decompr"):
        read(path, FilePart("jsonl"))


def test_a_key_that_stands_twice_in_a_row_is_an_error(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"x": 1, "id": "a", "x": 2}\n')
    with pytest.raises(InputError, match=r"line 1: the key 'x' stands twice"):
        read(path, FilePart("jsonl"))


def test_a_file_that_is_no_parquet_is_named(tmp_path):
    path = tmp_path / "in.parquet"
    path.write_bytes(b"hello")
    words = r"in\.parquet: expected a Parquet file"
    with pytest.raises(InputError, match=words):
        cut(str(path), "parquet", rows=10)
    with pytest.raises(InputError, match=words):
        read(path, FilePart("parquet"))
