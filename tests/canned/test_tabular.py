"""Networks for tables."""

import numpy as np
import pytest

import estimax as ex
from estimax.canned.member_predictions import average_logits
from estimax.canned.tabular import tabular_sizes
from estimax.core.errors import FeatureError, SpecError

fc = ex.feature_columns
RNG = np.random.default_rng(7)
ROWS = 400
NUMBERS = RNG.normal(size=ROWS).astype(np.float32)
CITIES = RNG.choice(["Oslo", "Rome", "Lima", ""], ROWS)
MANY = np.array([f"user {i}" for i in RNG.integers(0, 20, ROWS)])
FEATURES = {"x": np.where(RNG.random(ROWS) < 0.1, np.nan, NUMBERS), "city": CITIES}
FEATURES = {**FEATURES, "user": MANY}
IS_NEAR = np.abs(np.nan_to_num(FEATURES["x"], nan=0.0)) < 0.6
BINARY = (IS_NEAR ^ (CITIES == "Rome")).astype(np.int32)
THREE = np.where(CITIES == "Lima", 2, IS_NEAR).astype(np.int32)
REAL = (100 + 30 * IS_NEAR - 50 * (CITIES == "")).astype(np.float32)


def config(seed=1):
    return ex.RunConfig(tf_random_seed=seed, save_summary_steps=None)


def data(labels, features=FEATURES, batch=100):
    def input_fn(mode):
        rows = ex.input.Dataset.from_tensor_slices((features, labels))
        if mode == ex.ModeKeys.TRAIN:
            rows = rows.shuffle(ROWS, seed=1).repeat()
        return rows.batch(batch)

    return input_fn


def classifier(folder, **options):
    options = {"train_rows": ROWS, "train_steps": 200, "config": config()} | options
    return ex.TabularClassifier(fc.tabular_columns(FEATURES), folder, **options)


def probabilities(model, features):
    rows = ex.input.Dataset.from_tensor_slices(features).batch(100)
    return np.stack([one["probabilities"] for one in model.predict(lambda: rows)])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    model = classifier(tmp_path_factory.mktemp("model"))
    return model.train(data(BINARY), steps=200)


def test_two_classes_are_learned(trained):
    found = trained.evaluate(data(BINARY))
    assert found["accuracy"] > 0.8 > found["accuracy_baseline"]
    constant = BINARY.mean()
    entropy = -constant * np.log(constant) - (1 - constant) * np.log(1 - constant)
    assert found["average_loss"] < 0.75 * entropy


def test_three_classes_are_learned(tmp_path):
    model = classifier(tmp_path, n_classes=3)
    found = model.train(data(THREE), steps=200).evaluate(data(THREE))
    assert found["accuracy"] > 0.95
    np.testing.assert_allclose(probabilities(model, FEATURES).sum(1), 1.0, rtol=1e-5)


def test_a_number_is_learned_in_its_own_unit(tmp_path):
    model = ex.TabularRegressor(
        fc.tabular_columns(FEATURES),
        tmp_path,
        label_mean=float(REAL.mean()),
        label_std=float(REAL.std()),
        train_rows=ROWS,
        train_steps=200,
        config=config(),
    )
    found = model.train(data(REAL), steps=200).evaluate(data(REAL))
    assert found["average_loss"] < 0.1 * REAL.var()
    assert found["prediction/mean"] == pytest.approx(REAL.mean(), rel=0.05)


def test_the_same_seed_gives_the_same_model(tmp_path):
    a, b = (
        probabilities(
            classifier(tmp_path / name).train(data(BINARY), steps=5), FEATURES
        )
        for name in "ab"
    )
    np.testing.assert_array_equal(a, b)


def plain_network(model, numbers, edges):
    """The probabilities of each member by NumPy, [members, B], of one number."""

    def value(name):
        return np.asarray(model.get_variable_value(f"tabular/{name}"), np.float64)

    low, high = np.array(edges[:-1]), np.array(edges[1:])
    share = np.clip((numbers[:, None] - low) / (high - low), 0, 1)
    codes = np.concatenate([share, np.zeros((len(numbers), 1))], axis=1)
    net = np.maximum(codes @ value("codes/kernel")[0] + value("codes/bias")[0], 0)
    linear = (net @ value("linear/kernel") + value("linear/bias"))[:, 0]
    found = []
    for member, scale in enumerate(value("members/scale")):
        hidden = (net * scale) @ value("hiddenlayer_0/kernel")
        hidden = np.maximum(hidden + value("hiddenlayer_0/bias")[member], 0)
        logits = hidden @ value("logits/kernel")[member] + value("logits/bias")[member]
        found.append(1 / (1 + np.exp(-logits[:, 0] - linear)))
    return np.stack(found)


def test_predictions_are_the_average_of_the_members_probabilities(tmp_path):
    edges = fc.quantile_boundaries(NUMBERS, 6)
    column = fc.piecewise_linear_column(fc.numeric_column("x"), edges)
    model = ex.TabularClassifier(
        [column], tmp_path, hidden_units=[5], members=3, config=config()
    )
    features = {"x": NUMBERS}
    labels = (np.abs(NUMBERS) < 1).astype(np.int32)
    model.train(data(labels, features), steps=50)
    members = plain_network(model, NUMBERS.astype(np.float64), edges)
    assert np.ptp(members, axis=0).max() > 0.001
    found = probabilities(model, features)[:, 1]
    np.testing.assert_allclose(found, members.mean(axis=0), atol=1e-5)


