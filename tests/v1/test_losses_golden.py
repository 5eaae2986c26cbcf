"""Every loss against TensorFlow's own numbers and errors."""

import builtins
import copy
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from golden_files import load_golden

from estimax.v1 import losses

pytestmark = pytest.mark.golden


def test_all_cases_agree_with_tensorflow() -> None:
    cases = load_golden("losses.json")["cases"]
    for case in cases:
        compare(case)
    assert len({case["id"] for case in cases}) == len(cases)
    functions = {case["fn"] for case in cases}
    unreduced = {name for name in losses.__all__ if name.startswith(("add", "get"))}
    assert functions == set(losses.__all__) - unreduced - {"Reduction"}


def test_a_wrong_golden_value_is_noticed() -> None:
    case = copy.deepcopy(load_golden("losses.json")["cases"][0])
    case["output"]["data"][0] += 0.001
    with pytest.raises(AssertionError, match="absolute_difference/0"):
        compare(case)


def compare(case: dict[str, Any]) -> None:
    function = getattr(losses, case["fn"])
    given = {name: decode(tensor) for name, tensor in case["inputs"].items()}
    options = dict(case["args"])
    if case["weights"] is not None:
        weights = case["weights"]
        options["weights"] = decode(weights) if isinstance(weights, dict) else weights
    if case["reduction"] is not None:
        options["reduction"] = losses.Reduction[case["reduction"]]
    if "error" in case:
        with pytest.raises(getattr(builtins, case["error"])):
            function(**given, **options)
        return
    found = function(**given, **options)
    wanted = decode(case["output"])
    assert found.dtype == jnp.float32, case["id"]
    assert found.shape == wanted.shape, case["id"]
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-6, err_msg=case["id"])


def decode(tensor: dict[str, Any]) -> np.ndarray:
    return np.array(tensor["data"], tensor["dtype"]).reshape(tensor["shape"])
