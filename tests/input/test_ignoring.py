import gzip
import logging

import pytest

from estimax.core.errors import InputError, TooManyErrorsError
from estimax.formats.records import write_records
from estimax.input import CsvDataset, Dataset, TFRecordDataset, csv_files


def test_a_bad_row_is_told_once_and_the_rows_around_it_are_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("n,s\n1,a\n2,b\nx,c\n4,d\n")
    iterator = iter(csv_files(path, dtypes={"n": "int64"}))
    assert [next(iterator)["n"], next(iterator)["n"]] == [1, 2]
    words = r"a.csv, line 4 \(byte 12\): column 'n': expected int64 .* found 'x'"
    with pytest.raises(InputError, match=words):
        next(iterator)
    assert next(iterator)["n"] == 4


def test_bad_rows_are_left_out_and_counted(tmp_path, caplog):
    path = tmp_path / "a.csv"
    rows = ["1,a", "2", "x,c", '4,"d', '5",e', "6,f", "", "7,g"]
    path.write_text("\n".join(rows) + "\n")
    data = CsvDataset(path, [0, ""], use_quote_delim=False).ignore_errors()
    iterator = iter(data.batch(10))
    assert [n.tolist() for n, _ in iterator] == [[1, 4, 6, 7]]
    assert iterator.ignored_errors == 4
    assert "4 errors were ignored" in caplog.text


