import numpy as np
import pytest

import estimax as ex
from estimax.core.errors import SpecError

fc = ex.feature_columns
RNG = np.random.default_rng(0)
ROWS = 96
FEATURES = {
    "x": RNG.normal(size=ROWS).astype(np.float32),
    "z": RNG.normal(size=ROWS).astype(np.float32),
    # Cities that are not in the vocabulary, and cities that are missing.
    "city": np.array(["Oslo", "Rome", "Bern", "Paris", ""])[np.arange(ROWS) % 5],
    "color": np.array(["red", "blue"])[np.arange(ROWS) % 2],
    "size": np.array(["S", "M", "L"])[np.arange(ROWS) % 3],
}
LABELS = (FEATURES["x"] * FEATURES["z"] > 0).astype(np.int64)
CITY = fc.categorical_column_with_vocabulary_list("city", ["Oslo", "Rome", "Bern"])
NUMBERS = [fc.numeric_column("x"), fc.numeric_column("z")]
FAST = ex.optimizers.Adam(0.02)


def input_fn(features=FEATURES, labels=LABELS):
    return lambda: ex.input.Dataset.from_tensor_slices((features, labels)).batch(64)


def config():
    return ex.RunConfig(tf_random_seed=1, save_summary_steps=None)


def train(model, steps=1, labels=LABELS):
    return model.train(lambda: input_fn(labels=labels)().repeat(), steps=steps)


def explain(model, features=FEATURES, **options):
    return ex.inspection.integrated_gradients(
        model, lambda: input_fn(features)(), **options
    )


def check_sum(found, share):
    """The parts are the difference to the baseline, up to a share of its range."""
    total = sum(found.contributions.values()) + found.baseline
    largest = np.ptp(found.output)
    assert largest > 0.5
    np.testing.assert_allclose(total, found.output, atol=share * largest)
    np.testing.assert_allclose(found.residual, found.output - total, atol=1e-5)


def predictions(model, name, features):
    rows = model.predict(lambda: input_fn(features, None)())
    return np.array([row[name].item() for row in rows])


def row(x=0.0, z=0.0, city=""):
    return {
        "x": np.array([x], np.float32),
        "z": np.array([z], np.float32),
        "city": np.array([city]),
    }


