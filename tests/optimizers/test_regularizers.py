import copy

import jax.numpy as jnp
import numpy as np
import pytest
from golden_files import load_golden

from estimax import optimizers

FUNCTIONS = {
    "keras.regularizers.L1": optimizers.l1,
    "keras.regularizers.L2": optimizers.l2,
    "keras.regularizers.L1L2": optimizers.l1_l2,
    "nn.l2_loss": lambda: optimizers.l2_loss,
}


def compare(case):
    values = [float(v) for v in case["input"]["data"]]
    w = jnp.asarray(np.array(values, np.float32).reshape(case["input"]["shape"]))
    penalty = FUNCTIONS[case["fn"]](**case["args"])
    np.testing.assert_allclose(penalty(w), float(case["output"]), rtol=1e-5, atol=1e-7)


@pytest.mark.golden
def test_every_penalty_is_tensorflows():
    cases = load_golden("clipping.json")["regularizers"]
    compared = 0
    for case in cases:
        compare(case)
        compared += 1
    assert compared == len(cases) > 0


@pytest.mark.golden
def test_a_wrong_golden_penalty_is_noticed():
    case = copy.deepcopy(load_golden("clipping.json")["regularizers"][0])
    case["output"] *= 1.001
    with pytest.raises(AssertionError, match="tolerance"):
        compare(case)
