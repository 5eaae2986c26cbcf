"""Quotes that are not closed, and the three kinds of line ends."""

import csv
import io
import random

import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.input import CsvDataset, csv_files, make_csv_dataset

ROWS = 3000
TEXT = {"x": "string", "y": "string"}
EXPECTED = [number for number in range(1, ROWS + 1) if number != 1000]


@pytest.fixture
def open_quote(tmp_path):
    """Row 1,000 lacks its closing quote, row 2,500 is quoted properly."""
    rows = [f"{i},word {i},{i % 7}" for i in range(1, ROWS + 1)]
    rows[999] = '1000,"word 1000,6'
    rows[2499] = '2500,"word, 2500",1'
    path = tmp_path / "open.csv"
    path.write_text("n,s,k\n" + "\n".join(rows) + "\n")
    return str(path)


def _by_name(path):
    return csv_files(path, block_bytes=1 << 20)


def _by_blocks(path):
    return csv_files(path, block_bytes=1 << 10)


def _by_batches(path):
    data = make_csv_dataset(path, 100, shuffle=False, num_epochs=1)
    return data.unbatch()


def _by_defaults(path):
    data = CsvDataset(path, [0, "", 0], header=True)
    return data.map(lambda n, s, k: {"n": n, "s": s, "k": k})


READERS = [_by_name, _by_blocks, _by_batches, _by_defaults]


@pytest.mark.parametrize("read", READERS)
def test_an_open_quote_is_an_error_at_the_line_where_it_opens(open_quote, read):
    with pytest.raises(InputError, match=r"line 1001 .*a quoted field begins here"):
        list(read(open_quote))


@pytest.mark.parametrize("read", [_by_name, _by_blocks, _by_defaults])
def test_ignoring_errors_loses_only_the_row_with_the_open_quote(open_quote, read):
    found = [int(row["n"]) for row in read(open_quote).ignore_errors()]
    assert found == EXPECTED


def test_batches_of_csv_files_lose_only_the_row_with_the_open_quote(open_quote):
    data = make_csv_dataset(
        open_quote, 100, shuffle=False, num_epochs=1, ignore_errors=True
    )
    assert np.concatenate([batch["n"] for batch in data]).tolist() == EXPECTED


@pytest.mark.parametrize("block_bytes", [1, 7, 40, 1 << 20])
@pytest.mark.parametrize(
    ("text", "line", "rest"),
    [
        ('1,"x""\n2,"y"\n', 2, [2]),
        ('0,a\n1,"x\n2,b\n3,c\n', 3, [0, 2, 3]),
        ('0,a\n1,"x\n2,""\n3,c\n', 3, [0, 2, 3]),
        ('0,a\n1,"x\n2,"",\n3,"c"\n4,d\n', 3, [0, 3, 4]),
        ('0,a\r1,"x\r2,"b"\r', 3, [0, 2]),
        ('0,a\r\n1,"x\r\n2,"b"\r\n', 3, [0, 2]),
        ('0,a\n1,x"y\n2,b\n', 3, [0, 2]),
        ('0,a\n1,"x"y\n2,b\n', 3, [0, 2]),
    ],
)
def test_a_bad_quote_names_its_line_and_costs_its_row(
    tmp_path, text, line, rest, block_bytes
):
    path = tmp_path / "a.csv"
    path.write_bytes(("n,s\n" + text).encode())
    data = csv_files(str(path), dtypes={"n": int, "s": str}, block_bytes=block_bytes)
    with pytest.raises(InputError, match=f"line {line} "):
        list(data)
    assert [int(row["n"]) for row in data.ignore_errors()] == rest


def test_a_quote_that_a_later_row_closes_costs_its_own_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('n,s\n0,a\n1,"x\n2,b\n3,", c"\n4,d\n')
    data = csv_files(str(path), dtypes={"n": int, "s": str})
    with pytest.raises(InputError, match=r"line 3 .*begins here, and then line 5 has"):
        list(data)
    found = [(int(row["n"]), row["s"]) for row in data.ignore_errors()]
    assert found == [(0, b"a"), (2, b"b"), (3, b", c"), (4, b"d")]


