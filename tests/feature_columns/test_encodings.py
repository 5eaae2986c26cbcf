"""Piecewise-linear and periodic encodings of numbers."""

import itertools
import math

import jax
import numpy as np
import pytest

import estimax as ex
from estimax.core.errors import FeatureError

fc = ex.feature_columns
RNG = np.random.default_rng(5)
NAN, INF = float("nan"), float("inf")


def dense(columns, features, variables=None):
    return np.asarray(fc.DenseFeatures(columns).apply(variables or {}, features))


def plain_codes(number, edges):
    """The formula of the codes, one number at a time."""
    if math.isnan(number):
        return [0.0] * (len(edges) - 1) + [1.0]
    bins = itertools.pairwise(edges)
    return [min(1.0, max(0.0, (number - a) / (b - a))) for a, b in bins] + [0.0]


def test_k_means_finds_the_gaps_between_groups():
    rng = np.random.default_rng(0)
    groups = [rng.normal(at, 1, n) for at, n in ((0, 2000), (50, 20), (70, 300))]
    values = np.concatenate([*groups, [np.nan, np.inf]])
    low, high = fc.k_means_boundaries(values, 3)
    assert 5 < low < 45
    assert 55 < high < 65
    assert fc.k_means_boundaries(rng.permutation(values), 3) == (low, high)


def test_k_means_is_the_best_of_all_divisions():
    values = np.sort(RNG.exponential(1, 12)) + 1e6

    def spread(parts):
        return sum(((part - part.mean()) ** 2).sum() for part in parts)

    cuts = itertools.combinations(range(1, 12), 2)
    best = min(cuts, key=lambda cut: spread(np.split(values, cut)))
    found = np.searchsorted(values, fc.k_means_boundaries(values, 3))
    assert tuple(found) == best


def test_k_means_of_few_values():
    assert fc.k_means_boundaries([1, 2, 2, 4], 8) == (1.5, 3.0)
    assert fc.k_means_boundaries([5, 5], 3) == (5.0,)
    with pytest.raises(FeatureError, match="no finite value"):
        fc.k_means_boundaries([np.nan], 3)
    for wrong in (1, True, 2.5):
        with pytest.raises(FeatureError, match="buckets must be"):
            fc.k_means_boundaries([1, 2], wrong)


def test_codes_are_those_of_a_plain_formula():
    edges = [-2.0, -0.5, 0.0, 0.25, 3.0]
    numbers = RNG.normal(scale=2, size=50).astype(np.float32)
    column = fc.piecewise_linear_column(fc.numeric_column("x"), edges)
    wanted = [plain_codes(float(number), edges) for number in numbers]
    np.testing.assert_allclose(dense([column], {"x": numbers}), wanted, atol=1e-6)


def test_missing_and_infinite_numbers_have_codes():
    column = fc.piecewise_linear_column(fc.numeric_column("x"), [0, 1, 2])
    found = dense([column], {"x": [NAN, INF, -INF, 1e38, -7.0]})
    wanted = [[0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 1, 0], [0, 0, 0]]
    assert found.tolist() == wanted


def test_every_number_of_a_vector_has_its_codes():
    column = fc.piecewise_linear_column(fc.numeric_column("x", shape=[2]), [0, 1, 3])
    assert column.variable_shape == (2, 3)
    found = dense([column], {"x": [[0.5, 2.0], [NAN, 4.0]]})
    assert found.tolist() == [[0.5, 0, 0, 1, 0.5, 0], [0, 0, 1, 1, 1, 0]]


@pytest.mark.parametrize(
    "edges", [[], [1], [1, 1], [2, 1], [0, INF], [0, NAN], "ab", 3]
)
def test_edges_must_be_two_finite_ascending_numbers(edges):
    with pytest.raises(FeatureError, match="'x': boundaries must"):
        fc.piecewise_linear_column(fc.numeric_column("x"), edges)


def test_edges_must_differ_as_float32():
    with pytest.raises(FeatureError, match="as float32"):
        fc.piecewise_linear_column(fc.numeric_column("x"), [1.0, 1.0 + 1e-9])


@pytest.mark.parametrize("function", [fc.piecewise_linear_column, fc.periodic_column])
def test_only_numeric_columns_are_encoded(function):
    word = fc.categorical_column_with_hash_bucket("word", 10)
    with pytest.raises(FeatureError, match="must be a numeric_column"):
        function(word, [1, 2])


def test_waves_are_sines_then_cosines():
    hours = np.array([0.0, 5.0, 23.0], np.float32)
    column = fc.periodic_column(fc.numeric_column("hour"), [24, 12])
    angles = 2 * np.pi * hours[:, None] / np.array([24.0, 12.0])
    wanted = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    np.testing.assert_allclose(dense([column], {"hour": hours}), wanted, atol=1e-6)


