import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden_files import load_golden

from estimax import optimizers
from estimax.optimizers import Clip

GLOBAL = ("global_norm", "clip_by_global_norm")


def decode(tensor):
    if tensor is None:
        return None
    if "indexed_slices" in tensor:
        return decode(tensor["indexed_slices"]["values"])
    if "indexed_slices_values" in tensor:
        return decode(tensor["indexed_slices_values"])
    values = [float(v) for v in tensor["data"]]
    return jnp.asarray(np.array(values, tensor["dtype"]).reshape(tensor["shape"]))


def compare(case):
    """Assert a case; return how many arrays were compared."""
    clip = getattr(optimizers, case["fn"])
    inputs = [decode(t) for t in case["inputs"]]
    expected = [decode(t) for t in case.get("outputs", [])]
    if "global_norm" in case:
        norm = float(case["global_norm"])
        expected.append(jnp.float32(norm))
    if case["fn"] == "clip_by_global_norm":
        clipped, norm = clip(inputs, **case["args"])
        results = [*clipped, norm]
    elif case["fn"] == "global_norm":
        results = [clip(inputs, **case["args"])]
    else:
        results = [clip(values, **case["args"]) for values in inputs]
    for result, value in zip(results, expected, strict=True):
        if value is None:
            assert result is None
        else:
            np.testing.assert_allclose(
                result, value, rtol=1e-5, atol=1e-7, err_msg=case["fn"]
            )
    return len(expected)


@pytest.mark.golden
def test_every_clipping_is_tensorflows():
    cases = load_golden("clipping.json")["clipping"]
    compared = [compare(case) for case in cases]
    assert len(compared) == len(cases) > 0
    assert min(compared) > 0


@pytest.mark.golden
def test_a_wrong_golden_output_is_noticed():
    case = copy.deepcopy(load_golden("clipping.json")["clipping"][0])
    case["outputs"][0]["data"][0] += 1e-3
    with pytest.raises(AssertionError, match="tolerance"):
        compare(case)


@pytest.mark.parametrize("name", GLOBAL)
def test_a_single_array_is_no_list_for_a_global_norm(name):
    arguments = (1.0,) if name == "clip_by_global_norm" else ()
    with pytest.raises(TypeError, match="expected a list, tuple or dict"):
        getattr(optimizers, name)(jnp.ones(3), *arguments)


def test_legacy_clips_by_value_and_then_by_norm():
    clipped = Clip(value=1.0, norm=1.0)({"w": jnp.array([5.0, 1.0])})
    np.testing.assert_allclose(clipped["w"], [0.5**0.5, 0.5**0.5], rtol=1e-6)


def test_the_newest_keras_clips_by_norm_alone():
    clip = Clip(value=1.0, norm=1.0, first_only=True)
    clipped = clip({"w": jnp.array([3.0, 4.0])})
    np.testing.assert_allclose(clipped["w"], [0.6, 0.8], rtol=1e-6)


def test_a_norm_is_of_each_variable_and_a_global_norm_of_all():
    grads = {"a": jnp.array([3.0]), "b": jnp.array([4.0])}
    each = Clip(norm=1.0)(grads)
    together = Clip(global_norm=1.0)(grads)
    assert [float(each["a"][0]), float(each["b"][0])] == [1.0, 1.0]
    np.testing.assert_allclose([together["a"][0], together["b"][0]], [0.6, 0.8])


def test_norm_and_global_norm_exclude_each_other():
    with pytest.raises(ValueError, match="exclude each other"):
        Clip(norm=1.0, global_norm=1.0)


def test_a_limit_must_be_positive():
    with pytest.raises(ValueError, match="value must be positive, got 0"):
        Clip(value=0)


def test_clipping_keeps_bfloat16():
    grads = {"w": jnp.ones(4, jnp.bfloat16)}
    for clip in (Clip(value=0.5), Clip(norm=0.5), Clip(global_norm=0.5)):
        assert jax.jit(clip)(grads)["w"].dtype == jnp.bfloat16
