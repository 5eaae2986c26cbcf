"""Short CSV files are parsed together, and nothing else changes."""

import gzip
import json

import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.input import csv_files
from estimax.input.sources import csv_joining, csv_reader

DTYPES = {"n": "int64", "s": "string"}
COUNT = 40


def _texts():
    """Forty files: line ends, quotes, missing last line breaks, and no rows differ."""
    rng = np.random.default_rng(0)
    texts, number = [], 0
    for file in range(COUNT):
        end = ("\n", "\r\n", "\n", "\r")[file % 4]
        rows = []
        for _ in range(int(rng.integers(0 if file % 10 == 9 else 1, 6))):
            word = ("x", "", '"a,b"', '"two\nlines"', '"say ""hi"""')[number % 5]
            rows.append(f"{number},{word}")
            number += 1
        text = end.join(["n,s", *rows])
        texts.append(text if file % 3 == 0 and rows else text + end)
    return texts, number


@pytest.fixture
def folder(tmp_path):
    for i, text in enumerate(_texts()[0]):
        (tmp_path / f"{i:02}.csv").write_bytes(text.encode())
    return tmp_path


@pytest.fixture
def counted(monkeypatch):
    """The sizes of the blocks that pyarrow parses, in a list."""
    sizes = []

    def count(parse):
        def counting(block, *args):
            sizes.append(block.end)
            return parse(block, *args)

        return counting

    monkeypatch.setattr(csv_reader, "parse", count(csv_reader.parse))
    monkeypatch.setattr(csv_joining, "parse", count(csv_joining.parse))
    return sizes


def _data(folder, **options):
    return csv_files(str(folder / "*.csv"), dtypes=DTYPES, **options)


def _rows(data):
    return [(int(row["n"]), row["s"]) for row in data]


def _write_rows(folder, count, rows=2, bad=None):
    """Write files of `rows` rows; file `bad` has text for a number in its last row."""
    for file in range(count):
        values = [str(file * rows + i) for i in range(rows)]
        if file == bad:
            values[-1] = "many"
        lines = "".join(f"{value},x\n" for value in values)
        (folder / f"{file:04}.csv").write_text(f"n,s\n{lines}")


def test_rows_do_not_depend_on_which_files_are_joined(folder):
    total = _texts()[1]
    # A block of 1 byte joins nothing; larger ones join more and more.
    found = [_rows(_data(folder, block_bytes=1 << bits)) for bits in (0, 9, 11, 22)]
    assert [number for number, _ in found[0]] == list(range(total))
    assert found[1] == found[2] == found[3] == found[0]


def test_short_files_are_parsed_together(tmp_path, counted):
    _write_rows(tmp_path, 600)
    assert [n for n, _ in _rows(_data(tmp_path))] == list(range(1200))
    assert len(counted) < 15


def test_long_files_are_not_joined(tmp_path, counted):
    _write_rows(tmp_path, 6, rows=30)
    assert len(_rows(_data(tmp_path, block_bytes=1024))) == 180
    assert len(counted) == 6


def test_a_joined_block_is_no_larger_than_a_block(tmp_path, counted):
    _write_rows(tmp_path, 300)
    assert len(_rows(_data(tmp_path, block_bytes=1024))) == 600
    assert max(counted) <= 1024
    assert max(counted) > 900


def test_reading_resumes_at_every_row(folder):
    data = _data(folder)
    expected = _rows(data)
    iterator = iter(data)
    for done in range(len(expected) + 1):
        resumed = iter(data)
        # As JSON, because a checkpoint stores it so.
        resumed.set_state(json.loads(json.dumps(iterator.get_state())))
        assert _rows(resumed) == expected[done:]
        next(iterator, None)


def test_positions_are_those_of_files_that_are_read_alone(folder):
    expected = _rows(_data(folder))
    joined, alone = _data(folder), _data(folder, block_bytes=1)
    iterator = iter(joined)
    for done in range(1, len(expected)):
        next(iterator)
        resumed = iter(alone)
        resumed.set_state(iterator.get_state())
        assert _rows(resumed) == expected[done:]