def test_a_stray_quote_costs_its_row(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('1,a\n2,b"b"\n3,c\n')
    data = CsvDataset(path, [0, ""]).ignore_errors()
    assert [int(n) for n, _ in data] == [1, 3]


def test_many_bad_rows_do_not_read_the_block_each_time(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("".join(f"{'x' if i % 100 == 7 else i},a\n" for i in range(20_000)))
    iterator = iter(CsvDataset(path, [0, ""]).ignore_errors().batch(50_000))
    assert len(next(iterator)[0]) == 19_800
    assert iterator.ignored_errors == 200


def test_a_damaged_record_ends_its_file_alone(tmp_path):
    paths = [tmp_path / f"{i}.tfrecord" for i in range(3)]
    for i, path in enumerate(paths):
        write_records(path, [b"%d-%d" % (i, k) for k in range(4)])
    data = bytearray(paths[1].read_bytes())
    data[2 * 19 + 13] ^= 1  # in the third record's data
    paths[1].write_bytes(bytes(data))
    with pytest.raises(InputError, match=r"1.tfrecord, record 2 \(byte 38\)"):
        list(TFRecordDataset(paths))
    iterator = iter(TFRecordDataset(paths).ignore_errors())
    found = list(iterator)
    assert found[4:6] == [b"1-0", b"1-1"]
    assert found[6] == b"2-0"
    assert len(found) == 10
    assert iterator.ignored_errors == 1


@pytest.mark.parametrize("parallel", [None, 2])
def test_failing_calls_of_map_are_left_out(parallel):
    data = Dataset.range(6).batch(1).map(lambda x: 6 // int(x[0]), parallel)
    iterator = iter(data.prefetch(2).ignore_errors())
    assert [int(x) for x in iterator] == [6, 3, 2, 1, 1]
    assert iterator.ignored_errors == 1


@pytest.mark.parametrize("threads", [None, 3])
def test_only_the_failing_rows_of_many_are_lost(threads):
    def inverse(x):
        return 100 // (int(x) % 10)

    data = Dataset.range(100).map(inverse, threads).ignore_errors()
    iterator = iter(data.batch(200))
    assert len(next(iterator)) == 90
    assert iterator.ignored_errors == 10


@pytest.mark.parametrize("threads", [None, 2])
def test_errors_before_a_shuffle_or_beside_other_files_lose_no_row(tmp_path, threads):
    for part in range(3):
        rows = [f"{part * 100 + i},a" for i in range(100)]
        rows[50 + part] = "bad"
        (tmp_path / f"{part}.csv").write_text("\n".join(rows))
    files = Dataset.list_files(str(tmp_path / "*.csv"), shuffle=False)
    data = files.interleave(
        lambda path: CsvDataset(path, [0, ""]), 2, 3, num_parallel_calls=threads
    )
    for made in (data.shuffle(30, seed=1), data, data.prefetch(5)):
        iterator = iter(made.ignore_errors())
        found = [int(n) for n, _ in iterator]
        assert sorted(found) == sorted({*range(300)} - {50, 151, 252})
        assert iterator.ignored_errors == 3
        iterator.close()


@pytest.mark.parametrize("threads", [None, 2])
def test_only_the_failing_rows_of_inner_blocks_are_lost(threads):
    def refuse(block):
        if (block % 100 == 7).any():
            raise ValueError("seven")
        return block

    data = Dataset.range(2).interleave(
        lambda i: Dataset.range(i * 200, i * 200 + 200).map_blocks(refuse),
        cycle_length=2,
        num_parallel_calls=threads,
    )
    with iter(data.ignore_errors().batch(1000)) as iterator:
        assert len(next(iterator)) == 396
        assert iterator.ignored_errors == 4


def test_an_error_still_to_come_is_not_lost_by_a_resume(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("0,a\n1,a\nbad\n3,a\n")

    def make():
        return Dataset.range(1).interleave(lambda i: CsvDataset(path, [0, ""]), 1)

    iterator = iter(make())
    for _ in range(2):
        next(iterator)
    resumed = iter(make())
    resumed.set_state(iterator.get_state())
    for one in (iterator, resumed):
        with pytest.raises(InputError, match=r"line 3 \(byte 8\)"):
            next(one)
        assert int(next(one)[0]) == 3


def test_an_error_comes_before_the_shuffled_window_it_cuts_short(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("0,a\n1,a\nbad\n3,a\n")
    data = CsvDataset(path, [0, ""]).shuffle(10, seed=1)
    iterator = iter(data)
    with pytest.raises(InputError, match=r"line 3 \(byte 8\)"):
        next(iterator)
    states = [iterator.get_state()]
    rows = []
    for row in iterator:  # the error is told once, also after a resume
        rows.append(int(row[0]))
        states.append(iterator.get_state())
    assert (sorted(rows[:2]), rows[2]) == ([0, 1], 3)
    for given, state in enumerate(states):
        resumed = iter(data)
        resumed.set_state(state)
        assert [int(row[0]) for row in resumed] == rows[given:]


def test_a_generator_that_fails_has_ended():
    def generate():
        yield 1
        raise RuntimeError("broken")

    iterator = iter(Dataset.from_generator(generate).ignore_errors())
    assert [int(x) for x in iterator] == [1]
    assert iterator.ignored_errors == 1


def test_warnings_name_what_was_ignored(caplog):
    # An error in words of its own: Python's own wording of 1 // 0 changed in 3.14.
    def price(x):
        if x == 0:
            raise ValueError("row 0 has no price")
        return x

    data = Dataset.range(2).map(price).ignore_errors(log_warning=True)
    with caplog.at_level(logging.WARNING):
        list(data)
    assert "row 0 has no price" in caplog.text


def test_a_missing_file_is_named_and_can_be_ignored(tmp_path):
    there = tmp_path / "there"
    write_records(there, [b"x"])
    paths = [str(tmp_path / "gone"), str(there)]
    with pytest.raises(InputError, match="gone: cannot be read: No such file"):
        list(TFRecordDataset(paths))
    assert list(TFRecordDataset(paths).ignore_errors()) == [b"x"]


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_a_cut_header_is_no_error_to_be_ignored(tmp_path, caplog, compression):
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        write_records(path, [b"one", b"two"])
        path.write_bytes(path.read_bytes() + b"\5\0\0")
        if compression:
            path.write_bytes(gzip.compress(path.read_bytes()))
    iterator = iter(TFRecordDataset(paths, compression).ignore_errors())
    assert list(iterator) == [b"one", b"two"] * 2
    assert iterator.ignored_errors == 0
    assert [str(path) in caplog.text for path in paths] == [True, True]


def test_a_damaged_chunk_of_a_cache_is_left_out_and_counted(tmp_path):
    list(Dataset.range(9).cache(tmp_path / "c"))
    data = bytearray((tmp_path / "c.data").read_bytes())
    data[0] ^= 1
    (tmp_path / "c.data").write_bytes(data)
    iterator = iter(Dataset.range(9).cache(tmp_path / "c").ignore_errors())
    assert len(list(iterator)) < 9
    assert iterator.ignored_errors == 1


def test_one_error_more_than_the_limit_ends_the_pass_and_names_its_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("n\n1\nx\n2\ny\n3\n")
    data = csv_files(path, dtypes={"n": "int64"})
    assert len(list(data.ignore_errors(max_errors=2))) == 3
    words = r"^2 elements .* more than max_errors=1. The last of them: .*a.csv, line 5"
    with pytest.raises(TooManyErrorsError, match=words):
        list(data.ignore_errors(max_errors=1))


def test_the_limit_holds_for_each_epoch(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("n\n1\nx\n2\n")
    data = csv_files(path, dtypes={"n": "int64"}).ignore_errors(max_errors=1)
    assert len(list(data.repeat(3))) == 6


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_resumed_pass_fails_at_the_same_row(tmp_path, shuffled):
    path = tmp_path / "a.csv"
    bad = {3, 50, 80}
    path.write_text("n\n" + "".join(f"{'x' if i in bad else i}\n" for i in range(99)))

    def make(limit):
        data = csv_files(path, dtypes={"n": "int64"}).ignore_errors(max_errors=limit)
        return iter((data.shuffle(10, seed=1) if shuffled else data).batch(5))

    def given_and_error(iterator):
        given = []
        with pytest.raises(TooManyErrorsError) as caught:
            given.extend(rows["n"].tolist() for rows in iterator)
        return given, str(caught.value)

    first = make(2)
    for _ in range(11):  # past the second bad row
        next(first)
    state = first.get_state()
    resumed = make(2)
    resumed.set_state(state)
    found = given_and_error(resumed)
    assert found == given_and_error(first)
    assert "line 82" in found[1]
    more = make(3)  # a higher limit is the same input
    assert more.recipe == first.recipe
    more.set_state(state)
    assert len(list(more)) == 9


def test_a_share_is_compared_from_the_thousandth_row_and_at_the_end(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("n\nx\n" + "".join(f"{i}\n" for i in range(1999)))
    data = csv_files(path, dtypes={"n": "int64"})
    assert len(list(data.ignore_errors(max_fraction=0.0005))) == 1999
    with pytest.raises(TooManyErrorsError, match=r"max_fraction=0.0004 of 2,000"):
        list(data.ignore_errors(max_fraction=0.0004))


def test_limits_are_checked_when_the_verb_is_called():
    with pytest.raises(InputError, match="max_errors must be at least 0, got -1"):
        Dataset.range(3).ignore_errors(max_errors=-1)
    with pytest.raises(InputError, match=r"max_fraction must be from 0 to 1, got 5"):
        Dataset.range(3).ignore_errors(max_fraction=5)
