"""The forms of a request: data frames, Arrow tables, rows, columns, single values."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import estimax as ex
from estimax import export
from estimax.core.errors import BundleError
from estimax.export import TensorInfo
from estimax.export.requests import RequestReader
from estimax.feature_columns import (
    categorical_column_with_hash_bucket,
    embedding_column,
    indicator_column,
    numeric_column,
)
from estimax.feature_columns.transforms import Scaling
from estimax.staging.trace import Origin
from tests.export import servables

ROWS = [
    {"age": 31, "city": "Oslo", "tags": ["red"]},
    {"age": 46, "city": "Rome", "tags": []},
    {"age": 20, "city": "", "tags": ["blue", "green"]},
]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    base = tmp_path_factory.mktemp("bundle")
    export.write_bundle(servables.wide_servable(), base, platforms=("cpu",))
    return export.load(base)


@pytest.fixture(scope="module")
def numeric(tmp_path_factory):
    base = tmp_path_factory.mktemp("numeric")
    export.write_bundle(servables.numeric_servable(), base, platforms=("cpu",))
    return export.load(base)


@pytest.fixture(scope="module")
def expected(bundle):
    exact = {**COLUMNS, "age": np.array([31.0, 46.0, 20.0], np.float32)}
    return bundle.predict(exact)


FEATURES = ("point", "name")
FORMS = {
    "a list of dicts": ROWS,
    "a dict of lists": COLUMNS,
    "a data frame": pd.DataFrame(COLUMNS),
    "a frame of pandas' own types": pd.DataFrame(COLUMNS).convert_dtypes(),
    "an Arrow table": pa.table(COLUMNS),
    "missing text is empty": [*ROWS[:2], {**ROWS[2], "city": None}],
    "a row without its text": [*ROWS[:2], {"age": 20, "tags": ["blue", "green"]}],
}


@pytest.mark.parametrize("form", FORMS)
def test_a_request_may_have_every_form(bundle, expected, form):
    found = bundle.predict(FORMS[form])
    np.testing.assert_array_equal(found["logits"], expected["logits"])


def test_classes_are_str(bundle, expected):
    assert {type(word) for word in expected["classes"].flat} == {str}
    assert set(expected["classes"].flat) <= {"no", "yes"}


def test_a_dict_of_single_values_is_one_row(bundle, expected):
    found = bundle.predict({"age": 31, "city": "Oslo", "tags": "red"})
    np.testing.assert_allclose(found["logits"], expected["logits"][:1], rtol=1e-6)


def test_a_row_of_a_data_frame_is_one_row(bundle, expected):
    found = bundle.predict(pd.DataFrame(COLUMNS).iloc[1])
    np.testing.assert_allclose(found["logits"], expected["logits"][1:2], rtol=1e-6)


def test_a_single_value_among_columns_stands_for_every_row(bundle):
    found = bundle.predict({**COLUMNS, "city": "Oslo"})
    wanted = bundle.predict({**COLUMNS, "city": ["Oslo"] * 3})
    np.testing.assert_array_equal(found["logits"], wanted["logits"])


def test_a_list_without_rows_has_no_answers(bundle):
    assert bundle.predict([])["logits"].shape == (0, 2)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    columns = [numeric_column("age"), numeric_column("size", shape=2)]
    model = ex.LinearRegressor(columns, tmp_path_factory.mktemp("vectors"))
    sizes = np.arange(8, dtype=np.float32).reshape(4, 2)
    batch = {"age": np.ones(4, np.float32), "size": sizes}
    model.train(lambda: (batch, np.arange(4.0)), steps=2)
    base = tmp_path_factory.mktemp("vectors_bundle")
    return export.load(model.export_saved_model(base))


SIZES = {"age": [1.0, 2.0], "size": [[1.0, 2.0], [3.0, 4.0]]}


@pytest.mark.parametrize(
    "form",
    [
        pd.DataFrame(SIZES),
        pa.table(SIZES),
        [{"age": 1, "size": [1, 2]}, {"age": 2, "size": [3, 4]}],
    ],
    ids=["a data frame", "an Arrow table", "a list of dicts"],
)
def test_lists_of_one_length_are_a_dense_feature(vectors, form):
    found = vectors.predict(form)["predictions"]
    np.testing.assert_array_equal(found, vectors.predict(SIZES)["predictions"])


def test_lists_of_different_lengths_are_no_dense_feature(vectors):
    frame = pd.DataFrame({"age": [1.0, 2.0], "size": [[1.0, 2.0], [3.0]]})
    with pytest.raises(BundleError, match="found rows of different lengths"):
        vectors.predict(frame)


def test_a_dict_of_values_and_a_vector_is_one_row(vectors):
    found = vectors.predict({"age": 2.0, "size": [3.0, 4.0]})["predictions"]
    np.testing.assert_allclose(found, vectors.predict(SIZES)["predictions"][1:])


@pytest.mark.parametrize("form", [[], pd.DataFrame(SIZES).iloc[:0]])
def test_no_rows_of_vectors_have_no_answers(vectors, form):
    assert vectors.predict(form)["predictions"].shape == (0, 1)


def test_extra_columns_are_listed_or_ignored(bundle, expected):
    frame = pd.DataFrame(COLUMNS).assign(id=[1, 2, 3], name=["a", "b", "c"])
    with pytest.raises(BundleError, match="unknown features 'id', 'name'"):
        bundle.predict(frame)
    found = bundle.predict(frame, ignore_extra=True)
    np.testing.assert_array_equal(found["logits"], expected["logits"])


def test_the_default_signature_is_predict(bundle, expected):
    assert bundle.default_signature == "predict"
    assert list(expected) == [o.name for o in bundle.signature("predict").outputs]


def test_a_row_that_is_no_dict_is_named(bundle):
    with pytest.raises(BundleError, match="row 1: expected a dict of features, found"):
        bundle.predict([ROWS[0], 7])


def test_two_columns_of_one_name_are_an_error(bundle):
    frame = pd.DataFrame(COLUMNS)
    with pytest.raises(BundleError, match="column 'age' is there twice"):
        bundle.predict(pd.concat([frame, frame], axis=1))


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A model whose columns have a default, a fill value, ids, and nothing of these."""
    hashed = categorical_column_with_hash_bucket
    columns = [
        numeric_column("size", default_value=2.0),
        numeric_column("age", normalizer_fn=Scaling(fill=40.0, mean=40.0, std=10.0)),
        numeric_column("plain"),
        indicator_column(hashed("plane", 5, dtype=np.int64)),
        embedding_column(hashed("city", 5), 2),
    ]
    # Linear and seeded: with relu, a dead layer would answer the same to every row.
    folder = str(tmp_path_factory.mktemp("model"))
    config = ex.RunConfig(folder, tf_random_seed=1)
    model = ex.DNNRegressor([2], columns, config=config, activation_fn=None)
    data = {
        "size": np.array([1.0, 2.0], np.float32),
        "age": np.array([30.0, 40.0], np.float32),
        "plain": np.array([1.0, 0.0], np.float32),
        "plane": np.array([4, -1]),
        "city": np.array(["Oslo", ""]),
    }
    model.train(lambda: (data, np.array([1.0, 3.0], np.float32)), steps=1)
    base = tmp_path_factory.mktemp("bundle")
    return export.load(model.export_saved_model(base))