def test_a_position_keeps_after_the_iterator_is_closed(tmp_path):
    _write_rows(tmp_path, 50)
    data = _data(tmp_path)
    iterator = iter(data)
    for _ in range(33):
        next(iterator)
    iterator.close()
    resumed = iter(data)
    resumed.set_state(iterator.get_state())
    assert next(resumed)["n"] == 33


@pytest.mark.parametrize("bad", [0, 1, 17, 149])
def test_an_error_names_the_file_and_the_line(tmp_path, bad):
    _write_rows(tmp_path, 150, rows=3, bad=bad)
    with pytest.raises(InputError, match=rf"{bad:04}\.csv, line 4 \(byte") as found:
        _rows(_data(tmp_path))
    assert "found 'many'" in str(found.value)


def test_rows_before_an_error_are_read_and_the_bad_ones_can_be_ignored(tmp_path):
    _write_rows(tmp_path, 150, rows=3, bad=100)
    found = _rows(_data(tmp_path).ignore_errors())
    assert [n for n, _ in found] == [n for n in range(450) if n != 302]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n,t\n1,x\n", "the header differs"),
        ('n,s\n1,"x\n', "a quoted field begins here and does not end"),
        ("n,s\n1,x\n\n2,y\n", "the line is empty"),
        ("n,s\n1,x,y\n", "expected 2 fields"),
        ("", "expected a header"),
    ],
)
def test_a_bad_file_among_short_ones_has_the_message_of_its_own(tmp_path, text, words):
    _write_rows(tmp_path, 60)
    (tmp_path / "0030.csv").write_text(text)
    with pytest.raises(InputError, match=words) as found:
        _rows(_data(tmp_path))
    assert "0030.csv" in str(found.value)
    numbers = [n for n, _ in _rows(_data(tmp_path).ignore_errors())]
    assert set(range(120)) - set(numbers) <= {60, 61}
    assert numbers[:60] == list(range(60))
    assert numbers[-58:] == list(range(62, 120))


def test_a_file_that_disappears_is_named(tmp_path):
    _write_rows(tmp_path, 60)
    data = _data(tmp_path)
    (tmp_path / "0030.csv").unlink()
    with pytest.raises(InputError, match=r"0030\.csv: cannot be read"):
        _rows(data)


def test_compressed_files_are_joined(tmp_path, counted):
    for file in range(100):
        data = gzip.compress(f"n,s\n{file},x\n".encode())
        (tmp_path / f"{file:03}.csv").write_bytes(data)
    rows = _rows(_data(tmp_path, compression="GZIP"))
    assert [n for n, _ in rows] == list(range(100))
    assert len(counted) < 10


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_files_without_a_header_are_joined(tmp_path, mark, counted):
    for file in range(100):
        # Some files have a byte order mark that the others lack.
        given = mark if file % 50 else b"\xef\xbb\xbf"
        (tmp_path / f"{file:03}.csv").write_bytes(given + b"%d,x" % file)
    rows = _rows(_data(tmp_path, header=False, columns=["n", "s"]))
    assert [n for n, _ in rows] == list(range(100))
    assert len(counted) < 25


def test_a_column_of_empty_lines_keeps_its_rows(tmp_path):
    for file in range(30):
        (tmp_path / f"{file:03}.csv").write_text("s\na\n\n\nb")
    rows = [row["s"] for row in csv_files(str(tmp_path / "*.csv"))]
    assert rows == [b"a", b"", b"", b"b"] * 30


def test_a_header_that_ends_with_cr_is_told_from_one_with_cr_lf(tmp_path):
    for file in range(20):
        end = "\r" if file < 10 else "\r\n"
        (tmp_path / f"{file:03}.csv").write_bytes(f"n,s{end}{file},x{end}".encode())
    assert [n for n, _ in _rows(_data(tmp_path))] == list(range(20))
