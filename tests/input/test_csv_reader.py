import subprocess
import sys

import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.input import csv_files
from estimax.input.sources import csv_blocks
from estimax.input.sources.file_blocks import arrow_reader


@pytest.fixture
def write(tmp_path):
    def write(text, name="a.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


def table(data):
    """All rows, as lists by column."""
    batches = list(data.batch(1000))
    return {} if not batches else {k: v.tolist() for k, v in batches[0].items()}


def test_dtypes_are_inferred_as_int64_float32_or_text(write):
    path = write("i,f,s,b,d\n1,1.5,x,true,2020-01-01\n2,,y,false,2021-01-01\n")
    batch = next(iter(csv_files(path, defaults={"f": 0}).batch(2)))
    kinds = {k: str(getattr(v, "dtype", "text")) for k, v in batch.items()}
    assert kinds == {
        "i": "int64",
        "f": "float32",
        "s": "text",
        "b": "text",
        "d": "text",
    }
    assert batch["f"].tolist() == [1.5, 0]
    assert batch["d"].tolist() == [b"2020-01-01", b"2021-01-01"]


def test_given_dtypes_hold(write):
    path = write("a,b,c,d\n1,2,3,4\n")
    dtypes = {"a": "float32", "b": np.float64, "c": str, "d": int}
    batch = next(iter(csv_files(path, dtypes=dtypes).batch(1)))
    assert batch["a"].dtype == np.float32
    assert batch["b"].dtype == np.float64
    assert isinstance(batch["c"], Strings)
    assert batch["d"].dtype == np.int64


@pytest.mark.parametrize("block_bytes", [1, 7, 20, 1 << 20])
def test_quoted_fields_may_hold_delimiters_quotes_and_line_breaks(write, block_bytes):
    path = write('n,s\n1,"a,b"\n2,"say ""hi"""\n3,"two\nlines"\n4,\n5,"""\n"""\n')
    found = table(csv_files(path, block_bytes=block_bytes))
    assert found["n"] == [1, 2, 3, 4, 5]
    assert found["s"] == [b"a,b", b'say "hi"', b"two\nlines", b"", b'"\n"']


@pytest.mark.parametrize("block_bytes", [1, 3, 8, 100])
@pytest.mark.parametrize("text", ["a,b\r\n1,x\r\n2,y\r\n", "a,b\n1,x\n2,y"])
def test_line_ends_and_a_missing_last_one_do_not_matter(write, text, block_bytes):
    found = table(csv_files(write(text), block_bytes=block_bytes))
    assert found == {"a": [1, 2], "b": [b"x", b"y"]}


def test_a_byte_order_mark_is_no_part_of_the_first_name(write):
    assert list(table(csv_files(write(b"\xef\xbb\xbfa,b\n1,2\n")))) == ["a", "b"]


def test_text_is_bytes_and_need_not_be_unicode(write):
    found = table(csv_files(write(b"a,b\n1,\xff\xfe\n")))
    assert found["b"] == [b"\xff\xfe"]


def test_quotes_can_be_ordinary_characters(write):
    found = table(csv_files(write('a,b\n5",x"y\n'), quote=None))
    assert found == {"a": [b'5"'], "b": [b'x"y']}


def test_selected_columns_come_in_file_order(write):
    found = table(csv_files(write("a,b,c\n1,2,3\n"), select=["c", "a"]))
    assert found == {"a": [1], "c": [3]}
    assert list(found) == ["a", "c"]


def test_missing_values_take_their_defaults(write):
    path = write("a,s,f\nNA,NA,1\n2,,\n")
    data = csv_files(
        path,
        null_values=("", "NA"),
        dtypes={"a": "int64"},
        defaults={"a": -1, "f": float("nan")},
    )
    found = table(data)
    assert found["a"] == [-1, 2]
    assert found["s"] == [b"", b""]
    assert np.isnan(found["f"][1])


def test_text_can_have_a_default_of_its_own(write):
    found = table(csv_files(write('s,n\n,1\n"",2\nx,3\n'), defaults={"s": "none"}))
    assert found["s"] == [b"none", b"none", b"x"]


def test_files_without_a_header_are_named_by_the_caller(write):
    path = write("1;x\n2;y\n")
    data = csv_files(path, header=False, columns=["n", "s"], delimiter=";")
    assert table(data) == {"n": [1, 2], "s": [b"x", b"y"]}


def test_given_columns_rename_those_of_a_header(write):
    assert table(csv_files(write("a,b\n1,2\n"), columns=["x", "y"])) == {
        "x": [1],
        "y": [2],
    }


def test_a_pattern_reads_its_files_in_sorted_order(write, tmp_path):
    for name in ("b", "a", "c"):
        write(f"s\n{name}\n", f"{name}.csv")
    assert table(csv_files(tmp_path / "*.csv"))["s"] == [b"a", b"b", b"c"]
    explicit = [tmp_path / "c.csv", tmp_path / "a.csv"]
    assert table(csv_files(explicit))["s"] == [b"c", b"a"]


def test_files_with_only_a_header_have_no_rows(write, tmp_path):
    write("n\n", "a.csv")
    write("n\n7\n", "b.csv")
    assert table(csv_files(tmp_path / "*.csv")) == {"n": [7]}
    assert table(csv_files(tmp_path / "a.csv")) == {}


def test_resuming_seeks_and_reads_one_block(write, monkeypatch):
    path = write("n,s\n" + "".join(f"{i},row{i}\n" for i in range(10_000)))
    data = csv_files(path, block_bytes=1000).batch(10)
    iterator = iter(data)
    for _ in range(900):
        next(iterator)
    state = iterator.get_state()
    read = []
    original = csv_blocks.read_rows

    def counting(path, offset, *rest):
        read.append(offset)
        return original(path, offset, *rest)

    monkeypatch.setattr("estimax.input.sources.csv_reader.read_rows", counting)
    resumed = iter(data)
    resumed.set_state(state)
    assert next(resumed)["n"].tolist() == list(range(9000, 9010))
    assert len(read) == 1
    assert read[0] > 90_000


def test_the_block_size_may_change_when_resuming(write):
    path = write("n\n" + "".join(f"{i}\n" for i in range(1000)))
    iterator = iter(csv_files(path, block_bytes=1000).batch(130))
    next(iterator)
    for block_bytes in (1, 10, 10_000):
        resumed = iter(csv_files(path, block_bytes=block_bytes).batch(1000))
        resumed.set_state(iterator.get_state())
        assert next(resumed)["n"].tolist() == list(range(130, 1000))


def test_a_position_in_another_file_is_refused(write):
    state = iter(csv_files(write("n\n1\n", "a.csv"))).get_state()
    with pytest.raises(InputError, match=r"missing: a.csv; new: b.csv"):
        iter(csv_files(write("n\n1\n", "b.csv"))).set_state(state)


def test_a_position_behind_the_end_of_a_shortened_file_is_refused(write):
    path = write("n\n" + "1\n" * 100)
    iterator = iter(csv_files(path, block_bytes=10).batch(90))
    next(iterator)
    write("n\n1\n")
    with pytest.raises(InputError, match=r"had 202 bytes .* has 4 now"):
        next(iterator)


def read(path, **kwargs):
    return list(csv_files(path, **kwargs).batch(1000))


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        (
            "a,b\n1,2\n3\n",
            {},
            r"a.csv, line 3 \(byte 8\): expected 2 fields \(a to b\), found 1",
        ),
        ("a,b\n1,2\n3,4,5\n", {}, "line 3 .*: expected 2 fields .* found 3: '3', '4'"),
        ("a,b\n1,2\n\n3,4\n", {}, "line 3 .*: the line is empty"),
        (
            'a,b\n"x\ny",2\n3,x\n',
            {"dtypes": {"b": "int64"}},
            "line 4 .*: column 'b': expected int64 .as given in dtypes., found 'x'",
        ),
        (
            "a,b\n1,2\n3,1.5\n",
            {"dtypes": {"b": "int64"}},
            "pass dtypes={'b': 'float32'}",
        ),
        (
            "a\n1\n99999999999\n",
            {"dtypes": {"a": "int32"}},
            "line 3 .*: column 'a': expected int32.* found '99999999999'",
        ),
        (
            "a,b\n1,2\n,4\n",
            {},
            "line 3 .*: column 'a': expected int64, found a missing value .*defaults=",
        ),
        ('a,b\n1,2\n3,x"y\n', {}, 'line 3 .*: found a " inside a field'),
        ('a,b\n1,x"y"\n', {}, 'line 2 .*: found a " inside a field'),
        ('a,b\n1,"x"y\n3,4\n', {}, 'line 2 .*: found a " inside a field'),
        ('a,b\n1,2\n3,"x\n4,5\n', {}, "line 3 .*: a quoted field begins here and does"),
        ("", {}, "line 1: expected a header"),
        ("a,a\n1,2\n", {}, "more than one column is named 'a'"),
        ("a,b\n1,2\n", {"select": ["bb"]}, "select names column 'bb'"),
        ("a,b\n1,2\n", {"dtypes": {"c": int}}, "dtypes names column 'c'"),
        ("a,b\n1,2\n", {"defaults": {"c": 1}}, "defaults names column 'c'"),
        ("a,b\n1,2\n", {"dtypes": {"a": "int46"}}, "'int46'; did you mean 'int64'"),
        ("a,b\n1,2\n", {"columns": ["a"]}, "has 1 names, the header has 2: a, b"),
        ("1,2\n", {"header": False}, r"requires columns=\[…\]"),
        ("a,b\n1,2\n", {"delimiter": "::"}, "delimiter must be one character"),
        (
            "a\n\n",
            {"dtypes": {"a": int}, "defaults": {"a": "x"}},
            "expected int64, got",
        ),
    ],
)
def test_bad_files_are_named_with_line_column_and_remedy(write, text, arguments, words):
    with pytest.raises(InputError, match=words):
        read(write(text), **arguments)


