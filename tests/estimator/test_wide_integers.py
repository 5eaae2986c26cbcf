"""Integers beyond 32 bits: columns take them on the host, models only if they fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import estimax as ex
from estimax import export
from estimax import feature_columns as fc
from estimax.core.errors import FeatureError, LabelError
from estimax.input import Dataset

BIG = 2**40
USERS = BIG + np.arange(6)
CLICKED = np.array([0, 1, 0, 1, 0, 1])


def _data(features, labels=CLICKED, batch=3):
    def input_fn(mode):
        parts = (features, labels) if mode != ex.ModeKeys.PREDICT else features
        return Dataset.from_tensor_slices(parts).batch(batch)

    return input_fn


def _through_all_modes(model, input_fn):
    """Train, evaluate and predict; the logits."""
    model.train(input_fn)
    assert np.isfinite(model.evaluate(input_fn)["loss"])
    return np.stack([p["logits"] for p in model.predict(input_fn)])


COLUMNS = [
    fc.categorical_column_with_hash_bucket("hashed", 50, dtype=np.int64),
    fc.categorical_column_with_vocabulary_list(
        "listed", [BIG, BIG + 1, BIG + 2], dtype=np.int64, num_oov_buckets=2
    ),
    fc.crossed_column(["hashed", "listed"], 50),
    fc.categorical_column_with_identity("defaulted", 10, default_value=3),
    fc.bucketized_column(fc.numeric_column("sorted"), [2.0**39]),
    fc.numeric_column("number", normalizer_fn=ex.transforms.Scaling(std=BIG)),
]


def _features(dtype):
    keys = ("hashed", "listed", "defaulted", "sorted", "number")
    return {key: USERS.astype(dtype) for key in keys}


@pytest.mark.parametrize(
    ("dtype", "debug"), [(np.int64, False), (np.uint64, False), (np.int64, True)]
)
def test_columns_take_ids_of_64_bits_in_every_mode(dtype, debug, tmp_path):
    config = ex.RunConfig(tmp_path, debug=debug)
    model = ex.LinearClassifier(COLUMNS, config=config)
    _through_all_modes(model, _data(_features(dtype)))


def test_an_exported_bundle_takes_ids_of_64_bits(tmp_path):
    features = _features(np.int64)
    model = ex.LinearClassifier(COLUMNS, tmp_path / "model")
    logits = _through_all_modes(model, _data(features))
    # The example is of small numbers, as that of a receiver mostly is.
    example = {key: np.zeros(1, np.int64) for key in features}
    receiver = export.build_raw_serving_input_receiver_fn(example)
    bundle = export.load(model.export_saved_model(tmp_path / "export", receiver))
    asked = {key: values.tolist() for key, values in features.items()}
    found = bundle.predict(asked, "predict")["logits"]
    np.testing.assert_allclose(found, logits, rtol=1e-6)


def test_a_numeric_column_gives_wide_integers_as_float32(tmp_path):
    layer = fc.DenseFeatures([fc.numeric_column("n")])
    values = np.array([BIG, -BIG, 3])
    assert layer.apply({}, {"n": values})[:, 0].tolist() == [BIG, -BIG, 3.0]
    large = np.array([2**63], np.uint64)
    assert layer.apply({}, {"n": large})[0, 0] == 2.0**63
    column = fc.numeric_column("n")
    optimizer = ex.optimizers.SGD(1e-30)
    model = ex.LinearClassifier([column], tmp_path, optimizer=optimizer)
    _through_all_modes(model, _data({"n": USERS}))


def test_a_normalizer_of_wide_integers_is_told(tmp_path):
    column = fc.numeric_column("n", normalizer_fn=lambda n: n / 2)
    with pytest.raises(FeatureError, match=r"features/n holds .*without a normalizer"):
        ex.LinearClassifier([column], tmp_path).train(_data({"n": USERS}))


def test_a_hash_of_a_wide_id_is_that_of_its_decimal_text():
    number = fc.categorical_column_with_hash_bucket("user", 1000, dtype=np.int64)
    text = fc.categorical_column_with_hash_bucket("user", 1000)
    values = np.array([BIG, 2**63, 2**64 - 1], np.uint64)
    ids = number.id_source.entries({"user": values}).values
    words = text.id_source.entries({"user": np.array([str(v) for v in values])}).values
    assert ids.tolist() == words.tolist()


def test_the_largest_uint64_is_not_a_missing_value():
    values = np.array([2**64 - 1, 7], np.uint64)
    for column in (
        fc.categorical_column_with_hash_bucket("n", 9, dtype=np.int64),
        fc.categorical_column_with_vocabulary_list("n", [7], dtype=np.int64),
        fc.categorical_column_with_identity("n", 9),
    ):
        assert len(column.id_source.entries({"n": values}).values) == 2


def test_a_uint64_beyond_int64_is_out_of_vocabulary():
    values = np.array([2**64 - 7, 2**64 - 1], np.uint64)
    plain = ex.transforms.Vocabulary("n", ex.transforms.WordList.of([-7, -1]))
    assert plain.entries({"n": values}).values.tolist() == [-1, -1]
    hashed = ex.transforms.Vocabulary("n", ex.transforms.WordList.of([-7]), 4)
    text = ex.transforms.Vocabulary("n", ex.transforms.WordList.of(["x"]), 4)
    words = np.array([str(v) for v in values])
    assert (
        hashed.entries({"n": values}).values.tolist()
        == text.entries({"n": words}).values.tolist()
    )


@pytest.mark.parametrize(
    ("value", "shown"), [(BIG, str(BIG)), (np.uint64(2**63), f"{2**63 - 1} or larger")]
)
def test_an_id_outside_of_its_buckets_is_named(value, shown):
    column = fc.categorical_column_with_identity("user", 10)
    layer = fc.DenseFeatures([fc.embedding_column(column, 2)])
    with pytest.raises(FeatureError, match=rf"'user': id {shown} is not in \[0, 10\)"):
        layer.init_with_output(jax.random.key(0), {"user": np.array([value])})


def test_an_identity_column_without_default_names_the_id_in_training(tmp_path):
    column = fc.categorical_column_with_identity("user", 10)
    model = ex.LinearClassifier([column], tmp_path)
    with pytest.raises(FeatureError, match=rf"id {BIG} is not in \[0, 10\)"):
        model.train(_data({"user": USERS}))


@pytest.mark.parametrize("debug", [False, True])
def test_what_no_column_uses_may_hold_anything(debug, tmp_path):
    features = {
        "x": np.arange(6, dtype=np.float32),
        "row_key": USERS,
        "time_ms": np.uint64(2**63) + np.arange(6, dtype=np.uint64),
    }
    config = ex.RunConfig(tmp_path, debug=debug)
    model = ex.LinearClassifier([fc.numeric_column("x")], config=config)
    _through_all_modes(model, _data(features))


def test_a_later_batch_may_be_the_first_with_wide_values(tmp_path):
    column = fc.categorical_column_with_hash_bucket("user", 50, dtype=np.int64)
    users = np.array([1, 2, 3, BIG, BIG, BIG])
    model = ex.LinearClassifier([column], tmp_path)
    _through_all_modes(model, _data({"user": users, "unused": users}))


def test_a_baseline_counts_rows_by_features_that_are_too_wide(tmp_path):
    model = ex.BaselineClassifier(tmp_path / "model")
    input_fn = _data({"row_key": USERS})
    logits = _through_all_modes(model, input_fn)
    assert logits.shape == (6, 1)
    receiver = export.build_raw_serving_input_receiver_fn({"row_key": USERS[:1]})
    bundle = export.load(model.export_saved_model(tmp_path / "export", receiver))
    assert bundle.predict({"row_key": USERS}, "predict")["logits"].shape == (6, 1)


def _touching(features, labels, mode):
    small = features["user"] - features["user"][:1]
    y = nn.Dense(1)(small.astype(jnp.float32)[:, None])
    if mode == ex.ModeKeys.PREDICT:
        return ex.EstimatorSpec(mode, predictions={"y": y})
    loss = jnp.mean(jnp.square(y[:, 0] - labels))
    return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.SGD(0.01))


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("users", [USERS, USERS * [0, 0, 0, 1, 1, 1]])
def test_a_model_that_uses_a_wide_feature_is_told(debug, users, tmp_path):
    config = ex.RunConfig(tmp_path, debug=debug)
    model = ex.Estimator(_touching, config=config)
    with pytest.raises(FeatureError, match=r"features/user holds .*32-bit.*hash_buck"):
        model.train(_data({"user": users}))


def test_a_model_may_use_64_bit_integers_that_fit(tmp_path):
    model = ex.Estimator(_touching, tmp_path)
    model.train(_data({"user": np.arange(6), "key": USERS}))


def _using_labels(features, labels, mode):
    y = nn.Dense(1)(features["x"][:, None])[:, 0]
    loss = jnp.mean(jnp.square(y - labels))
    return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.SGD(0.01))


def test_wide_labels_that_a_model_uses_are_named(tmp_path):
    model = ex.Estimator(_using_labels, tmp_path)
    with pytest.raises(FeatureError, match=rf"labels holds? {BIG}.*float32"):
        model.train(_data({"x": np.ones(6, np.float32)}, USERS))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_class_ids_out_of_range_are_named(n_classes, tmp_path):
    model = ex.LinearClassifier([fc.numeric_column("x")], tmp_path, n_classes=n_classes)
    with pytest.raises(LabelError, match=rf"found {BIG} in row 0"):
        model.train(_data({"x": np.ones(6, np.float32)}, USERS))


def test_labels_and_weights_of_64_bits_are_taken(tmp_path):
    model = ex.LinearRegressor(
        [fc.numeric_column("x")],
        tmp_path,
        weight_column="w",
        optimizer=ex.optimizers.SGD(1e-30),
    )
    features = {"x": np.ones(6, np.float32), "w": np.full(6, BIG)}
    model.train(_data(features, USERS))
    found = model.evaluate(_data(features, USERS))
    assert found["label/mean"] == pytest.approx(float(BIG), rel=1e-6)


def test_a_weight_column_reads_small_integers_as_before(tmp_path):
    model = ex.LinearRegressor([fc.numeric_column("x")], tmp_path, weight_column="w")
    features = {"x": np.ones(6, np.float32), "w": np.array([1, 1, 1, 0, 0, 0])}
    model.train(_data(features, np.arange(6.0)))
    assert model.evaluate(_data(features, np.arange(6.0), 6))["label/mean"] == 1.0


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.uint32])
def test_narrower_integers_train_as_they_are(dtype, tmp_path):
    ids = np.array([0, 1, 2, 3, 4, np.iinfo(dtype).max], dtype)
    columns = [
        fc.categorical_column_with_hash_bucket("a", 50, dtype=np.int64),
        fc.categorical_column_with_identity("b", 5, default_value=0),
        fc.bucketized_column(fc.numeric_column("c"), [2.5]),
        fc.numeric_column("d"),
    ]
    optimizer = ex.optimizers.SGD(1e-30)
    model = ex.LinearClassifier(columns, tmp_path, optimizer=optimizer)
    model.train(_data(dict.fromkeys("abcd", ids)))


def test_bools_are_numbers_but_no_ids(tmp_path):
    flags = np.array([True, False] * 3)
    model = ex.LinearClassifier([fc.numeric_column("flag")], tmp_path)
    _through_all_modes(model, _data({"flag": flags}))
    column = fc.categorical_column_with_identity("flag", 2)
    with pytest.raises(FeatureError, match=r"'flag'.* takes integers, got bool"):
        ex.LinearClassifier([column], tmp_path / "ids").train(_data({"flag": flags}))


def test_a_float_key_of_a_cross_is_refused(tmp_path):
    column = fc.crossed_column(["a", "b"], 10)
    features = {"a": np.array([1.5, 2.5, 3.0] * 2), "b": USERS}
    with pytest.raises(FeatureError, match=r"'a'.*integers or strings, got float64"):
        ex.LinearClassifier([column], tmp_path).train(_data(features))


def test_float64_beyond_float32_is_infinite_as_in_tensorflow():
    layer = fc.DenseFeatures([fc.numeric_column("x")])
    values = np.array([1e300, -1e300, 1.0])
    assert layer.apply({}, {"x": values})[:, 0].tolist() == [np.inf, -np.inf, 1.0]
    buckets = fc.bucketized_column(fc.numeric_column("x"), [0.0, 3e38])
    ids = buckets.id_source.entries({"x": values}).values
    assert ids.tolist() == [2, 0, 1]


def test_float64_beyond_float32_reaches_a_model_as_infinity(tmp_path):
    def model_fn(features, mode):
        loss = nn.Dense(1)(features["x"][:, None]).mean()
        predictions, train_op = {"x": features["x"] * 1}, ex.optimizers.SGD(0.1)
        return ex.EstimatorSpec(mode, predictions, loss=loss, train_op=train_op)

    model = ex.Estimator(model_fn, tmp_path)
    model.train(lambda: iter([{"x": np.ones(2)}]))
    found = model.predict(lambda: iter([{"x": np.array([1e300, 2.0])}]))
    assert [float(p["x"]) for p in found] == [np.inf, 2.0]
