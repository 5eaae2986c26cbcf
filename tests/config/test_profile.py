"""What a table holds, column by column."""

import pyarrow as pa
import pyarrow.parquet
import pytest

from estimax.config.profile import profile
from estimax.core.errors import InputError, MissingFileError


def written(folder, text, name="t.csv"):
    path = folder / name
    path.write_text(text)
    return str(path)


def test_kinds_and_missing_values_are_found(tmp_path):
    text = "a,b,c,d\n1,0.5,x,NA\n2,?,y,3\n3,1e3,x,\n"
    table = profile(written(tmp_path, text))
    kinds = {c.name: (c.kind, c.missing, c.distinct) for c in table.columns}
    assert kinds == {
        "a": ("int", 0, 3),
        "b": ("float", 1, 2),
        "c": ("text", 0, 2),
        "d": ("int", 2, 1),
    }
    assert table.null_words == ("?", "NA")
    assert table.column("c").words == (("x", 2), ("y", 1))


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_the_delimiter_is_found(tmp_path, mark):
    table = profile(written(tmp_path, f"a{mark}b\n1{mark}2,5\n"))
    assert (table.names, table.delimiter) == (["a", "b"], mark)


def test_quantiles_of_a_column_that_is_mostly_zero_are_those_of_the_rest(tmp_path):
    values = ["0"] * 95 + ["1", "2", "3", "4", "5"]
    column = profile(written(tmp_path, "x\n" + "\n".join(values) + "\n")).columns[0]
    assert len(column.quantiles) > 3
    assert min(column.quantiles) > 0


def test_dates_and_numbered_rows_are_recognised(tmp_path):
    text = "day,row\n2020-01-01,1\n2020-01-02,2\n"
    day, row = profile(written(tmp_path, text)).columns
    assert day.is_date
    assert row.is_rising


def test_parquet_is_read_as_well(tmp_path):
    table = pa.table({"x": [1.5, None], "w": ["a", "b"], "many": [[1], [2]]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    found = profile(str(tmp_path / "t.parquet"))
    assert found.names == ["x", "w"], "lists are no features of a run file"
    assert found.column("x").missing == 1


def test_a_long_table_is_counted_and_its_rows_are_evenly_chosen(tmp_path):
    text = "x\n" + "".join(f"{row}\n" for row in range(50))
    table = profile(written(tmp_path, text), most_rows=20)
    assert (table.rows, table.is_complete) == (50, False)
    # Every fourth row: 50 and 25 are too many.
    column = table.columns[0]
    assert (column.rows, column.low, column.high) == (13, 0, 48)


def test_quoted_line_breaks_are_no_rows(tmp_path):
    text = "x,y\n" + '"a\nb",1\n' * 30
    assert profile(written(tmp_path, text), most_rows=20).rows == 30


def test_rows_of_several_row_groups_are_evenly_chosen(tmp_path):
    table = pa.table({"x": list(range(100))})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=7)
    found = profile(str(tmp_path / "t.parquet"), most_rows=30)
    assert (found.rows, found.columns[0].rows, found.columns[0].high) == (100, 25, 96)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a,b\n1,2\n3\n", "cannot be read as CSV"),
        (b"a,a\n1,2\n", "two columns are named 'a'"),
        (b"a,b\n", "no rows"),
        (b"\xff\xfe\x00", "UTF-8"),
    ],
)
def test_a_file_that_is_no_table_is_told(tmp_path, content, words):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(InputError, match=words):
        profile(str(tmp_path / "t.csv"))


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(MissingFileError, match="no such file"):
        profile(str(tmp_path / "gone.csv"))


def test_a_file_to_unpack_is_told(tmp_path):
    path = tmp_path / "t.csv.zip"
    path.write_bytes(b"PK\x03\x04\xfe\xff\x80")
    with pytest.raises(InputError, match="Unpack it"):
        profile(str(path))
