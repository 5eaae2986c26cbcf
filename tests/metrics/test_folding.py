"""Any way of cutting the data gives one result: batches, devices, jit or not."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from estimax import metrics
from estimax.v1 import metrics as v1

N = 224  # 8 devices of 28 examples
# 7 uneven batches, which keep groups of 4 whole and come in two sizes to compile.
EDGES = [0, 64, 72, 80, 144, 152, 216, N]
MESH = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))

# Names that are not metrics, or have a test of their own below.
NOT_HERE = {"Metric", "MetricError", "Sums", "collection", "from_sums", "v1"}
OWN_TEST = {"mean_tensor"}

BINARY: dict[str, dict[str, Any]] = {
    "auc": {},
    "precision": {},
    "recall": {"thresholds": (0.6, 0.3)},
    "true_positives": {},
    "false_positives": {},
    "true_negatives": {},
    "false_negatives": {},
    "binary_accuracy": {"threshold": 0.3},
    "log_loss": {},
    "sensitivity_at_specificity": {"specificity": 0.5},
    "specificity_at_sensitivity": {"sensitivity": 0.5},
    "precision_at_recall": {"recall": 0.5},
    "recall_at_precision": {"precision": 0.5},
    "expected_calibration_error": {},
    "reliability_curve": {"num_bins": 4},
    "gain_at_k": {},
    "lift_at_k": {"k": 0.3},
    "root_mean_squared_error": {},
}
BINARY_V1: dict[str, dict[str, Any]] = {
    name: {}
    for name in (
        "auc",
        "mean_absolute_error",
        "mean_squared_error",
        "root_mean_squared_error",
    )
} | {
    "sensitivity_at_specificity": {"specificity": 0.5},
    "specificity_at_sensitivity": {"sensitivity": 0.5},
    **{
        f"{count}_at_thresholds": {"thresholds": (0.6, 0.3)}
        for count in (
            "precision",
            "recall",
            "true_positives",
            "false_positives",
            "true_negatives",
            "false_negatives",
        )
    },
}
DECISIONS_V1: dict[str, dict[str, Any]] = {
    "accuracy": {},
    "precision": {},
    "recall": {},
    "true_positives": {},
    "false_positives": {},
    "true_negatives": {},
    "false_negatives": {},
}
ROWS: dict[str, dict[str, Any]] = {
    "binary_crossentropy": {},
    "categorical_crossentropy": {},
    "categorical_accuracy": {},
    "top_k_categorical_accuracy": {"k": 2},
    "kl_divergence": {},
    "cosine_similarity": {},
    "log_cosh_error": {},
    "mean_absolute_error": {},
    "mean_squared_error": {},
    "poisson": {},
    "ndcg_at_k": {"k": 3},
    "mean_reciprocal_rank": {},
}
IDS_AND_SCORES: dict[str, dict[str, Any]] = {
    "sparse_categorical_accuracy": {},
    "sparse_categorical_crossentropy": {},
    "sparse_top_k_categorical_accuracy": {"k": 2},
}
IDS_AND_SCORES_V1: dict[str, dict[str, Any]] = {
    "average_precision_at_k": {"k": 2},
    "precision_at_k": {"k": 2},
    "recall_at_k": {"k": 2},
    "sparse_average_precision_at_k": {"k": 2},
    "sparse_precision_at_k": {"k": 2},
}
IDS_AND_IDS_V1: dict[str, dict[str, Any]] = {
    "precision_at_top_k": {},
    "recall_at_top_k": {},
}
VALUES: dict[str, dict[str, Any]] = {"mean": {}, "total": {}}
IDS = {"mean_iou": {"num_classes": 5}}
GROUPED: dict[str, dict[str, Any]] = {
    "group_auc": {"num_groups": 60},
    "batch_group_auc": {},
}

# The function, and which column of the data goes to which argument.
Case = tuple[Callable[..., metrics.Sums], dict[str, str]]
Results = dict[str, Any]


def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    rows = rng.random((N, 4), np.float32)
    return {
        "labels": rng.integers(0, 2, N),
        "scores": rng.random(N, np.float32),
        # Multiples of 1/2 add up exactly in any order; some are 0.
        "weights": rng.integers(0, 5, N).astype(np.float32) / 2,
        "decisions": rng.integers(0, 2, N),
        "ids": rng.integers(0, 4, N),
        "guesses": rng.integers(0, 4, N),
        "rows": rows / rows.sum(axis=1, keepdims=True),
        "retrieved": np.argsort(-rows)[:, :2],
        "truth": np.eye(4, dtype=np.float32)[rng.integers(0, 4, N)],
        "groups": np.arange(N) // 4,
    }


def all_cases() -> dict[str, Case]:
    cases: dict[str, Case] = {}

    def add(package: Any, table: dict[str, dict[str, Any]], **fields: str) -> None:
        for name, options in table.items():
            function = partial(getattr(package, name), **options)
            cases[f"{package.__name__}.{name}"] = function, fields

    add(metrics, BINARY, labels="labels", predictions="scores", weights="weights")
    add(v1, BINARY_V1, labels="labels", predictions="scores", weights="weights")
    hard = {"labels": "labels", "predictions": "decisions", "weights": "weights"}
    add(metrics, {"accuracy": {}}, **hard)
    add(v1, DECISIONS_V1, **hard)
    add(metrics, ROWS, labels="truth", predictions="rows", weights="weights")
    add(metrics, IDS_AND_SCORES, labels="ids", predictions="rows", weights="weights")
    add(v1, IDS_AND_SCORES_V1, labels="ids", predictions="rows", weights="weights")
    retrieved = {"labels": "ids", "predictions_idx": "retrieved", "weights": "weights"}
    add(v1, IDS_AND_IDS_V1, **retrieved)
    add(metrics, VALUES, values="scores", weights="weights")
    add(metrics, {"accuracy_baseline": {}}, labels="labels", weights="weights")
    add(v1, {"mean": {}}, values="scores", weights="weights")
    add(v1, {"percentage_below": {"threshold": 0.3}}, values="scores")
    add(metrics, IDS, labels="ids", predictions="guesses", weights="weights")
    add(v1, IDS, labels="ids", predictions="guesses", weights="weights")
    per_class = {"mean_per_class_accuracy": {"num_classes": 5}}
    add(v1, per_class, labels="ids", predictions="guesses", weights="weights")
    cosine = {"mean_cosine_distance": {"dim": 1}}
    add(v1, cosine, labels="truth", predictions="rows", weights="weights")
    relative: dict[str, dict[str, Any]] = {"mean_relative_error": {}}
    add(v1, relative, labels="scores", predictions="labels", normalizer="scores")
    fields = {"labels": "labels", "predictions": "scores", "weights": "weights"}
    add(metrics, GROUPED, groups="groups", **fields)
    return cases


CASES = all_cases()
each_metric = pytest.mark.parametrize("name", CASES)


def batch_metrics(columns: dict[str, Any]) -> dict[str, metrics.Metric]:
    """Every metric of one batch, compiled together: 70 compilations take minutes."""
    return {
        name: function(**{key: columns[field] for key, field in fields.items()})
        for name, (function, fields) in CASES.items()
    }


@pytest.fixture(scope="module")
def one_batch() -> Results:
    return metrics.metric.compute(batch_metrics(data()))


@pytest.fixture(scope="module")
def seven_batches() -> Results:
    step = jax.jit(batch_metrics)
    seen = {name: function() for name, (function, _) in CASES.items()}
    for start, stop in itertools.pairwise(EDGES):
        part = {name: column[start:stop] for name, column in data().items()}
        seen = metrics.metric.merge(seen, step(part))
    return metrics.metric.compute(seen)


@pytest.fixture(scope="module")
def eight_devices() -> Results:
    spec = PartitionSpec("data")

    @jax.jit
    @partial(jax.shard_map, mesh=MESH, in_specs=spec, out_specs=PartitionSpec())
    def summed(part: dict[str, jax.Array]) -> dict[str, metrics.Metric]:
        return jax.lax.psum(batch_metrics(part), "data")

    placed = jax.device_put(data(), NamedSharding(MESH, spec))
    return metrics.metric.compute(summed(placed))


@pytest.fixture(scope="module")
def padded_batch() -> Results:
    def pad(column: np.ndarray) -> np.ndarray:
        return np.concatenate([column, np.zeros_like(column[:28])])

    padded = {name: pad(column) for name, column in data().items()}
    padded["scores"][-28:] = np.nan
    padded["rows"][-28:] = np.nan
    padded["ids"][-28:] = -1
    return metrics.metric.compute(jax.jit(batch_metrics)(padded))


def test_every_public_metric_is_tested_here() -> None:
    public = {f"{metrics.__name__}.{name}" for name in metrics.__all__}
    public |= {f"{v1.__name__}.{name}" for name in v1.__all__}
    others = {
        f"{package.__name__}.{name}"
        for package in (metrics, v1)
        for name in NOT_HERE | OWN_TEST
    }
    assert public - others == CASES.keys()


@each_metric
def test_seven_uneven_batches_equal_one(
    name: str, one_batch: Results, seven_batches: Results
) -> None:
    np.testing.assert_allclose(seven_batches[name], one_batch[name], rtol=2e-6)
    assert np.all(np.isfinite(one_batch[name]))
    assert np.any(one_batch[name] > 0)


@each_metric
def test_eight_devices_equal_one(
    name: str, one_batch: Results, eight_devices: Results
) -> None:
    np.testing.assert_allclose(eight_devices[name], one_batch[name], rtol=2e-6)


@pytest.mark.parametrize(
    "name", [name for name in CASES if "weights" in CASES[name][1]]
)
def test_padding_of_weight_zero_changes_nothing(
    name: str, one_batch: Results, padded_batch: Results
) -> None:
    np.testing.assert_allclose(padded_batch[name], one_batch[name], rtol=2e-6)


@each_metric
def test_no_data_is_the_zero_of_merging(name: str) -> None:
    function, fields = CASES[name]
    nothing = function()
    part = {key: data()[field][:28] for key, field in fields.items()}
    metric = jax.eval_shape(function, **part)
    assert jax.tree.structure(nothing) == jax.tree.structure(metric)
    assert jax.tree.map(jnp.shape, nothing) == jax.tree.map(jnp.shape, metric)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(nothing))


def test_mean_tensor_folds_batches_of_one_shape() -> None:
    batches = np.arange(21, dtype=np.float32).reshape(7, 3)
    step = jax.jit(lambda seen, batch: seen.merge(metrics.mean_tensor(batch)))
    seen = metrics.mean_tensor(shape=(3,))
    for batch in batches:
        seen = step(seen, batch)
    np.testing.assert_allclose(seen.compute(), batches.mean(axis=0))


def test_a_sharded_batch_needs_no_psum() -> None:
    columns = {key: data()[key] for key in ("labels", "scores", "weights")}
    placed = jax.device_put(columns, NamedSharding(MESH, PartitionSpec("data")))
    found = jax.jit(metrics.auc)(placed["labels"], placed["scores"], placed["weights"])
    wanted = metrics.auc(*columns.values())
    np.testing.assert_allclose(found.compute(), wanted.compute(), rtol=2e-6)


def test_metrics_fold_in_a_compiled_scan() -> None:
    batches = jnp.asarray(data()["scores"]).reshape(8, 28)

    @jax.jit
    def fold(batches: jax.Array) -> metrics.Sums:
        def step(seen: metrics.Sums, batch: jax.Array) -> tuple[metrics.Sums, None]:
            return seen.merge(metrics.mean(batch)), None

        return jax.lax.scan(step, metrics.mean(), batches)[0]

    np.testing.assert_allclose(fold(batches).compute(), batches.mean(), rtol=2e-6)
