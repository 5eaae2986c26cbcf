import datetime
import decimal
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.input import parquet_files
from estimax.input.sources.parquet import open_parquet, read_record_batches


@pytest.fixture
def write(tmp_path):
    def write(columns, name="a.parquet", **kwargs):
        path = tmp_path / name
        table = columns if isinstance(columns, pa.Table) else pa.table(columns)
        pq.write_table(table, path, **kwargs)
        return path

    return write


def first(data, n=10):
    return next(iter(data.batch(n)))


def test_numbers_keep_their_dtype_and_text_becomes_strings(write):
    kinds = [np.int8, np.int32, np.uint64, np.float32, np.float64, np.bool_]
    columns = {np.dtype(k).name: pa.array(np.array([1, 0], k)) for k in kinds}
    columns |= {"s": ["x", "yy"], "b": pa.array([b"\xff", b""], pa.large_binary())}
    batch = first(parquet_files(write(columns)))
    for kind in kinds:
        assert batch[np.dtype(kind).name].dtype == kind
    assert isinstance(batch["s"], Strings)
    assert batch["b"].tolist() == [b"\xff", b""]


def test_row_groups_and_files_follow_each_other(write, tmp_path):
    for part in range(3):
        write(
            {"n": list(range(part * 5, part * 5 + 5))},
            f"{part}.parquet",
            row_group_size=2,
        )
    data = parquet_files(tmp_path / "*.parquet")
    assert np.concatenate([b["n"] for b in data.batch(4)]).tolist() == list(range(15))


def test_only_selected_columns_are_read(write):
    path = write({"a": [1], "b": [2], "c": [3]})
    assert list(first(parquet_files(path, columns=["c", "a"]))) == ["a", "c"]


def test_an_unknown_column_names_its_neighbour(write):
    with pytest.raises(InputError, match=r"'agee', which .* did you mean 'age'"):
        parquet_files(write({"age": [1]}), columns=["agee"])


def test_lists_become_sparse_features(write):
    many = pa.array([[1, 2], None, [], [3]], pa.list_(pa.int64()))
    words = [["a"], [], ["b", "c", "d"], []]
    batch = first(parquet_files(write({"many": many, "words": words})))
    assert batch["many"].indices.tolist() == [[0, 0], [0, 1], [3, 0]]
    assert batch["many"].values.tolist() == [1, 2, 3]
    assert batch["many"].dense_shape == (4, 2)
    assert batch["words"].values.tolist() == [b"a", b"b", b"c", b"d"]
    assert batch["words"].dense_shape == (4, 3)


def test_nested_lists_have_rank_three(write):
    batch = first(parquet_files(write({"x": [[[1], [2, 3]], [], [[], [4]]]})))
    assert batch["x"].indices.tolist() == [[0, 0, 0], [0, 1, 0], [0, 1, 1], [2, 1, 0]]
    assert batch["x"].values.tolist() == [1, 2, 3, 4]
    assert batch["x"].dense_shape == (3, 2, 2)


def test_sliced_lists_start_at_their_own_values(write):
    table = pa.table({"x": [[1], [2, 2], [3]], "w": [["a"], ["b"], ["c"]]}).slice(1)
    batch = first(parquet_files(write(table)).skip(1))
    assert batch["x"].values.tolist() == [3]
    assert batch["w"].values.tolist() == [b"c"]


def test_lists_of_one_length_are_dense(write):
    vectors = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))
    assert first(parquet_files(write({"v": vectors})))["v"].tolist() == [[1, 2], [3, 4]]


def test_dictionaries_dates_and_decimals_are_read(write):
    columns = {
        "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
        "day": [datetime.date(1970, 1, 2)] * 3,
        "price": [decimal.Decimal("1.50")] * 3,
    }
    batch = first(parquet_files(write(columns)))
    assert batch["kind"].tolist() == [b"a", b"b", b"a"]
    assert batch["day"].tolist() == [1, 1, 1]
    assert batch["price"].tolist() == [1.5, 1.5, 1.5]


def test_a_missing_number_takes_its_default_or_is_an_error(write):
    path = write({"n": [1, None], "s": ["a", None]})
    words = r"a.parquet, row group 0, column 'n', row 1: expected int64"
    with pytest.raises(InputError, match=words):
        first(parquet_files(path))
    batch = first(parquet_files(path, defaults={"n": -1, "s": "?"}))
    assert batch["n"].tolist() == [1, -1]
    assert batch["s"].tolist() == [b"a", b"?"]
    assert first(parquet_files(path, defaults={"n": 0}))["s"].tolist() == [b"a", b""]


def test_a_type_that_cannot_be_used_is_named(write):
    path = write({"x": [{"a": 1}]})
    with pytest.raises(
        InputError, match=r"column 'x': cannot use values of type struc"
    ):
        first(parquet_files(path))


def test_a_file_that_is_no_parquet_is_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"hello")
    with pytest.raises(InputError, match=r"a.parquet: expected a Parquet file"):
        parquet_files(tmp_path / "a.parquet")


def test_files_with_other_columns_are_named(write, tmp_path):
    write({"a": [1], "b": [1]}, "1.parquet")
    write({"a": [1]}, "2.parquet")
    with pytest.raises(InputError, match=r"2.parquet: there is no column 'b'"):
        list(parquet_files(tmp_path / "*.parquet"))