def test_a_row_of_several_lines_with_too_many_fields_costs_one_line(tmp_path):
    # The quote of line 2 is closed by that of line 4, and nothing is wrong but the
    # number of fields.
    path = tmp_path / "a.csv"
    path.write_text('n,s\n1,"x\n2,b\n3,",c\n4,d\n')
    data = csv_files(str(path), dtypes={"n": int, "s": str})
    with pytest.raises(InputError, match=r"line 2 .*lines 2 to 4.*not closed"):
        list(data)
    assert [int(row["n"]) for row in data.ignore_errors()] == [2, 4]


ENDS = {"lf": "\n", "crlf": "\r\n", "cr": "\r"}


@pytest.mark.parametrize("block_bytes", [1, 10, 11, 12, 13, 1 << 20])
@pytest.mark.parametrize("end", ENDS)
def test_lines_are_numbered_alike_for_every_line_end(tmp_path, end, block_bytes):
    rows = ["n,s", "1,a", '2,"b\nc"', "x,d", "4,e", "", "6,f"]
    path = tmp_path / "a.csv"
    path.write_bytes(ENDS[end].join(r.replace("\n", ENDS[end]) for r in rows).encode())
    data = csv_files(str(path), dtypes={"n": int, "s": str}, block_bytes=block_bytes)
    with pytest.raises(InputError, match="line 5 "):
        list(data)
    assert [int(row["n"]) for row in data.ignore_errors()] == [1, 2, 4, 6]


def test_a_file_with_carriage_returns_only_may_be_larger_than_a_row(
    tmp_path, monkeypatch
):
    from estimax.input.sources import csv_blocks

    monkeypatch.setattr(csv_blocks, "LONGEST_ROW", 1 << 12)
    path = tmp_path / "a.csv"
    path.write_text("n,s\r" + "".join(f"{i},abc\r" for i in range(2000)), newline="")
    found = np.concatenate(
        [batch["n"] for batch in csv_files(str(path), block_bytes=1 << 10).batch(512)]
    )
    assert found.tolist() == list(range(2000))


PIECES = [*'ab,"', "\n", "\r", "\r\n", "a,b\n", 'a,"b"\n', '"a\nb",""\n', 'a,"b\n']


def _read(path, block_bytes):
    data = csv_files(
        path, header=False, columns=["x", "y"], dtypes=TEXT, block_bytes=block_bytes
    )
    try:
        rows, error = [tuple(row.values()) for row in data], None
    except InputError as problem:
        rows, error = None, str(problem)
    return rows, error, [tuple(row.values()) for row in data.ignore_errors()]


def test_rows_and_errors_do_not_depend_on_the_size_of_blocks(tmp_path):
    choose = random.Random(7)
    path = tmp_path / "a.csv"
    whole = 0
    for _ in range(200):
        text = "".join(choose.choices(PIECES, k=choose.randint(1, 20)))
        path.write_bytes(text.encode())
        found = _read(str(path), 1 << 20)
        assert all(_read(str(path), size) == found for size in (1, 5, 16)), text
        if found[0] is not None:
            whole += 1
            rows = csv.reader(io.StringIO(text, newline=""))
            assert found[0] == [tuple(s.encode() for s in row) for row in rows], text
    assert whole > 5  # files without an error


def test_init_and_check_find_an_open_quote_as_training_does(open_quote):
    from estimax.config.profile import profile
    from estimax.config.schema.data import CsvSource
    from estimax.config.tables import text_batches

    words = r"line 1001 .*a quoted field begins here"
    with pytest.raises(InputError, match=words):
        profile(open_quote)
    source = CsvSource(format="csv", files=(open_quote,), batch_size=8)
    with pytest.raises(InputError, match=words):
        list(text_batches(open_quote, source, "train", ["n"]))