def test_missing_values_are_those_that_the_columns_define(filled):
    full = {"size": 2.0, "age": 40.0, "plain": 0.0, "plane": -1, "city": ""}
    wanted = filled.predict(full)["predictions"]
    gone = dict.fromkeys(full, None) | {"plain": 0}
    assert filled.predict([gone])["predictions"].tolist() == wanted.tolist()
    frame = pd.DataFrame([full, gone, {**full, "size": 3.0}])  # None becomes NaN
    found = filled.predict(frame)["predictions"]
    np.testing.assert_array_equal(found[:2], np.concatenate([wanted, wanted]))
    assert found[2] != wanted
    nullable = filled.predict(frame.convert_dtypes())["predictions"]
    np.testing.assert_array_equal(nullable, found)
    table = filled.predict(pa.Table.from_pylist([full, gone]))["predictions"]
    np.testing.assert_array_equal(table, found[:2])


def test_the_bundle_tells_the_defaults(filled):
    told = {n: f["default"] for n, f in filled.describe()["features"].items()}
    assert told["size"] == 2.0
    assert np.isnan(told["age"])
    assert (told["plane"], told["plain"], told["city"]) == (-1, None, None)


def test_a_missing_value_without_a_default_is_an_error_with_its_row(filled):
    row = {"size": 2.0, "age": 40.0, "plain": 0.0, "plane": -1, "city": ""}
    with pytest.raises(BundleError, match=r"'plain': .* a missing value in row 1"):
        filled.predict([row, {**row, "plain": None}])


def test_an_absent_key_is_a_missing_value_in_every_form(filled):
    full = {"size": 2.0, "age": 40.0, "plain": 0.0, "plane": -1, "city": ""}
    wanted = filled.predict(full)["predictions"].tolist()
    assert filled.predict({"plain": 0.0})["predictions"].tolist() == wanted
    assert filled.predict({"plain": [0.0]})["predictions"].tolist() == wanted
    assert filled.predict([{"plain": 0.0}])["predictions"].tolist() == wanted
    frame = pd.DataFrame({"plain": [0.0]})
    assert filled.predict(frame)["predictions"].tolist() == wanted
    found = filled.predict([{"plain": 0.0}, full])["predictions"].tolist()
    assert found == [*wanted, *wanted]


def test_a_missing_row_of_several_values_has_the_default_of_each():
    point = TensorInfo("point", "float32", (None, 2), default=(1.0, 2.0))
    name = TensorInfo("name", "string", (None, 1))
    reader = RequestReader([point, name], [Origin("features", n) for n in FEATURES])
    rows = [{"point": [5.0, None], "name": ["a"]}, {"point": None}, {}]
    batch = {origin.key: value for origin, value in reader(rows).items()}
    assert batch["point"].tolist() == [[5.0, 2.0], [1.0, 2.0], [1.0, 2.0]]
    assert batch["name"].tolist() == [b"a", b"", b""]


def test_a_misspelled_column_is_not_filled(filled):
    with pytest.raises(BundleError, match=r"'city' is missing, found .* 'citty'"):
        filled.predict({"plain": [0.0], "citty": ["Oslo"]}, ignore_extra=True)


def test_one_error_names_all_features_that_have_no_value(numeric):
    with pytest.raises(BundleError, match="'age' in row 1, 'size' in row 0"):
        numeric.predict([{"age": 1.0, "size": None}, {"age": None, "size": 2}])
    with pytest.raises(BundleError, match="features 'age', 'size' are missing"):
        numeric.predict({})