def test_resuming_reads_that_row_group_and_the_next_one_ahead(write, monkeypatch):
    path = write({"n": list(range(1000))}, row_group_size=10)
    data = parquet_files(path).batch(5)
    iterator = iter(data)
    for _ in range(150):
        next(iterator)
    state = iterator.get_state()
    iterator.close()
    read = []
    original = pq.ParquetFile.read_row_group

    def counting(self, group, **kwargs):
        read.append(group)
        return original(self, group, **kwargs)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counting)
    resumed = iter(data)
    resumed.set_state(state)
    assert next(resumed)["n"].tolist() == list(range(750, 755))
    resumed.close()
    assert read == [75, 76]  # the second while the first is cut


def test_going_elsewhere_drops_what_was_read_ahead(write):
    path = write({"n": list(range(100))}, row_group_size=10)
    with iter(parquet_files(path).batch(10)) as iterator:
        start = iterator.get_state()
        for _ in range(3):
            assert next(iterator)["n"][0] == 0
            state = iterator.get_state()
            iterator.set_state(start)
        iterator.set_state(state)
        assert [int(batch["n"][0]) for batch in iterator] == list(range(10, 100, 10))


def test_large_row_groups_are_not_read_ahead(write, monkeypatch):
    monkeypatch.setattr("estimax.input.sources.parquet._MOST_AHEAD", 10)
    path = write({"n": list(range(30))}, row_group_size=10)
    threads = threading.active_count()
    with iter(parquet_files(path).batch(10)) as iterator:
        assert next(iterator)["n"].tolist() == list(range(10))
        assert threading.active_count() == threads


def test_a_column_whose_name_is_damaged_is_an_error_with_the_file(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"caf\xe9": [1, 2]}), path, store_schema=False)
    data = path.read_bytes()
    assert b"caf\xc3\xa9" in data
    path.write_bytes(data.replace(b"caf\xc3\xa9", b"caf\xc3\xff"))
    with pytest.raises(InputError, match=r"a\.parquet: the name of a column is not"):
        parquet_files(str(path))


def bad_table(rows, bad):
    """Columns of every kind; `age` is missing in the rows of `bad`."""
    return pa.table(
        {
            "n": np.arange(rows),
            "city": [f"city {i}" if i % 3 else None for i in range(rows)],
            "clicks": [list(range(i % 4)) for i in range(rows)],
            "at": pa.array([[i, -i] for i in range(rows)], pa.list_(pa.int64(), 2)),
            "is_new": [i % 2 == 0 for i in range(rows)],
            "age": [None if i in bad else i / 2 for i in range(rows)],
        }
    )


@pytest.mark.parametrize(
    "bad", [{0}, {299}, {5, 6, 7}, set(range(100, 140)), {99, 100, 250}]
)
def test_only_the_rows_with_missing_values_are_skipped(tmp_path, bad):
    path = tmp_path / "a.parquet"
    pq.write_table(bad_table(300, bad), path, row_group_size=100)
    good = [i for i in range(300) if i not in bad]
    rows = next(iter(parquet_files(path).ignore_errors().batch(1000)))
    whole = next(iter(parquet_files(path, columns=["n", "city", "at"]).batch(1000)))
    assert rows["n"].tolist() == good
    assert rows["age"].tolist() == [i / 2 for i in good]
    assert rows["at"].tolist() == whole["at"][good].tolist()
    assert rows["city"].tolist() == whole["city"][np.array(good)].tolist()
    assert rows["is_new"].tolist() == [i % 2 == 0 for i in good]
    counts = np.bincount(rows["clicks"].indices[:, 0], minlength=len(good))
    assert counts.tolist() == [i % 4 for i in good]
    assert rows["clicks"].values.tolist() == [k for i in good for k in range(i % 4)]


def test_the_error_is_that_of_the_first_bad_row_of_any_column(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1.0, None, 3.0], "b": [None, 2.0, 3.0]}), path)
    iterator = iter(parquet_files(path))
    with pytest.raises(InputError, match=r"column 'b', row 0: expected double"):
        next(iterator)


def test_a_run_resumes_behind_bad_rows_of_a_parquet_file(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(bad_table(300, {3, 50, 120, 121}), path, row_group_size=100)
    data = parquet_files(path, columns=["n", "age"]).ignore_errors().batch(7)
    whole = [rows["n"].tolist() for rows in data]
    for k in (0, 1, 7, 8, 17, 20, len(whole)):
        iterator = iter(data)
        for _ in range(k):
            next(iterator)
        resumed = iter(data)
        resumed.set_state(iterator.get_state())
        assert [rows["n"].tolist() for rows in resumed] == whole[k:]


@pytest.mark.parametrize(
    ("start", "rows", "expected"),
    [
        ((0, 0), None, range(50)),
        ((2, 5), None, range(25, 50)),
        ((2, 5), 12, range(25, 37)),
        ((4, 9), 5, range(49, 50)),
        ((1, 0), 0, range(0)),
    ],
)
def test_record_batches_are_read_from_a_row_on(write, start, rows, expected):
    path = write({"n": list(range(50)), "s": ["a"] * 50}, row_group_size=10)
    with open_parquet(str(path)) as file:
        batches = read_record_batches(
            file, str(path), ["n"], start=start, rows=rows, batch_rows=4
        )
        assert [n for batch in batches for n in batch["n"].to_pylist()] == [*expected]


def test_record_batches_of_a_damaged_file_name_the_file(write):
    path = write({"n": list(range(5000))}, compression="gzip", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[200:400] = bytes(200)
    path.write_bytes(data)
    with (
        open_parquet(str(path)) as file,
        pytest.raises(InputError, match=r"a\.parquet: cannot be read: .*damaged"),
    ):
        list(read_record_batches(file, str(path), None))
