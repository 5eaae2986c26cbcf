"""Parts of a dataset do not overlap, and delimited text becomes lists and vectors."""

import itertools

import numpy as np
import pytest

from estimax.core.errors import InputError
from estimax.input import (
    Dataset,
    as_vectors,
    csv_files,
    part_of,
    rows_between,
    rows_where,
    split_values,
)


def numbers(data, column="x"):
    return [int(row[column]) for row in data]


def table(count=400, **columns):
    return Dataset.from_tensor_slices({"x": np.arange(count), **columns})


@pytest.mark.parametrize("key", [None, "x"])
def test_parts_cover_every_row_once(key):
    data = table()
    cuts = [0.0, 0.5, 0.8, 1.0]
    parts = [
        numbers(part_of(data, a, b, key=key, seed=3))
        for a, b in itertools.pairwise(cuts)
    ]
    assert sorted(itertools.chain(*parts)) == list(range(400))
    assert [len(part) / 400 for part in parts] == pytest.approx(
        [0.5, 0.3, 0.2], abs=0.08
    )


def test_another_seed_is_another_split():
    data = table()
    assert numbers(part_of(data, 0, 0.5)) == numbers(part_of(data, 0, 0.5))
    assert numbers(part_of(data, 0, 0.5)) != numbers(part_of(data, 0, 0.5, seed=1))


def test_rows_of_one_key_stay_together_and_integers_hash_as_their_text():
    users = [f"{i % 37}" for i in range(400)]
    as_text = part_of(table(user=users), 0.0, 0.5, key="user")
    as_number = part_of(table(user=[int(u) for u in users]), 0.0, 0.5, key="user")
    kept = numbers(as_text)
    assert kept == numbers(as_number)
    assert not {i % 37 for i in kept} & {i % 37 for i in range(400) if i not in kept}


def test_the_key_may_be_dropped():
    data = part_of(table(user=["a"] * 400), 0, 1, key="user", drop=True)
    assert list(next(iter(data))) == ["x"]


def test_a_part_that_stops_before_its_start_is_all_but_the_rows_between():
    data = table()
    rest = numbers(part_of(data, 0.6, 0.2, seed=3))
    inner = numbers(part_of(data, 0.2, 0.6, seed=3))
    assert sorted(rest + inner) == sorted(numbers(data))
    assert len(inner) > 10


@pytest.mark.parametrize(("start", "stop"), [(-0.1, 1), (0, 1.1)])
def test_a_part_out_of_range_is_refused(start, stop):
    with pytest.raises(InputError, match="expected start and stop from 0 to 1"):
        part_of(table(), start, stop)


def test_a_part_by_floats_is_refused():
    data = table(5, w=np.linspace(0, 1, 5))
    with pytest.raises(InputError, match="'w' must hold text or integers, got float64"):
        list(part_of(data, 0, 1, key="w"))


def test_an_unknown_key_names_its_neighbour():
    with pytest.raises(InputError, match="no column 'usr'; did you mean 'user'"):
        list(part_of(table(5, user=["a"] * 5), 0, 1, key="usr"))


def test_rows_between_compares_numbers_and_dates():
    days = [f"2024-01-{i + 1:02d}" for i in range(20)]
    data = table(20, day=days)
    assert numbers(rows_between(data, "day", None, "2024-01-04")) == [0, 1, 2]
    assert numbers(rows_between(data, "day", "2024-01-19", None)) == [18, 19]
    assert numbers(rows_between(data, "x", 3, 5)) == [3, 4]


def test_rows_where_wants_all_values():
    data = table(6, city=["a", "b"] * 3, size=[1, 1, 2, 2, 1, 1])
    assert numbers(rows_where(data, {"city": "a", "size": 1})) == [0, 4]


def test_text_is_split_into_numbers_and_words():
    data = table(3, ids=["3|4", "", "5"], words=["a b", "c", ""])
    data = split_values(data, {"ids": "|", "words": " "}, dtypes={"ids": "int64"})
    batch = next(iter(data.batch(3)))
    assert batch["ids"].values.tolist() == [3, 4, 5]
    assert batch["words"].values.tolist() == [b"a", b"b", b"c"]
    assert batch["words"].starts.tolist() == [0, 2, 3, 3]


def test_a_part_that_is_no_number_is_an_error():
    data = split_values(table(1, ids=["3|x"]), {"ids": "|"}, dtypes={"ids": "int64"})
    with pytest.raises(InputError, match="column 'ids'"):
        list(data)


def test_vectors_need_as_many_values_as_their_shape():
    data = split_values(table(2, v=["1 2", "3"]), {"v": " "}, dtypes={"v": "float32"})
    with pytest.raises(InputError, match="expected 2 values in each row, found 1"):
        list(as_vectors(data, {"v": (2,)}))


def test_several_labels_become_a_dict():
    data = table(3, a=[0, 1, 0], b=[1.0, 2.0, 3.0]).with_label({"click": "a", "s": "b"})
    features, labels = next(iter(data.batch(3)))
    assert list(features) == ["x"]
    assert labels["click"].tolist() == [0, 1, 0]
    assert labels["s"].tolist() == [1.0, 2.0, 3.0]


def test_a_url_is_opened_when_it_is_read(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n2\n")
    assert numbers(csv_files(f"file://{tmp_path}/a.csv")) == [1, 2]
