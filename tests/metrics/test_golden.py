"""Every metric against TensorFlow's own numbers, before data and after each batch.

That `jit` gives the same numbers is tested in `test_folding.py`, for every metric.
"""

import copy
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from golden_files import load_golden

from estimax import metrics

pytestmark = pytest.mark.golden

# keras names that are not just our names in CamelCase.
KERAS_NAMES = {
    "AUC": metrics.auc,
    "Sum": metrics.total,
    "MeanIoU": metrics.mean_iou,
    "KLDivergence": metrics.kl_divergence,
    "TopKCategoricalAccuracy": metrics.top_k_categorical_accuracy,
    "SparseTopKCategoricalAccuracy": metrics.sparse_top_k_categorical_accuracy,
}


def test_all_cases_agree_with_tensorflow() -> None:
    golden = load_golden("metrics.json")
    compared = compare(golden)
    assert len(compared) == len(golden["cases"])
    assert len(set(compared)) == len(compared)
    assert sum(name.startswith("v1") for name in compared) > 0


def test_all_further_cases_of_v1_agree_with_tensorflow() -> None:
    cases = load_golden("metrics_v1.json")["cases"]
    for case in cases:
        compare_case(case, decode_batches(case["batches"]))
    assert len({case["id"] for case in cases}) == len(cases)


def test_every_metric_of_v1_has_a_golden_case() -> None:
    files = [load_golden(name)["cases"] for name in ("metrics.json", "metrics_v1.json")]
    golden = {c["metric"] for cases in files for c in cases if c["api"] == "v1"}
    old_names = {"sparse_average_precision_at_k", "sparse_precision_at_k"}
    assert golden | old_names == set(metrics.v1.__all__)


@pytest.mark.parametrize("field", ["initial", "after_batch"])
def test_a_wrong_golden_value_is_noticed(field: str) -> None:
    golden = copy.deepcopy(load_golden("metrics.json"))
    case = next(case for case in golden["cases"] if case["metric"] == "AUC")
    golden["cases"] = [case]
    compare(golden)
    if field == "initial":
        case["initial"] = 0.001
    else:
        case["after_batch"][-1] += 0.001
    with pytest.raises(AssertionError, match=re.escape(case["id"])):
        compare(golden)


def compare(golden: dict[str, Any]) -> list[str]:
    """Check every case; the ids of those checked."""
    datasets = {
        name: decode_batches(batches) for name, batches in golden["datasets"].items()
    }
    compared = []
    for case in golden["cases"]:
        compare_case(case, datasets[case["dataset"]])
        compared.append(case["id"])
    return compared


def compare_case(case: dict[str, Any], batches: list[dict[str, np.ndarray]]) -> None:
    function = function_of(case)
    options = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in case["args"].items()
    }
    normalize = options.pop("normalizer", None) == "labels"

    def step(batch: dict[str, np.ndarray]) -> metrics.Sums:
        extra = {"normalizer": batch["labels"]} if normalize else {}
        return function(**batch, **options, **extra)

    seen = no_data(function, options, batches[0])
    if case.get("initial") is not None:
        expect(seen.compute(), case["initial"], f"{case['id']}: before any data")
    for number, batch in enumerate(batches):
        seen = seen.merge(step(batch))
        wanted = case["after_batch"][number]
        expect(seen.compute(), wanted, f"{case['id']}: after batch {number}")
    assert len(batches) == len(case["after_batch"])


def no_data(
    function: Callable[..., metrics.Sums],
    options: dict[str, Any],
    batch: dict[str, np.ndarray],
) -> metrics.Sums:
    # The shape of these two is only known from the data, so it has to be said.
    if function in (metrics.mean_tensor, metrics.v1.mean_tensor):
        options = {**options, "shape": batch["values"].shape}
    if options.get("multi_label"):
        options = {**options, "num_labels": batch["predictions"].shape[-1]}
    return function(**options)


def function_of(case: dict[str, Any]) -> Callable[..., metrics.Sums]:
    name = case["metric"]
    if case["api"] == "v1":
        return getattr(metrics.v1, name)
    assert case["api"] == "keras"
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    return KERAS_NAMES.get(name) or getattr(metrics, snake)


def expect(found: jax.Array, wanted: Any, what: str) -> None:
    wanted = decode(wanted) if isinstance(wanted, dict) else np.float32(float(wanted))
    assert np.shape(found) == np.shape(wanted), what
    np.testing.assert_allclose(found, wanted, rtol=5e-5, atol=2e-6, err_msg=what)


def decode_batches(batches: list[dict[str, Any]]) -> list[dict[str, np.ndarray]]:
    return [{key: decode(value) for key, value in batch.items()} for batch in batches]


def decode(tensor: dict[str, Any]) -> np.ndarray:
    data = tensor["data"]
    if tensor["dtype"].startswith("float"):
        data = [float(value) for value in data]
    return np.array(data, tensor["dtype"]).reshape(tensor["shape"])
