"""Requests are checked when they arrive, and converted with their batch."""

import json

import numpy as np
import pytest

from estimax.core.errors import FeatureError
from estimax.core.strings import Strings
from estimax.export import TensorInfo
from estimax.export.requests import RequestReader
from estimax.feature_columns import transforms
from estimax.serving import json_bodies
from estimax.serving.json_bodies import parse_in_pieces
from estimax.serving.requests import (
    FeatureReader,
    IdCheck,
    PendingRows,
    columns_from_json,
    features_from_json,
)
from estimax.serving.status import ServingError
from estimax.staging.host_plan import HostPlan
from estimax.staging.trace import HostCall, Origin

N, M = Origin("features", "n"), Origin("features", "m")


def test_ids_out_of_range_are_found_in_their_request():
    table = transforms.pad_ids(transforms.Identity("n", 5), "error")
    shown = transforms.pad_ids(transforms.Identity("m", 5), "drop")
    check = IdCheck(
        HostPlan(raw=(), calls=(HostCall("n", table, (N,)), HostCall("m", shown, (M,))))
    )
    reader = FeatureReader(
        [TensorInfo("n", "int64", (None,)), TensorInfo("m", "int64", (None,))], [N, M]
    )
    check({N: np.array([4, -1]), M: np.array([9, 9])})
    check(reader.from_rows([{"n": 4, "m": 9}, {"n": 0, "m": 9}]))
    with pytest.raises(FeatureError, match="7"):
        check({N: np.array([4, 7]), M: np.array([0, 0])})
    with pytest.raises(FeatureError, match="7"):
        check(reader.from_rows([{"n": 4, "m": 0}, {"n": 7, "m": 0}]))


SPECS = (
    TensorInfo("city", "string", (None,)),
    TensorInfo("name", "string", (None, 1)),
    TensorInfo("age", "float32", (None,), default=0.5),
    TensorInfo("time", "float64", (None,)),
    TensorInfo("hours", "int64", (None,)),
    TensorInfo("level", "int8", (None,)),
    TensorInfo("is_new", "bool", (None,)),
    TensorInfo("point", "float32", (None, 2)),
    TensorInfo("tags", "string", (None, None), kind="sparse"),
)
ORIGINS = [Origin("features", spec.name) for spec in SPECS]
ROW = {
    "city": "Oslo",
    "name": "Åse",
    "age": 31,
    "time": 0.1,
    "hours": 2**40,
    "level": -128,
    "is_new": True,
    "point": [1, 2.5],
    "tags": ["a", "b"],
}
OTHER = {**ROW, "city": "", "name": "x\0y", "age": 1.5, "tags": [], "level": 127}


@pytest.fixture
def reader():
    return FeatureReader(SPECS, ORIGINS)


def slowly(body):
    """Return the raw batch of a request, feature by feature."""
    columns, _ = columns_from_json(body, SPECS)
    return RequestReader(SPECS, ORIGINS)(columns)


def plain(value):
    if hasattr(value, "dense_shape"):
        return value.indices.tolist(), value.dense_shape, plain(value.values)
    array = np.asarray(value)
    return array.dtype, array.shape, array.tolist()


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for origin, value in expected.items():
        assert plain(found[origin]) == plain(value), origin


def read(body, reader):
    found, _ = features_from_json(body, SPECS, reader)
    assert isinstance(found, PendingRows)
    return found


def test_rows_are_read_as_feature_by_feature(reader):
    body = {"instances": [ROW, OTHER]}
    assert_same(reader.raw_batch([read(body, reader)]), slowly(body))


def test_columns_are_read_as_feature_by_feature(reader):
    columns = {name: [ROW[name], OTHER[name]] for name in ROW}
    body = {"inputs": {**columns, "unused": 1}}
    assert_same(reader.raw_batch([read(body, reader)]), slowly(body))


def test_requests_are_joined_in_order(reader):
    parts = [{"instances": [ROW]}, {"instances": [OTHER, ROW]}]
    joined = reader.raw_batch([read(body, reader) for body in parts])
    assert_same(joined, slowly({"instances": [ROW, OTHER, ROW]}))


def test_nan_becomes_the_default_of_its_feature(reader):
    batch = reader.raw_batch([read({"instances": [{**ROW, "age": np.nan}]}, reader)])
    assert batch[Origin("features", "age")].tolist() == [0.5]


