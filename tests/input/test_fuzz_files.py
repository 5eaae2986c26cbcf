"""Random CSV and Parquet files, whole and damaged: the right rows or a clear error."""

import csv
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from estimax.core.errors import InputError
from estimax.input import CsvDataset, TextLineDataset, csv_files, parquet_files

pytestmark = pytest.mark.slow

LETTERS = ["a", "b", " ", ",", '"', "\n", "\r\n", "é", "0", "-", ".", "'", "\t"]


def random_text(draw):
    return "".join(draw.choice(LETTERS, draw.integers(0, 8)))


def write_csv(draw, path):
    """A file of numbers and text, written by the csv module; its rows."""
    rows = [
        (int(draw.integers(-(2**40), 2**40)), float(draw.normal()), random_text(draw))
        for _ in range(draw.integers(0, 60))
    ]
    text = io.StringIO(newline="")
    ends = str(draw.choice(["\n", "\r\n"]))
    writer = csv.writer(text, lineterminator=ends)
    writer.writerow(["i", "f", "s"])
    writer.writerows(rows)
    data = text.getvalue()
    if draw.random() < 0.3:
        data = data.rstrip("\r\n")
    path.write_bytes(data.encode())
    return rows


def outcome(dataset):
    """All elements, or the words of the error."""
    try:
        return list(dataset), None
    except InputError as error:
        return None, str(error)


@pytest.mark.parametrize("seed", range(150))
def test_what_the_csv_module_writes_is_read(seed, tmp_path):
    draw = np.random.default_rng(seed)
    path = tmp_path / "a.csv"
    rows = write_csv(draw, path)
    dtypes = {"i": "int64", "f": "float64", "s": "string"}
    block_bytes = int(draw.choice([1, 17, 100, 1 << 20]))
    data = csv_files(path, dtypes=dtypes, block_bytes=block_bytes)
    found = [(int(r["i"]), float(r["f"]), r["s"].decode()) for r in data]
    assert found == rows


@pytest.mark.parametrize("seed", range(300))
def test_a_damaged_csv_file_is_read_or_refused_but_never_hangs(seed, tmp_path):
    draw = np.random.default_rng(seed)
    path = tmp_path / "a.csv"
    write_csv(draw, path)
    data = bytearray(path.read_bytes())
    for _ in range(draw.integers(1, 4)):
        if not data:
            break
        place = int(draw.integers(0, len(data)))
        if draw.random() < 0.5:
            data[place] = int(draw.integers(0, 256))
        else:
            del data[place : place + int(draw.integers(1, 10))]
    path.write_bytes(bytes(data))
    dataset = CsvDataset(path, [np.int64(0), np.float64(0), ""], header=True)
    whole, error = outcome(dataset)
    kept = list(dataset.ignore_errors())
    if error is None:
        assert len(kept) == len(whole)
    else:
        assert "a.csv" in error


@pytest.mark.parametrize("seed", range(60))
def test_any_bytes_are_lines_as_python_cuts_them(seed, tmp_path):
    draw = np.random.default_rng(seed)
    data = bytes(draw.choice([10, 13, 65, 66, 255], draw.integers(0, 400)).astype("u1"))
    (tmp_path / "a").write_bytes(data)
    lines = data.split(b"\n")
    lines = lines[:-1] if not lines[-1] else lines
    expected = [line.replace(b"\r", b"") for line in lines]
    assert list(TextLineDataset(tmp_path / "a")) == expected


def random_lists(draw, rows):
    return [
        None
        if draw.random() < 0.1
        else draw.integers(0, 99, draw.integers(0, 5)).tolist()
        for _ in range(rows)
    ]


@pytest.mark.parametrize("seed", range(60))
def test_random_parquet_files_are_read(seed, tmp_path):
    draw = np.random.default_rng(seed)
    rows = int(draw.integers(1, 80))
    lists = random_lists(draw, rows)
    texts = [None if draw.random() < 0.1 else random_text(draw) for _ in range(rows)]
    table = pa.table(
        {
            "n": pa.array(draw.integers(0, 99, rows)),
            "many": pa.array(lists, pa.list_(pa.int64())),
            "text": pa.array(texts, pa.string()),
        }
    )
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=int(draw.integers(1, 30)))
    size = int(draw.integers(1, 40))
    batches = list(parquet_files(path).batch(size))
    n = np.concatenate([batch["n"] for batch in batches])
    assert n.tolist() == table["n"].to_pylist()
    text = [value for batch in batches for value in batch["text"].tolist()]
    assert text == [(value or "").encode() for value in texts]
    found = []
    for batch in batches:
        rows_of_batch = [[] for _ in range(len(batch["n"]))]
        column = batch["many"]
        for (row, _), value in zip(column.indices, column.values, strict=True):
            rows_of_batch[row].append(int(value))
        found += rows_of_batch
    assert found == [values or [] for values in lists]


def batches_of(path):
    yield from parquet_files(path).ignore_errors().batch(7)


@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_parquet_file_is_named_or_read(seed, tmp_path):
    draw = np.random.default_rng(seed)
    path = tmp_path / "a.parquet"
    table = pa.table({"n": list(range(50)), "s": [f"text {i}" for i in range(50)]})
    pq.write_table(table, path, row_group_size=10)
    data = bytearray(path.read_bytes())
    for _ in range(3):
        data[int(draw.integers(0, len(data)))] = int(draw.integers(0, 256))
    if draw.random() < 0.3:
        data = data[: int(draw.integers(0, len(data)))]
    path.write_bytes(bytes(data))
    _, error = outcome(batches_of(path))
    assert error is None or "a.parquet" in error