@pytest.mark.parametrize(
    ("head", "meaning"),
    [
        (ex.heads.BinaryClassHead(), lambda x: 1 / (1 + np.exp(-x))),
        (ex.heads.MultiLabelHead(2), lambda x: 1 / (1 + np.exp(-x))),
        (
            ex.heads.MultiClassHead(3),
            lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
        ),
        (ex.heads.PoissonRegressionHead(), np.exp),
        (ex.heads.RegressionHead(), lambda x: x),
    ],
)
def test_what_is_averaged_is_what_the_head_predicts(head, meaning):
    logits = RNG.normal(size=(4, 5, head.logits_dimension)) * 3
    found = np.asarray(average_logits(head, logits.astype(np.float32)), np.float64)
    wanted = meaning(logits).mean(axis=1)
    np.testing.assert_allclose(meaning(found), wanted, rtol=1e-4)


def test_a_bundle_predicts_what_the_model_does(trained, tmp_path):
    row = {name: column[:1] for name, column in FEATURES.items()}
    receive = ex.export.build_raw_serving_input_receiver_fn(row)
    bundle = ex.export.load(trained.export_saved_model(tmp_path, receive))
    given = {
        "x": np.array([np.nan, 0.1, np.inf, 5.0], np.float32),
        "city": np.array(["", "Rome", "never seen", "Oslo"]),
        "user": np.array(["user 1", "", "", "never seen"]),
    }
    found = bundle.predict(given, "predict")["probabilities"]
    wanted = probabilities(trained, given)
    assert np.all(np.isfinite(wanted))
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_missing_word_is_not_an_unknown_one(trained):
    given = {
        "x": np.zeros(2, np.float32),
        "city": np.array(["", "never seen"]),
        "user": np.array(["user 1"] * 2),
    }
    missing, unknown = probabilities(trained, given)
    assert np.abs(missing - unknown).max() > 1e-4


def test_training_starts_from_another_model(trained, tmp_path):
    model = classifier(
        tmp_path,
        warm_start_from=trained.model_dir,
        optimizer=ex.optimizers.SGD(0.0),
    )
    model.train(data(BINARY), steps=1)
    np.testing.assert_array_equal(
        probabilities(model, FEATURES), probabilities(trained, FEATURES)
    )


def test_a_resumed_training_has_the_same_bits(tmp_path):
    one_batch = data(BINARY, batch=ROWS)
    whole = classifier(tmp_path / "whole").train(one_batch, max_steps=8)
    classifier(tmp_path / "parts").train(one_batch, max_steps=3)
    parts = classifier(tmp_path / "parts").train(one_batch, max_steps=8)
    assert whole.get_variable_names() == parts.get_variable_names()
    for name in whole.get_variable_names():
        np.testing.assert_array_equal(
            whole.get_variable_value(name), parts.get_variable_value(name), name
        )


def test_infinite_numbers_do_not_spoil_a_model(tmp_path):
    x = NUMBERS.copy()
    x[:5], x[5:10] = np.inf, -np.inf
    features = {**FEATURES, "x": x}
    model = ex.TabularClassifier(
        fc.tabular_columns(features), tmp_path, config=config()
    )
    model.train(data(BINARY, features), steps=5)
    assert np.all(np.isfinite(probabilities(model, features)))


def test_other_columns_and_heads_can_be_used(tmp_path):
    columns = [
        fc.numeric_column("x", normalizer_fn=ex.transforms.Scaling(fill=0.0)),
        fc.indicator_column(fc.categorical_column_with_hash_bucket("city", 5)),
        fc.categorical_column_with_hash_bucket("user", 100),
    ]
    model = ex.TabularEstimator(
        ex.heads.PoissonRegressionHead(), columns, tmp_path, config=config()
    )
    counts = (REAL / 10).astype(np.float32)
    first = model.train(data(counts), steps=20).evaluate(data(counts))
    last = model.train(data(counts), steps=80).evaluate(data(counts))
    assert last["average_loss"] < first["average_loss"]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"members": 0}, SpecError, "members"),
        ({"members": 2.5}, SpecError, "members"),
        ({"dropout": 1.5}, SpecError, "dropout"),
        ({"train_rows": 0}, SpecError, "train_rows"),
        ({"train_steps": -1}, SpecError, "train_steps"),
        ({"hidden_units": 8}, SpecError, "hidden_units"),
        ({"n_classes": 1}, SpecError, "n_classes"),
        ({"optimizer": 3}, SpecError, "optimizer"),
    ],
)
def test_a_bad_argument_is_named(options, error, words):
    with pytest.raises(error, match=words):
        ex.TabularClassifier(fc.tabular_columns(FEATURES), **options)


@pytest.mark.parametrize("columns", [[], ["x"], [fc.numeric_column("x")] * 2])
def test_bad_columns_are_refused(columns):
    with pytest.raises((FeatureError, SpecError)):
        ex.TabularClassifier(columns)


def test_larger_tables_have_larger_networks_and_less_dropout():
    small, large = tabular_sizes(500, 10), tabular_sizes(1_000_000, 10)
    assert small.hidden_units[0] < large.hidden_units[0]
    assert small.dropout > large.dropout
    assert small.weight_decay > large.weight_decay
    assert tabular_sizes(None, 10) == tabular_sizes(10_000, 10)
