"""Files that are cut, hostile, gone or no files at all: an error that names them."""

import gzip
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from estimax.core.errors import InputError
from estimax.input import (
    CsvDataset,
    Dataset,
    FixedLengthRecordDataset,
    TextLineDataset,
    TFRecordDataset,
    csv_files,
    parquet_files,
)

READERS = {
    "records": TFRecordDataset,
    "lines": TextLineDataset,
    "fixed": lambda path: FixedLengthRecordDataset(path, 4),
    "csv": lambda path: csv_files(path, columns=["a"], header=False),
    "csv rows": lambda path: CsvDataset(path, [""]),
    "parquet": parquet_files,
}


def write_parquet(path, groups=1):
    table = pa.table({"n": np.arange(1000 * groups)})
    pq.write_table(table, path, row_group_size=1000, compression="none")


@pytest.fixture(params=READERS)
def reader(request):
    return READERS[request.param]


def test_a_folder_is_named(reader, tmp_path):
    with pytest.raises(InputError, match=str(tmp_path)):
        list(reader(tmp_path))


def test_a_file_that_is_not_there_is_named(reader, tmp_path):
    with pytest.raises(InputError, match=str(tmp_path / "none")):
        list(reader(tmp_path / "none"))


def test_a_link_to_nothing_is_named(reader, tmp_path):
    path = tmp_path / "link"
    path.symlink_to(tmp_path / "gone")
    with pytest.raises(InputError, match=str(path)):
        list(reader(path))


def test_a_link_to_nothing_is_not_left_out_of_a_pattern(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.csv").symlink_to(tmp_path / "gone")
    with pytest.raises(InputError, match=r"b\.csv.*gone"):
        csv_files(tmp_path / "*.csv")
    with pytest.raises(InputError, match=r"b\.csv.*gone"):
        Dataset.list_files(str(tmp_path / "*.csv"))


def test_a_named_pipe_is_an_error_and_does_not_hang(reader, tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(InputError, match=f"{path}.*named pipe"):
        list(reader(path))


def test_a_named_pipe_is_not_left_out_of_a_pattern(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    os.mkfifo(tmp_path / "b.csv")
    with pytest.raises(InputError, match="named pipe"):
        list(csv_files(tmp_path / "*.csv"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(reader, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abcd")
    path.chmod(0)
    with pytest.raises(InputError, match=f"{path}.*ermission"):
        list(reader(path))


@pytest.mark.parametrize("kind", ["records", "lines", "fixed", "csv", "csv rows"])
def test_a_file_of_no_bytes_has_no_elements(kind, tmp_path):
    (tmp_path / "a").write_bytes(b"")
    assert list(READERS[kind](tmp_path / "a")) == []


def test_a_file_of_no_bytes_is_no_parquet_file_and_has_no_header(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"")
    with pytest.raises(InputError, match=f"{path}.*Parquet"):
        parquet_files(path)
    with pytest.raises(InputError, match=f"{path}.*header"):
        csv_files(path)


@pytest.mark.parametrize("cut", [1, 8, 40, 500, 9000])
def test_a_cut_parquet_file_is_named(tmp_path, cut):
    path = tmp_path / "a"
    write_parquet(path)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(InputError, match=f"{path}.*Parquet"):
        list(parquet_files(path))


@pytest.mark.parametrize("block_bytes", [8, 1 << 20])
def test_a_csv_file_cut_inside_a_quoted_field_is_an_error(tmp_path, block_bytes):
    path = tmp_path / "a.csv"
    path.write_text('n,s\n1,a\n2,b\n3,"cut, her')
    rows = iter(csv_files(path, block_bytes=block_bytes))
    assert [next(rows)["n"], next(rows)["n"]] == [1, 2]
    with pytest.raises(InputError, match=r"a\.csv, line 4 .*does not end"):
        next(rows)


def test_a_csv_file_cut_inside_a_row_is_an_error(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("n,s\n1,a\n2")
    with pytest.raises(InputError, match=r"a\.csv, line 3 .*found 1"):
        list(csv_files(path, dtypes={"n": "int64", "s": "string"}))


def test_a_header_longer_than_the_file_is_told(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    with pytest.raises(InputError, match=f"{path}.*header of 8 bytes"):
        list(FixedLengthRecordDataset(path, 2, header_bytes=8))


def shrink(path, size):
    with path.open("r+b") as file:
        file.truncate(size)


@pytest.mark.parametrize("block_bytes", [100])
def test_a_csv_file_that_shrinks_while_it_is_read_is_an_error(tmp_path, block_bytes):
    path = tmp_path / "a.csv"
    path.write_text("n\n" + "1234567\n" * 1000)
    rows = iter(csv_files(path, block_bytes=block_bytes))
    next(rows)
    shrink(path, 2 + 8 * 500)
    with pytest.raises(InputError, match=r"a\.csv.*had 8002 bytes .* has 4002"):
        list(rows)


def test_a_parquet_file_that_shrinks_while_it_is_read_is_an_error(tmp_path):
    """In a process of its own: a mapped file would end it by a signal."""
    path = tmp_path / "a.parquet"
    write_parquet(path, groups=64)
    code = f"""
from estimax.core.errors import InputError
from estimax.input import parquet_files
rows = iter(parquet_files({str(path)!r}).batch(1000))
next(rows)
open({str(path)!r}, "r+b").truncate(20_000)
try:
    list(rows)
except InputError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert str(path) in done.stdout
    assert "row group" in done.stdout


MEASURE = """
import resource
from estimax.core.errors import InputError
from estimax.input import *
path = {path!r}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    for element in {code}:
        pass
except InputError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.fixture(scope="module")
def gigabyte(tmp_path_factory):
    """A gigabyte of zeros, compressed to a megabyte."""
    path = tmp_path_factory.mktemp("gigabyte") / "a.gz"
    with gzip.open(path, "wb", 6) as file:
        for _ in range(1000):
            file.write(bytes(1_000_000))
    return path


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "TextLineDataset(path, 'GZIP')",
            "line 1 (byte 0): the line is longer than 64 MB",
        ),
        (
            "csv_files(path, columns=['a'], header=False, compression='GZIP',"
            " dtypes={'a': 'string'})",
            "line 1 (byte 0): a row is longer than 64 MB",
        ),
        (
            "FixedLengthRecordDataset(path, 1 << 40, compression_type='GZIP')",
            "record_bytes may be up to",
        ),
        (
            "FixedLengthRecordDataset(path, 10000, compression_type='GZIP').batch(9)",
            "",
        ),
    ],
)
def test_a_compressed_gigabyte_takes_little_memory(gigabyte, code, words):
    done = subprocess.run(
        [sys.executable, "-c", MEASURE.format(path=str(gigabyte), code=code)],
        capture_output=True,
        text=True,
        check=True,
    )
    *said, grown = done.stdout.splitlines()
    assert words in " ".join(said)
    assert int(grown) < 600


def test_a_line_longer_than_a_block_is_read_plain_and_compressed(tmp_path):
    long = b"x" * (9 << 20)
    (tmp_path / "a").write_bytes(b"one\n" + long + b"\nend")
    (tmp_path / "b").write_bytes(gzip.compress(b"one\n" + long + b"\nend", 1))
    assert list(TextLineDataset(tmp_path / "a")) == [b"one", long, b"end"]
    assert list(TextLineDataset(tmp_path / "b", "GZIP")) == [b"one", long, b"end"]


def test_a_pattern_for_a_reader_of_paths_is_an_error_that_says_how_to_list_files():
    with pytest.raises(InputError, match=r"train-\*: cannot be read.*list_files"):
        next(iter(TFRecordDataset("train-*")))