def test_parts_of_a_linear_model_are_its_weights_times_its_values(tmp_path):
    cross = fc.crossed_column(["color", "size"], 50)
    columns = [*NUMBERS, CITY, cross]
    model = train(ex.LinearRegressor(columns, tmp_path, config=config()), 30)
    found = explain(model, steps=1)

    def weights(name):
        return model.get_variable_value(f"linear/linear_model/{name}")[..., 0]

    parts = found.contributions
    of_x = weights("x/weights") * FEATURES["x"]
    np.testing.assert_allclose(parts["x"], of_x, rtol=1e-5, atol=1e-7)
    # Neither a missing city nor one that is not in the vocabulary has a weight.
    of_city = np.append(weights("city/weights"), [0, 0])[np.arange(ROWS) % 5]
    np.testing.assert_allclose(parts["city"], of_city, rtol=1e-6)
    # The part of a cross is divided equally between its features.
    np.testing.assert_array_equal(parts["color"], parts["size"])
    assert np.ptp(parts["color"]) > 0
    bias = model.get_variable_value("linear/linear_model/bias_weights").item()
    np.testing.assert_allclose(found.baseline, bias, rtol=1e-6)
    np.testing.assert_allclose(found.residual, 0, atol=1e-6)
    assert found.class_id is None


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A network of numbers, with three classes."""
    classes = (FEATURES["x"] > 0) + (FEATURES["z"] > 0).astype(np.int64)
    folder = tmp_path_factory.mktemp("network")
    model = ex.DNNClassifier(
        [16, 8], NUMBERS, folder, 3, optimizer=FAST, config=config()
    )
    return train(model, 100, classes)


def test_parts_of_a_network_are_the_difference_to_the_baseline(network):
    found = explain(network)
    check_sum(found, 0.01)
    rows = list(network.predict(lambda: input_fn()()))
    predicted = np.array([row["class_ids"].item() for row in rows])
    np.testing.assert_array_equal(found.class_id, predicted)
    largest = [row["logits"].max() for row in rows]
    np.testing.assert_allclose(found.output, largest, rtol=1e-5)


def test_one_class_can_be_explained_for_all_rows(network):
    found = explain(network, output_index=2)
    check_sum(found, 0.01)
    assert set(found.class_id) == {2}
    (zero,) = network.predict(lambda: input_fn(row(), None)())
    np.testing.assert_allclose(found.baseline, zero["logits"][2], rtol=1e-5)


def test_more_steps_leave_a_smaller_residual(network):
    few, many = (explain(network, steps=n).residual for n in (4, 256))
    assert np.abs(many).max() < 0.1 * np.abs(few).max()


def test_parts_of_a_wide_and_deep_model_are_of_features_not_of_columns(tmp_path):
    hashed = fc.categorical_column_with_hash_bucket("city", 20)
    bins = fc.bucketized_column(fc.numeric_column("x"), [-1.0, 0.0, 1.0])
    model = train(
        ex.DNNLinearCombinedClassifier(
            tmp_path,
            linear_feature_columns=[CITY, fc.crossed_column(["city", bins], 50)],
            dnn_feature_columns=[
                *NUMBERS,
                fc.embedding_column(CITY, 3),
                fc.indicator_column(hashed),
            ],
            dnn_hidden_units=[16, 8],
            dnn_optimizer=FAST,
            config=config(),
        ),
        100,
    )
    found = explain(model)
    assert set(found.contributions) == {"x", "z", "city"}
    check_sum(found, 0.01)
    np.testing.assert_allclose(
        found.output, predictions(model, "logits", FEATURES), rtol=1e-4, atol=1e-5
    )
    sizes = {name: np.abs(part).mean() for name, part in found.contributions.items()}
    assert list(found.mean_absolute) == sorted(sizes, key=lambda name: -sizes[name])
    assert "3 features, 96 rows" in str(found)


def make_model_fn(logits_of):
    def model_fn(features, labels, mode):
        return ex.heads.BinaryClassHead().create_estimator_spec(
            features,
            mode,
            logits_of(features) * ex.get_variable("one", (1,), initializer=1.0),
            labels,
            optimizer=ex.optimizers.SGD(0.0),
        )

    return model_fn


def test_a_product_is_divided_equally_between_its_factors(tmp_path):
    # The path is (t x, t z), the gradients are (t z, t x): each part is x z / 2.
    def product(features):
        net = fc.input_layer(features, NUMBERS)
        return net[:, :1] * net[:, 1:]

    model = train(ex.Estimator(make_model_fn(product), tmp_path, config()))
    found = explain(model, steps=2)
    half = FEATURES["x"] * FEATURES["z"] / 2
    for name in ("x", "z"):
        np.testing.assert_allclose(
            found.contributions[name], half, rtol=1e-5, atol=1e-7
        )


def test_a_feature_that_is_read_without_a_column_is_refused(tmp_path):
    def with_raw(features):
        net = fc.input_layer(features, NUMBERS[:1])
        return net + features["z"][:, None]

    model = train(ex.Estimator(make_model_fn(with_raw), tmp_path, config()))
    with pytest.raises(SpecError, match=r"depends on features/z other than through"):
        explain(model)


def test_what_is_to_be_explained_is_checked(network):
    with pytest.raises(SpecError, match="steps must be a positive whole number"):
        explain(network, steps=0)
    with pytest.raises(SpecError, match="has 3 numbers, 0 to 2; found the index 3"):
        explain(network, output_index=3)
    with pytest.raises(SpecError, match="no 'logit'; did you mean 'logits'"):
        explain(network, output="logit")
    with pytest.raises(SpecError, match="say which is explained"):
        explain(network, output="probabilities")
    with pytest.raises(SpecError, match="must be floats"):
        explain(network, output="class_ids")