def test_numbers_beyond_float32_are_infinite(reader):
    batch = reader.raw_batch([read({"instances": [{**ROW, "age": 1e300}]}, reader)])
    assert batch[Origin("features", "age")].tolist() == [np.inf]


@pytest.mark.parametrize(
    "change",
    [
        {"city": 7},
        {"age": "31"},
        {"age": True},
        {"time": None},
        {"age": 10**400},
        {"hours": 2.0},
        {"hours": 2**63},
        {"level": 128},
        {"is_new": 1},
        {"point": [1]},
        {"point": [1, "x"]},
        {"tags": [1]},
        {"extra": 1},
    ],
)
def test_what_does_not_fit_is_an_invalid_argument(reader, change):
    with pytest.raises((ServingError, ValueError), match=next(iter(change))):
        features_from_json({"instances": [ROW, {**ROW, **change}]}, SPECS, reader)


def test_a_missing_name_is_an_invalid_argument(reader):
    row = {name: value for name, value in ROW.items() if name != "hours"}
    with pytest.raises(ServingError, match="'hours' is absent in row 1"):
        features_from_json({"instances": [ROW, row]}, SPECS, reader)


def test_null_and_absent_keys_are_missing_values(reader):
    gone = {"time": 0.1, "hours": 2, "level": 0, "is_new": True, "point": [1, 2]}
    null = {**gone, **dict.fromkeys(("city", "name", "age", "tags"))}
    full = {**gone, "city": "", "name": "", "age": 0.5, "tags": []}
    for rows in ([ROW, gone], [ROW, null], [null, gone]):
        body = {"instances": rows}
        wanted = {"instances": [row if row is ROW else full for row in rows]}
        assert_same(reader.raw_batch([read(body, reader)]), slowly(wanted))
        assert_same(slowly(body), slowly(wanted))
    columns = {name: [value] for name, value in gone.items()}
    assert_same(slowly({"inputs": columns}), slowly({"instances": [full]}))


def test_one_error_names_all_features_without_a_value(reader):
    rows = [{**ROW, "time": None}, {n: v for n, v in ROW.items() if n != "hours"}]
    words = "'time' is null in row 0, 'hours' is absent in row 1"
    with pytest.raises(ServingError, match=words):
        features_from_json({"instances": rows}, SPECS, reader)
    with pytest.raises(ServingError, match=r"'time', 'hours', .* are missing"):
        features_from_json({"inputs": {"city": ["a"], "age": [1]}}, SPECS, reader)


def test_null_in_a_row_of_several_values_is_its_default():
    pair = TensorInfo("pair", "float32", (None, 2), default=(1.0, 2.0))
    body = {"instances": [[5, None], None, [3, 4]]}
    columns, _ = columns_from_json(body, [pair])
    assert columns["pair"].tolist() == [[5, 2], [1, 2], [3, 4]]


def test_base64_is_read_feature_by_feature(reader):
    body = {"instances": [{**ROW, "city": {"b64": "T3Nsbw=="}}]}
    found, is_row_form = features_from_json(body, SPECS, reader)
    assert is_row_form
    assert found["city"].tolist() == [b"Oslo"]


def test_half_of_a_surrogate_pair_is_not_json():
    body = json.dumps({"instances": [float("nan"), "\ud800"]}).encode()
    with pytest.raises(ServingError, match="not JSON"):
        json_bodies.parse(body)


@pytest.mark.parametrize(
    "body",
    [
        {"instances": [{"csv_row": "1,2"}, {"csv_row": "3,4"}]},
        {"instances": ["1,2", "3,4"]},
        {"inputs": {"csv_row": ["1,2", "3,4"]}},
        {"inputs": ["1,2", "3,4"]},
    ],
)
def test_csv_records_stand_for_all_features(body):
    reader = FeatureReader(SPECS, ORIGINS, "csv_row")
    found, is_row_form = features_from_json(body, SPECS, reader)
    assert isinstance(found["csv_row"], Strings)
    assert found["csv_row"].tolist() == [b"1,2", b"3,4"]
    assert is_row_form == ("instances" in body)


def test_many_blanks_in_place_of_rows_are_explained(reader):
    empty, blank = b'{"instances": []}', b'{"instances": [' + b" " * 40 + b"]}"
    bodies = [json_bodies.parse(empty), parse_in_pieces(blank, piece=20)]
    reasons = []
    for body in bodies:
        with pytest.raises(ServingError) as raised:
            features_from_json(body, SPECS, reader)
        reasons.append(str(raised.value))
    assert reasons[0] == reasons[1]
