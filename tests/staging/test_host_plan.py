from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

from estimax.core.device_dtypes import Forwarded
from estimax.core.errors import FeatureError, SpecError
from estimax.core.sparse import Ids, Sparse
from estimax.core.strings import Strings
from estimax.staging.host_plan import (
    HostPlan,
    RowGroup,
    as_device_dtype,
    batch_size,
    flatten,
    make_unique,
    unflatten,
)
from estimax.staging.trace import HostCall, Origin

AGE, CITY, LABELS = (
    Origin("features", "age"),
    Origin("features", "city"),
    Origin("labels", None),
)


def unique(ids, vocabulary):
    """The unique list and the places of one group of one call."""
    lists, places = make_unique(
        {"g": {"c": np.array(ids, np.int32)}}, {"g": vocabulary}
    )
    return lists["g"].tolist(), places["g"]["c"].tolist()


def test_unique_ids_are_sorted_and_padded_with_what_is_no_row():
    assert unique([[7, 2], [7, 7]], 100) == ([2, 7, 100, 100], [[1, 0], [1, 1]])


def test_a_list_is_no_longer_than_the_vocabulary():
    assert unique([[0, 1], [1, 0], [0, 0]], 2) == ([0, 1], [[0, 1], [1, 0], [0, 0]])


def test_missing_ids_have_no_place():
    assert unique([[7, -1], [3, -1]], 100) == ([3, 7, 100, 100], [[1, -1], [0, -1]])


def test_an_example_without_any_id_touches_row_0():
    lists, places = unique([[7, 3], [-1, -1]], 100)
    assert lists == [0, 3, 7, 100]
    assert places[0] == [2, 1]
    assert unique([[0, 3], [-1, -1]], 100)[0] == [0, 3, 100, 100]
    assert unique([[-1], [-1]], 100)[0] == [0, 100]


def test_random_ids_come_back_from_their_places():
    ids = np.random.default_rng(0).integers(-1, 50, (40, 5)).astype(np.int32)
    lists, places = unique(ids, 50)
    found = np.array(lists)[np.array(places)]
    assert np.array_equal(found[ids >= 0], ids[ids >= 0])
    assert lists == sorted(lists)


def test_groups_of_different_sizes_and_vocabularies_keep_apart():
    ids = {
        "a": {"x": np.array([[5], [5]], np.int32)},
        "b": {"y": np.array([[1], [2]], np.int32), "z": np.array([[2], [9]], np.int32)},
        "c": {"w": np.array([[3], [1]], np.int32)},
    }
    lists, places = make_unique(ids, {"a": 10, "b": 10, "c": 4})
    assert lists["a"].tolist() == [5, 10]
    assert lists["b"].tolist() == [1, 2, 9, 10]
    assert lists["c"].tolist() == [1, 3]
    assert places["b"]["z"].tolist() == [[1], [2]]


@dataclass(frozen=True)
class CityIds:
    name: str = "city"
    keys: tuple[str, ...] = ("city",)

    def __call__(self, raw):
        lengths = raw["city"].lengths.astype(np.int32).reshape(-1, 1)
        return Ids(lengths, None)


def test_a_plan_makes_numbers_of_a_raw_batch():
    plan = HostPlan(
        (AGE,), (HostCall("city", CityIds(), (CITY,)),), (RowGroup("g", ("city",), 9),)
    )
    batch = {AGE: np.array([1.5, 2.5]), CITY: Strings.of(["Oslo", "Ulm"])}
    prepared = plan.prepare(batch)
    assert prepared.raw["features/age"].dtype == np.float32
    assert prepared.staged["city"].ids.tolist() == [[4], [3]]
    assert prepared.unique["g"].tolist() == [3, 4]
    assert prepared.inverse["g"]["city"].tolist() == [[1], [0]]


def test_a_feature_that_went_missing_or_changed_its_kind_is_named():
    plan = HostPlan((AGE,), ())
    with pytest.raises(FeatureError, match=r"features/age: .* it is missing"):
        plan.prepare({})
    with pytest.raises(FeatureError, match=r"features/age: .* it is Strings"):
        plan.prepare({AGE: Strings.of(["a"])})


def test_a_batch_is_named_by_origin_and_put_together_again():
    flat = flatten({"age": [1, 2], "city": ["a", "b"]}, np.array([0, 1]))
    assert sorted(origin.name for origin in flat) == [
        "features/age",
        "features/city",
        "labels",
    ]
    assert isinstance(flat[CITY], Strings)
    assert list(unflatten("features", flat)) == ["age", "city"]
    assert unflatten("labels", flat).tolist() == [0, 1]


def test_one_array_stays_one_array_and_no_labels_are_none():
    flat = flatten(np.zeros((2, 3)), None)
    assert unflatten("features", flat).shape == (2, 3)
    assert unflatten("labels", flat) is None


def test_dicts_and_tuples_within_features_are_put_together_again():
    a, b, c = (np.full(2, n) for n in range(3))
    given = ({"a": a, "more": (b,)}, c)
    flat = flatten(given, {"y": (a, {"z": b})})
    assert [origin.name for origin in flat] == [
        "features/0/a",
        "features/0/more/0",
        "features/1",
        "labels/y/0",
        "labels/y/1/z",
    ]
    backwards = dict(reversed(flat.items()))
    first, third = unflatten("features", backwards)
    assert first["a"] is a
    assert first["more"][0] is b
    assert third is c
    assert unflatten("labels", flat)["y"][1]["z"] is b


def test_a_value_left_out_of_a_tuple_keeps_the_places_of_the_others():
    flat = flatten((np.ones(2), None, np.ones(2)), None)
    assert unflatten("features", flat)[1] is None


def test_named_tuples_and_names_given_twice_are_refused():
    Pair = namedtuple("Pair", "a b")
    with pytest.raises(SpecError, match="Pair is a named tuple"):
        flatten(Pair(np.ones(2), np.ones(2)), None)
    with pytest.raises(SpecError, match="two values of a batch are called"):
        flatten({"a/b": np.ones(2), "a": {"b": np.ones(2)}}, None)


def test_forwarded_values_are_arrays_and_sparse_ones_are_filled():
    forwarded = (Forwarded(CITY), Forwarded(AGE, 7))
    plan = HostPlan(raw=(), calls=(), forwarded=forwarded)
    ages = Sparse.of_rows([[2**40], [], [1, 2]])
    found = plan.forward({CITY: Strings.of(["a", "", "c"]), AGE: ages})
    assert found[forwarded[0]].tolist() == [b"a", b"", b"c"]
    assert found[forwarded[1]].tolist() == [[2**40, 7], [7, 7], [1, 2]]
    with pytest.raises(FeatureError, match="features/age is missing in this batch"):
        plan.forward({CITY: Strings.of(["a"])})


def test_all_parts_of_a_batch_must_have_the_same_rows():
    assert batch_size({AGE: np.zeros(3), CITY: Strings.of(["a"] * 3)}) == 3
    with pytest.raises(SpecError, match="features/age has 3, labels has 2"):
        batch_size({AGE: np.zeros(3), LABELS: np.zeros(2)})


def test_wide_numbers_become_32_bits_if_they_fit():
    for dtype in (np.int64, np.uint64, np.uint32):
        assert as_device_dtype(AGE, np.array([3], dtype)).dtype == np.int32
    assert as_device_dtype(AGE, np.array([True])).dtype == np.bool_
    for large in (2**31, -(2**31) - 1):
        with pytest.raises(FeatureError, match=f"features/age holds {large}"):
            as_device_dtype(AGE, np.array([1, large]))