def test_an_inferred_dtype_that_fails_later_says_where_it_came_from(write):
    long = "x" * 1000
    path = write("a,b\n" + f"{long},2\n" * 2000 + "1,oops\n")
    words = "line 2002 .*: column 'b': expected int64 .inferred from the first rows."
    with pytest.raises(InputError, match=words):
        for _ in csv_files(path).batch(10_000):
            pass


def test_line_numbers_hold_after_a_resume(write):
    path = write("a\n" + "1\n" * 100 + "x\n")
    data = csv_files(path, dtypes={"a": int}, block_bytes=20).batch(50)
    iterator = iter(data)
    next(iterator)
    resumed = iter(data)
    resumed.set_state(iterator.get_state())
    with pytest.raises(InputError, match=r"line 102 .*: column 'a'"):
        list(resumed)


def test_headers_that_differ_between_files_are_shown(write, tmp_path):
    write("a,b\n1,2\n", "1.csv")
    write("b,a\n1,2\n", "2.csv")
    words = r"2.csv, line 1: the header differs .*1.csv: expected a, b; found b, a"
    with pytest.raises(InputError, match=words):
        read(tmp_path / "*.csv")


def test_missing_files_and_empty_patterns_fail_at_construction(tmp_path):
    with pytest.raises(InputError, match=r"no\.csv: there is no such file"):
        csv_files(tmp_path / "no.csv")
    with pytest.raises(InputError, match=r"no file matches '.*\*\.csv'"):
        csv_files(tmp_path / "*.csv")
    with pytest.raises(InputError, match="found a folder"):
        csv_files(tmp_path)
    with pytest.raises(InputError, match="no input files"):
        csv_files([])


