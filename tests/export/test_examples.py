"""Requests of serialized Examples, parsed by the spec that a bundle carries."""

import json
import subprocess
import sys

import numpy as np
import pytest

import estimax as ex
from estimax import export
from estimax.core.errors import BundleError, SpecError
from estimax.export import text_requests
from estimax.export.signature import TensorInfo
from estimax.input import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    RaggedFeature,
    SparseFeature,
    VarLenFeature,
    serialize_examples,
)

ROWS = {
    "age": np.array([31.0, 46.0, 18.0], np.float32),
    "city": ["Oslo", "Rome", "Nowhere"],
    "tags": ex.Sparse.of_rows([["a", "b"], [], ["c", "a", "b"]]),
}


def _columns():
    column = ex.feature_columns
    city = column.categorical_column_with_vocabulary_list("city", ["Oslo", "Rome"])
    tags = column.categorical_column_with_vocabulary_list("tags", ["a", "b", "c"])
    return [column.numeric_column("age"), city, tags]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    estimator = ex.LinearClassifier(
        _columns(), tmp_path_factory.mktemp("model"), optimizer="SGD"
    )
    spec = ex.feature_columns.make_parse_example_spec(_columns())
    records = serialize_examples(ROWS)

    def input_fn():
        return ex.input.parse_example(records, spec), np.array([1, 0, 1])

    return estimator.train(input_fn, steps=5)


@pytest.fixture(scope="module")
def bundle_path(model, tmp_path_factory):
    spec = ex.feature_columns.make_parse_example_spec(_columns())
    spec["unread"] = FixedLenFeature([], "int64")
    receive = export.build_parsing_serving_input_receiver_fn(spec)
    return model.export_saved_model(tmp_path_factory.mktemp("export"), receive)


def test_serialized_examples_are_answered_like_their_features(bundle_path):
    bundle = export.load(bundle_path)
    records = serialize_examples(ROWS).tolist()
    found = bundle.predict({"examples": records})
    expected = bundle.predict(ROWS)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    assert bundle.describe()["parses_examples"]


def test_another_process_parses_examples_without_training_code(bundle_path, tmp_path):
    records = tmp_path / "records.json"
    texts = [r.hex() for r in serialize_examples(ROWS).tolist()]
    records.write_text(json.dumps(texts))
    code = (
        "import json, sys\n"
        "from estimax.export import load\n"
        "given = json.load(open(sys.argv[2]))\n"
        "request = {'examples': [bytes.fromhex(r) for r in given]}\n"
        "found = load(sys.argv[1]).predict(request)\n"
        "print(found['probabilities'].tolist())\n"
        "rooms = ('training', 'estimator', 'canned', 'optimizers')\n"
        "rooms += ('feature_columns.column', 'feature_columns.layers')\n"
        "assert not [r for r in rooms if f'estimax.{r}' in sys.modules]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, bundle_path, records],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = export.load(bundle_path).predict(ROWS)["probabilities"]
    np.testing.assert_allclose(json.loads(done.stdout), expected, rtol=1e-6)


def test_an_example_without_a_feature_is_an_error_that_names_it(bundle_path):
    bundle = export.load(bundle_path)
    with pytest.raises(BundleError, match=r"'examples': example 0 .* 'age'"):
        bundle.predict({"examples": [b""]})
    with pytest.raises(BundleError, match=r"'examples': .*expected a vector"):
        bundle.predict({"examples": b""})


def test_an_untrained_vocabulary_does_not_fix_the_length_of_rows(model, tmp_path):
    # Without rows of the training data, the example has one word outside the
    # vocabulary.
    estimator = ex.LinearClassifier(_columns(), tmp_path / "new")
    spec = ex.feature_columns.make_parse_example_spec(_columns())
    receive = export.build_parsing_serving_input_receiver_fn(spec)
    path = estimator.export_saved_model(
        tmp_path, receive, checkpoint_path=model.latest_checkpoint()
    )
    records = serialize_examples(ROWS).tolist()
    found = export.load(path).predict({"examples": records})["probabilities"]
    np.testing.assert_allclose(found, export.load(path).predict(ROWS)["probabilities"])


ALL_KINDS = {
    "fixed": FixedLenFeature([2], "float32", [0.5, 1.5]),
    "word": FixedLenFeature([], "string", b"\xff\x00"),
    "required": FixedLenFeature([], "int64"),
    "many": VarLenFeature("int64"),
    "sparse": SparseFeature("at", "value", "float32", 10),
    "ragged": RaggedFeature(
        "int64",
        "items",
        [
            RaggedFeature.RowSplits("splits"),
            RaggedFeature.RowLengths("lengths"),
            RaggedFeature.UniformRowLength(2),
        ],
    ),
}
INPUTS = [
    TensorInfo("fixed", "float32", (None, 2)),
    TensorInfo("word", "string", (None,)),
    TensorInfo("required", "int64", (None,)),
    TensorInfo("many", "int64", (None, None), "sparse"),
    TensorInfo("sparse", "float32", (None, None), "sparse"),
    TensorInfo("ragged", "int64", (None,) * 5, "sparse"),
]


def test_every_kind_of_feature_survives_json():
    text = json.dumps(text_requests.specs_to_json(ALL_KINDS))
    parse = text_requests.parser_from_json(json.loads(text), INPUTS)
    records = text_requests.blank_request(ALL_KINDS)
    found, expected = parse(records), text_requests.parser_of(ALL_KINDS)(records)
    assert found.keys() == expected.keys()
    assert found["word"].tolist() == [b"\xff\x00"]
    assert found["fixed"].tolist() == [[0.5, 1.5]]
    assert found["sparse"].dense_shape == expected["sparse"].dense_shape == (1, 10)
    assert len(found["ragged"].dense_shape) == 5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"type": "Evil"}, "unknown type"),
        ({"shape": [3]}, "expected shape"),
        ({"shape": "a"}, "shape"),
        ({"dtype": "U99999999"}, "dtype"),
        ({"default_value": [{}, 1]}, "default_value"),
        ({"default_value": "ab"}, "default_value"),
    ],
)
def test_a_damaged_spec_is_refused(change, words):
    record = text_requests.specs_to_json({"fixed": ALL_KINDS["fixed"]})
    record["fixed"] |= change
    with pytest.raises(ValueError, match=words):
        text_requests.parser_from_json(record, INPUTS[:1])


def test_a_spec_of_other_features_is_refused():
    record = text_requests.specs_to_json({"fixed": ALL_KINDS["fixed"]})
    with pytest.raises(ValueError, match="expected the features"):
        text_requests.parser_from_json(record, INPUTS)


def test_features_that_cannot_be_parsed_are_refused_when_the_receiver_is_built():
    build = export.build_parsing_serving_input_receiver_fn
    steps = FixedLenSequenceFeature([], "float32", allow_missing=True)
    with pytest.raises(SpecError, match="number of steps varies"):
        build({"x": steps})
    with pytest.raises(SpecError, match="expected a dict of features"):
        build({})
    with pytest.raises(SpecError, match="default_batch_size"):
        build({"x": VarLenFeature("string")}, 8)


def test_a_supervised_receiver_exports_the_features(model, tmp_path):
    receive = export.build_raw_supervised_input_receiver_fn(ROWS, np.zeros(3))
    assert receive().labels.shape == (3,)
    path = model.export_saved_model(tmp_path, receive)
    assert export.load(path).predict(ROWS)["probabilities"].shape == (3, 2)
    with pytest.raises(SpecError, match="different names, found 'age' in both"):
        export.build_raw_supervised_input_receiver_fn(ROWS, {"age": np.zeros(3)})