def test_waves_of_missing_and_infinite_numbers_are_zero():
    column = fc.periodic_column(fc.numeric_column("hour"), [24])
    assert dense([column], {"hour": [NAN, INF, -INF]}).tolist() == [[0, 0]] * 3


def test_trained_periods_have_finite_gradients_when_numbers_are_missing():
    column = fc.periodic_column(fc.numeric_column("x"), [3.0, 10.0], trainable=True)
    layer = fc.DenseFeatures([column])
    features = {"x": np.array([1.0, NAN, INF], np.float32)}
    variables = layer.init(jax.random.key(0), features)
    (found,) = jax.tree.leaves(variables)
    np.testing.assert_allclose(found, [1 / 3, 0.1], rtol=1e-6)
    slopes = jax.grad(lambda v: layer.apply(v, features).sum())(variables)
    (slope,) = jax.tree.leaves(slopes)
    assert np.all(np.isfinite(slope))
    assert np.all(slope != 0)


@pytest.mark.parametrize("periods", [[], [0], [-1.0], [INF], 24])
def test_periods_must_be_positive_numbers(periods):
    with pytest.raises(FeatureError, match="'x': periods must"):
        fc.periodic_column(fc.numeric_column("x"), periods)


def test_half_of_the_edges_divide_rare_values():
    values = np.concatenate([np.zeros(900), np.arange(1, 101)])
    edges = fc.quantile_boundaries(values, bins=10)
    assert len(edges) <= 11
    assert sum(edge > 0 for edge in edges) >= 5
    assert edges[0] == 0
    assert edges[-1] == 100
    assert list(edges) == sorted(set(edges))


def test_few_distinct_values_are_all_edges():
    assert fc.quantile_boundaries([3, 1, 1, 2, NAN, INF], bins=5) == (1.0, 2.0, 3.0)


@pytest.mark.parametrize("only", [0.0, 5.0, -1e8, 3e38])
def test_one_distinct_value_makes_one_bin(only):
    edges = fc.quantile_boundaries([only, NAN, only])
    column = fc.piecewise_linear_column(fc.numeric_column("x"), edges)
    found = dense([column], {"x": np.array([only, NAN], np.float32)})
    assert found.tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize(
    ("values", "bins", "words"),
    [([NAN, INF], 4, "no finite"), ([], 4, "no finite"), ([1.0, 2.0], 0, "bins")],
)
def test_edges_need_finite_values_and_a_bin(values, bins, words):
    with pytest.raises(FeatureError, match=words):
        fc.quantile_boundaries(values, bins)


def test_examples_are_parsed_as_for_the_number():
    age = fc.numeric_column("age", default_value=3.0)
    codes = fc.piecewise_linear_column(age, [0, 1])
    waves = fc.periodic_column(age, [24])
    wanted = fc.make_parse_example_spec([age])
    assert fc.make_parse_example_spec([codes, waves, age]) == wanted


def test_encodings_are_trained_exported_and_served(tmp_path):
    x = RNG.uniform(0, 24, 256).astype(np.float32)
    x[::16] = NAN
    labels = ((x > 6) & (x < 12)).astype(np.int32)
    number = fc.numeric_column("x")
    columns = [
        fc.piecewise_linear_column(number, fc.quantile_boundaries(x, 8)),
        fc.periodic_column(number, [24.0, 12.0], trainable=True),
    ]
    config = ex.RunConfig(tf_random_seed=1, save_summary_steps=None)
    model = ex.DNNClassifier(
        [16], columns, tmp_path / "model", optimizer="Adam", config=config
    )
    rows = ex.input.Dataset.from_tensor_slices(({"x": x}, labels))
    model.train(lambda: rows.repeat().batch(64), steps=300)
    assert model.evaluate(lambda: rows.batch(64))["accuracy"] > 0.9
    wanted = [one["probabilities"] for one in model.predict(lambda: rows.batch(256))]

    receive = ex.export.build_raw_serving_input_receiver_fn({"x": x[:1]})
    bundle = ex.export.load(model.export_saved_model(tmp_path / "export", receive))
    found = bundle.predict({"x": x}, "predict")["probabilities"]
    np.testing.assert_allclose(found, wanted, atol=1e-6)

    receive = ex.export.build_parsing_serving_input_receiver_fn(
        fc.make_parse_example_spec([fc.numeric_column("x", default_value=NAN)])
    )
    bundle = ex.export.load(model.export_saved_model(tmp_path / "parsed", receive))
    found = bundle.predict({"x": x}, "predict")["probabilities"]
    np.testing.assert_allclose(found, wanted, atol=1e-6)