def test_a_row_larger_than_a_block_is_read(write):
    long = "x" * 5000
    found = table(csv_files(write(f"n,s\n1,{long}\n2,b\n"), block_bytes=16))
    assert found["s"] == [long.encode(), b"b"]


def test_importing_the_room_imports_neither_pyarrow_nor_pandas():
    program = (
        "import sys, estimax.input\n"
        "assert not {'pyarrow', 'pandas'} & sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert done.returncode == 0, done.stderr


def test_a_file_without_rows_is_named_once(tmp_path, caplog):
    path = tmp_path / "empty.csv"
    path.write_text("age,city\n")
    data = csv_files([path], dtypes={"age": "float32", "city": "string"})
    with caplog.at_level("WARNING", "estimax"):
        assert list(data) == list(data) == []
    assert [r.message for r in caplog.records] == [
        f"{path}: the file has no rows below its header"
    ]


def test_text_that_is_not_utf_8_is_an_error_of_its_row(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("n,city\n1,Zürich\n".encode() + b"2,Z\xfcrich\n3,Bern\n")
    words = r"a.csv, line 3 \(byte 17\): column 'city': the text is not UTF-8: b'Z"
    with pytest.raises(InputError, match=words):
        list(csv_files(path, encoding="utf-8"))
    data = csv_files(path, encoding="utf8").ignore_errors()
    assert [int(row["n"]) for row in data] == [1, 3]
    numbers = csv_files(path, select=["n"], encoding="utf-8")
    assert [int(row["n"]) for row in numbers] == [1, 2, 3], "other columns are not read"


def test_text_of_an_older_encoding_becomes_utf_8(tmp_path):
    path = tmp_path / "a.csv"
    rows = "größe,city\n1,Zürich\n,\n2,Zürich\n"
    path.write_bytes(rows.encode("cp1252"))
    data = csv_files(path, encoding="cp1252", defaults={"größe": 0})
    batch = next(iter(data.batch(3)))
    assert list(batch) == ["größe", "city"]
    assert batch["city"].tolist() == ["Zürich".encode(), b"", "Zürich".encode()]
    path.write_bytes(b"city\nOslo\n\x81\n")
    with pytest.raises(InputError, match=r"line 3 .*: the text is not cp1252: b'"):
        list(csv_files(path, encoding="cp1252"))


@pytest.mark.parametrize("encoding", ["utf-16", "shift_jis", "rot13", "nonsense"])
def test_encodings_whose_rows_cannot_be_cut_are_refused(tmp_path, encoding):
    (tmp_path / "a.csv").write_text("a\n1\n")
    with pytest.raises(InputError, match=rf"encoding: .*'{encoding}'"):
        csv_files(tmp_path / "a.csv", encoding=encoding)


@pytest.mark.parametrize("encoding", ["utf-16", "latin1"])
def test_a_header_that_is_not_utf_8_is_refused_with_a_command(tmp_path, encoding):
    path = tmp_path / "old.csv"
    path.write_text("größe,city\n1,rome\n", encoding)
    with pytest.raises(InputError, match=f"line 1: .* iconv -f {encoding} -t utf-8"):
        csv_files(path)


def test_arrow_reads_a_copy_so_that_no_thread_of_its_pool_releases_python_bytes():
    data = bytes(range(256)) * 10
    references = sys.getrefcount(data)
    reader = arrow_reader(data)
    assert sys.getrefcount(data) == references
    assert reader.read() == data
    assert arrow_reader(b"").read() == b""
