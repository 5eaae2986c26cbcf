"""Every sequence case of the golden files, compared with TensorFlow's answer."""

import flax.traverse_util
import jax
import numpy as np
import pytest
from golden_columns import build_all, features_of, tensor, write_files
from golden_files import load_golden

from estimax import feature_columns as fc

pytestmark = pytest.mark.golden
GOLDEN = load_golden("sequence_columns.json")


def _variables(case):
    flat = {
        tuple(name.split("/")): np.array(value, np.float32)
        for name, value in case.get("weights", {}).items()
    }
    return {"tables": flax.traverse_util.unflatten_dict(flat)}


def test_every_sequence_case_gives_tensorflows_floats_and_lengths(tmp_path):
    compared = 0
    for case in GOLDEN["cases"]:
        folder = write_files(case, tmp_path)
        layer = fc.SequenceFeatures(build_all(case["columns"], folder))
        features, expected = features_of(case), case["expected"]
        run = jax.jit(lambda given, layer=layer, x=features: layer.apply(given, x))
        output, lengths = run(_variables(case))
        wanted = tensor(expected["output"])
        assert output.shape == wanted.shape, case["name"]
        np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-6)
        assert lengths.tolist() == expected["sequence_length"], case["name"]
        order = [column.name for column in layer.feature_columns]
        assert order == expected["column_order"]
        compared += 1
    assert compared == len(GOLDEN["cases"])


def test_every_context_is_joined_as_by_tensorflow():
    compared = 0
    for case in GOLDEN["concatenate_context"]:
        context, sequence = (
            np.array(case[key], np.float32) for key in ("context", "sequence")
        )
        joined = fc.concatenate_context_input(context, sequence)
        np.testing.assert_allclose(joined, tensor(case["expected"]), rtol=1e-5)
        compared += 1
    assert compared == len(GOLDEN["concatenate_context"])


def _fail(case):
    layer = fc.SequenceFeatures(build_all(case["columns"]))
    features = features_of(case)
    jax.eval_shape(lambda: layer.init(jax.random.key(0), features))


def test_every_sequence_error_is_one_here():
    kinds = {"TypeError": TypeError}
    compared = 0
    for case in GOLDEN["errors"]:
        with pytest.raises(kinds.get(case["tf_exception"], ValueError)) as caught:
            _fail(case)
        assert str(caught.value), case["name"]
        compared += 1
    assert compared == len(GOLDEN["errors"])
