"""Every column case of the golden files, compared with TensorFlow's answer."""

import flax.traverse_util
import jax
import numpy as np
import pytest
from golden_columns import (
    build,
    build_all,
    features_of,
    tensor,
    write_files,
)
from golden_files import load_golden

from estimax import feature_columns
from estimax.core.parse_spec import FixedLenFeature, VarLenFeature
from estimax.feature_columns.transforms import Weighted

pytestmark = pytest.mark.golden

# Classes of TensorFlow's that are errors of the builtin kind here.
_ERRORS = {"ValueError": ValueError, "TypeError": TypeError}


def _described(spec):
    """A parse spec in the words of the golden files."""
    described = {}
    for key, feature in spec.items():
        described[key] = {"type": type(feature).__name__, "dtype": feature.dtype}
        if isinstance(feature, FixedLenFeature):
            described[key]["shape"] = list(feature.shape)
            described[key]["default_value"] = _listed(feature.default_value)
        else:
            assert isinstance(feature, VarLenFeature)
    return described


def _listed(value):
    return [_listed(v) for v in value] if isinstance(value, tuple) else value


def _check_categorical(case, folder):
    column = build(case["column"], write_files(case, folder))
    expected = case["expected"]
    assert column.name == expected["name"]
    assert column.num_buckets == expected["num_buckets"]
    assert _described(column.parse_example_spec) == expected["parse_example_spec"]
    source, raw, ids = column.id_source, features_of(case), tensor(expected["ids"])
    entries = source.entries(raw)
    np.testing.assert_array_equal(entries.values, ids.values)
    np.testing.assert_array_equal(entries.indices, ids.indices)
    assert tuple(entries.dense_shape) == ids.dense_shape
    if expected["weights"] is None:
        assert not isinstance(source, Weighted)
    else:
        weights = np.array(expected["weights"]["values"], np.float32)
        np.testing.assert_array_equal(source.weights(raw, entries), weights)


def test_every_categorical_case_gives_tensorflows_ids(tmp_path):
    cases = load_golden("columns.json")["categorical"]
    compared = 0
    for case in cases:
        _check_categorical(case, tmp_path)
        compared += 1
    assert compared == len(cases)


def test_every_cross_gives_tensorflows_ids(tmp_path):
    cases = load_golden("crossed.json")["cases"]
    compared = 0
    for case in cases:
        _check_categorical(case, tmp_path)
        compared += 1
    assert compared == len(cases)


def _variables(case):
    """The weights of a case in the collections and under the names we use."""
    tree = {"tables": {}, "params": {}}
    for name, value in case.get("weights", {}).items():
        path = tuple(name.split("/"))
        column = {c.name: c for c in build_all(case["columns"])}.get(path[0])
        # A shared table is alone at the top, under its collection's name.
        is_table = len(path) == 1 and name != "bias_weights"
        is_table |= path[-1] == "embedding_weights"
        is_table |= path[-1] == "weights" and feature_columns.is_categorical(column)
        collection = tree["tables" if is_table else "params"]
        collection[path] = np.array(value, np.float32)
    return {k: flax.traverse_util.unflatten_dict(v) for k, v in tree.items()}


def _shapes(variables):
    flat = flax.traverse_util.flatten_dict(dict(variables), sep="/")
    return {path: tuple(leaf.shape) for path, leaf in flat.items()}


def _check_output(output, expected):
    assert output.dtype == np.float32
    want = tensor(expected["output"])
    assert output.shape == want.shape
    np.testing.assert_allclose(output, want, rtol=1e-5, atol=1e-6)


def _check_layer(layer, case, *rest):
    """Apply a layer to a case with given weights, and look at what it initialises."""
    variables, features = _variables(case), features_of(case)
    # Jitted with the features inside: one compilation instead of one per operation.
    output = jax.jit(lambda given: layer.apply(given, features, *rest))(variables)
    _check_output(np.asarray(output), case["expected"])
    created = jax.eval_shape(lambda: layer.init(jax.random.key(0), features))
    given = {k: v for k, v in variables.items() if v}
    assert _shapes(created) == _shapes(given)
    sizes = sorted(tuple(s) for s in case["expected"]["variables"].values())
    assert sorted(_shapes(created).values()) == sizes
    order = [column.name for column in layer.feature_columns]
    assert order == case["expected"]["column_order"]


def test_every_dense_case_gives_tensorflows_floats():
    cases = load_golden("columns.json")["dense"]
    compared = 0
    for case in cases:
        layer = feature_columns.DenseFeatures(build_all(case["columns"]))
        blocks = {}
        _check_layer(layer, case, blocks)
        widths = [block.shape[1] for block in blocks.values()]
        assert widths == case["expected"]["column_widths"]
        compared += 1
    assert compared == len(cases)


def test_every_linear_case_gives_tensorflows_logits():
    cases = load_golden("columns.json")["linear"]
    compared = 0
    for case in cases:
        layer = feature_columns.LinearModel(
            build_all(case["columns"]), case["units"], case["sparse_combiner"]
        )
        _check_layer(layer, case)
        compared += 1
    assert compared == len(cases)


def _spec_args(args):
    return {name: build(arg) for name, arg in args.items() if name != "api"}


def test_every_parse_spec_is_tensorflows():
    cases = load_golden("columns.json")["parse_specs"]
    compared = 0
    for case in cases:
        function = getattr(feature_columns, case["api"])
        spec = function(build_all(case["columns"]), **_spec_args(case["args"]))
        assert _described(spec) == case["expected"], case["name"]
        compared += 1
    assert compared == len(cases)


def test_every_name_and_shape_is_tensorflows():
    cases = load_golden("columns.json")["names"]
    compared = 0
    for case in cases:
        by_name = {c.name: c for c in build_all([case["column"]])}
        column = by_name[case["name"]]
        if "num_buckets" in case:
            assert column.num_buckets == case["num_buckets"]
        if "variable_shape" in case:
            assert list(column.variable_shape) == case["variable_shape"]
        compared += 1
    assert compared == len(cases)


def _fail(case, folder):
    """Do what a case says must fail, at the stage where it must."""
    if case["stage"] == "construct":
        build_all(case["columns"], folder)
        return
    columns = _must_build(case, folder)
    if case["stage"] == "parse_spec":
        args = case.get("args", {})
        function = args.get("api", "make_parse_example_spec")
        getattr(feature_columns, function)(columns, **_spec_args(args))
        return
    layers = {
        "dense": feature_columns.DenseFeatures,
        "linear": feature_columns.LinearModel,
    }
    layer = layers[case["layer"]](columns, **case.get("args", {}))
    jax.eval_shape(lambda: layer.init(jax.random.key(0), features_of(case)))


def _must_build(case, folder):
    try:
        return build_all(case["columns"], folder)
    except Exception as error:
        pytest.fail(f"{case['name']}: failed at construction already: {error}")


def test_every_error_is_raised_at_its_stage(tmp_path):
    cases = load_golden("columns.json")["errors"]
    compared = 0
    for case in cases:
        folder = write_files(case, tmp_path)
        with pytest.raises(_ERRORS.get(case["tf_exception"], ValueError)) as caught:
            _fail(case, folder)
        assert str(caught.value), case["name"]
        compared += 1
    assert compared == len(cases)
