"""Receivers that decode CSV records, as census programs have them."""

import numpy as np
import pytest

import estimax as ex
from estimax.core.errors import BundleError, SpecError

fc = ex.feature_columns
COLUMNS = ["age", "city", "hours", "income"]
DEFAULTS = [[0.0], [""], [40], [""]]
LINES = ["39,Oslo,41,low", '52,"Rome, old",,high']


def decoded(lines):
    features = dict(zip(COLUMNS, ex.input.decode_csv(lines, DEFAULTS), strict=True))
    return {name: column.reshape((-1, 1)) for name, column in features.items()}


def csv_serving_input_fn():
    csv_row = np.array(LINES)
    features = decoded(csv_row)
    features.pop("income")
    return ex.export.ServingInputReceiver(features, {"csv_row": csv_row})


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    city = fc.categorical_column_with_hash_bucket("city", 10)
    numbers = [fc.numeric_column("age"), fc.numeric_column("hours")]
    model = ex.LinearRegressor(
        [city, *numbers], model_dir=tmp_path_factory.mktemp("model")
    )

    def input_fn():
        features = decoded(LINES * 4)
        features.pop("income")
        return features, np.ones((8, 1), np.float32)

    return model.train(input_fn, steps=3)


@pytest.fixture(scope="module")
def bundle(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    return ex.export.load(model.export_saved_model(folder, csv_serving_input_fn))


def test_a_bundle_decodes_the_records_of_its_receiver(bundle):
    features = decoded(LINES)
    features.pop("income")
    expected = bundle.predict(features)["predictions"]
    found = bundle.predict({"csv_row": LINES})["predictions"]
    np.testing.assert_array_equal(found, expected)
    assert found[0] != found[1]


def test_a_bad_record_is_named(bundle):
    with pytest.raises(BundleError, match=r"'csv_row': record 1: .*4"):
        bundle.predict({"csv_row": [LINES[0], "1,2"]})


def test_the_features_may_be_sent_as_well(bundle):
    assert bundle.csv.name == "csv_row"
    one = bundle.predict([{"age": 39.0, "city": "Oslo", "hours": 41}])
    assert one["predictions"] == bundle.predict({"csv_row": LINES[:1]})["predictions"]


def test_features_that_are_computed_otherwise_are_refused(model, tmp_path):
    def receive():
        csv_row = np.array(LINES)
        features = decoded(csv_row)
        features.pop("income")
        features["age"] = features["age"] / 10
        return ex.export.ServingInputReceiver(features, {"csv_row": csv_row})

    with pytest.raises(SpecError, match="the feature 'age' is computed"):
        model.export_saved_model(tmp_path, receive)


def test_tensors_that_nothing_decodes_are_refused(model, tmp_path):
    def receive():
        receiver = csv_serving_input_fn()
        return ex.export.ServingInputReceiver(
            receiver.features, {"line": np.array(["1,2"])}
        )

    with pytest.raises(SpecError, match=r"\['line'\] are decoded"):
        model.export_saved_model(tmp_path, receive)
