"""Features among the predictions, words, and nested features: `predict` and bundles."""

import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import X

import estimax as ex
from estimax.core.errors import FeatureError, SpecError
from estimax.input import Dataset
from estimax.serving.config import BatchingConfig
from estimax.serving.programs import Programs

KEYS = np.array([b"a\0", "\u00e9".encode(), b"", b"d"], object)
FEATURES = {
    "x": X[:4],
    "key": KEYS,
    "id": np.array([2**40, -(2**62), 5, -1]),
    "exact": np.array([0.1, 1e300, -0.0, np.pi]),
    "tags": ex.Sparse.of_rows([["a", "b"], [], ["c"], ["d"]]),
}
PASSED = ("key", "id", "exact", "x")


def linear(x):
    return x * ex.get_variable("w", (), initializer=2.0)


def spec_of(mode, y, predictions):
    loss = jnp.mean(y)
    sgd = ex.optimizers.SGD(0.0)
    return ex.EstimatorSpec(mode, predictions=predictions, loss=loss, train_op=sgd)


def passing_model_fn(features, mode):
    y = linear(features["x"])
    return spec_of(mode, y, {"y": y, **{name: features[name] for name in PASSED}})


def plain_model_fn(features, mode):
    y = linear(features["x"])
    return spec_of(mode, y, {"y": y})


def batches(features=FEATURES):
    return lambda: iter([(features, None)])


@pytest.fixture(scope="module")
def passing(tmp_path_factory):
    config = ex.RunConfig(save_summary_steps=0, log_step_count_steps=None)
    folder = tmp_path_factory.mktemp("passing")
    return ex.Estimator(passing_model_fn, folder, config).train(batches(), steps=1)


@pytest.fixture(scope="module")
def passing_bundle(passing, tmp_path_factory):
    path = passing.export_saved_model(tmp_path_factory.mktemp("export"))
    return ex.export.load(path)


def check_passed(found, rows=slice(None), **others):
    for name in PASSED:
        expected = others.get(name, FEATURES[name])[rows]
        assert found[name].dtype == expected.dtype
        assert found[name].tolist() == expected.tolist()


def test_features_of_any_dtype_come_out_of_predict_unchanged(passing):
    (found,) = passing.predict(batches(), yield_single_examples=False)
    check_passed(found)
    rows = list(passing.predict(batches(), predict_keys=["key", "id"]))
    assert rows[0] == {"key": b"a\0", "id": 2**40}


def test_a_model_without_jit_passes_features_as_well(make):
    model = make(passing_model_fn, debug=True).train(batches(), steps=1)
    (found,) = model.predict(batches(), yield_single_examples=False)
    check_passed(found)


def test_features_come_out_of_a_bundle_unchanged(passing_bundle):
    request = {name: FEATURES[name][:3] for name in PASSED}
    found = passing_bundle.predict(request)
    # A bundle answers with str where text is UTF-8.
    check_passed(found, slice(3), key=np.array(["a\0", "\u00e9", ""], object))
    assert found["y"].tolist() == [[0.0], [2.0], [4.0]]


def test_a_server_answers_with_the_bytes_of_each_request(passing_bundle):
    programs = Programs(passing_bundle, BatchingConfig(batch_sizes=(4,)))
    batch = passing_bundle.check({name: FEATURES[name][:3] for name in PASSED})
    found = programs.run("serving_default", batch, may_compile=True)
    check_passed(found, slice(3))


def test_text_that_is_no_utf_8_stays_bytes(passing_bundle):
    request = {name: FEATURES[name][:1] for name in PASSED}
    request["key"] = np.array([b"\xff"], object)
    assert passing_bundle.predict(request)["key"].tolist() == [b"\xff"]


def test_a_bundle_answers_an_empty_request_with_the_dtypes_of_features(passing_bundle):
    found = passing_bundle.predict({name: FEATURES[name][:0] for name in PASSED})
    check_passed(found, slice(0))


def test_a_request_larger_than_one_piece_keeps_its_rows(passing_bundle):
    many = 3 * 4096 // 2
    request = {name: np.resize(FEATURES[name], many) for name in ("key", "id", "exact")}
    request["x"] = np.resize(FEATURES["x"], (many, 1))
    found = passing_bundle.predict(request)
    assert found["id"].tolist() == request["id"].tolist()
    assert len(found["y"]) == many


def test_the_signature_of_a_bundle_names_the_dtype_of_a_passed_feature(passing_bundle):
    outputs = passing_bundle.signature("serving_default").outputs
    dtypes = {info.name: info.dtype for info in outputs}
    assert dtypes == {
        "y": "float32",
        "key": "string",
        "id": "int64",
        "exact": "float64",
        "x": "float32",
    }


def test_a_sparse_feature_cannot_be_a_prediction_without_a_default(make):
    def model_fn(features, mode):
        y = linear(features["x"])
        return spec_of(mode, y, {"y": y, "tags": features["tags"]})

    with pytest.raises(FeatureError, match="features/tags is sparse"):
        make(model_fn).train(batches(), steps=1)


def test_forwarded_features_are_predictions_and_outputs_of_the_bundle(make, tmp_path):
    model = make(plain_model_fn).train(batches(), steps=1)
    more = ex.forward_features(model, ["id", "tags"], {"tags": "-"})
    (found,) = more.predict(batches(), yield_single_examples=False)
    assert found["id"].tolist() == FEATURES["id"].tolist()
    tags = [[b"a", b"b"], [b"-", b"-"], [b"c", b"-"], [b"d", b"-"]]
    assert found["tags"].tolist() == tags
    bundle = ex.export.load(more.export_saved_model(tmp_path))
    request = {name: FEATURES[name][1:3] for name in ("x", "id")}
    request["tags"] = [["p", "q", "r"], ["s"]]
    answer = bundle.predict(request)
    assert answer["tags"].tolist() == [["p", "q", "r"], ["s", "-", "-"]]
    assert answer["id"].tolist() == [-(2**62), 5]


def test_without_keys_all_features_are_forwarded(make):
    model = ex.forward_features(make(plain_model_fn))
    features = {name: FEATURES[name] for name in ("x", "key")}
    (found,) = model.train(batches(features), steps=1).predict(
        batches(features), yield_single_examples=False
    )
    assert found.keys() == {"y", "x", "key"}
    assert found["key"].tolist() == KEYS.tolist()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("idd", "no feature 'idd'; did you mean 'id'"),
        ("y", "'y' is a prediction already"),
        (["tags"], "features/tags is sparse"),
    ],
)
def test_features_that_cannot_be_forwarded_are_named(make, keys, words):
    features = {**FEATURES, "y": X[:4]}
    model = make(plain_model_fn).train(batches(features), steps=1)
    more = ex.forward_features(model, keys)
    with pytest.raises((SpecError, FeatureError), match=words):
        next(more.predict(batches(features)))


def test_what_cannot_forward_features_is_refused_at_once(make):
    with pytest.raises(TypeError, match="expected an Estimator"):
        ex.forward_features(object(), "x")
    with pytest.raises(TypeError, match="a key must be str"):
        ex.forward_features(make(), [1])


WORDS = ("be", "to")
NESTED = ((X[:4], {"twice": 2 * X[:4]}), np.array([["be"], ["to"], ["me"], [""]]))


def nested_model_fn(features, labels, mode):
    (x, more), words = features
    assert list(more) == ["twice"]
    ids = ex.lookup.string_to_index(words, WORDS, num_oov_buckets=1)
    y = linear(x + more["twice"])
    predictions = {"y": y, "ids": ids, "words": words}
    predictions["again"] = ex.lookup.index_to_string(ids, WORDS)
    return spec_of(mode, y, predictions)


def as_dataset():
    return Dataset.from_tensor_slices((NESTED, X[:4])).batch(4)


def as_generator():
    yield NESTED, X[:4]


@pytest.mark.parametrize("input_fn", [as_dataset, as_generator])
def test_nested_features_reach_the_model_as_given(make, tmp_path, input_fn):
    model = make(nested_model_fn).train(input_fn)
    assert model.evaluate(input_fn)["loss"] == 9.0
    (found,) = model.predict(input_fn, yield_single_examples=False)
    assert found["ids"].tolist() == [[0], [1], [2], [2]]
    assert found["again"].tolist() == [[b"be"], [b"to"], [b"UNK"], [b"UNK"]]
    bundle = ex.export.load(model.export_saved_model(tmp_path))
    nested = bundle.predict(NESTED)
    flat = {"0/0": NESTED[0][0], "0/1/twice": NESTED[0][1]["twice"], "1": NESTED[1]}
    assert nested["ids"].tolist() == found["ids"].tolist()
    assert nested["y"].tolist() == found["y"].tolist()
    assert nested["again"].tolist() == [["be"], ["to"], ["UNK"], ["UNK"]]
    answer = bundle.predict(flat)
    for name in found:
        assert answer[name].tolist() == nested[name].tolist()


def test_nested_labels_reach_the_model_as_given(make):
    def model_fn(features, labels, mode):
        clicks, (sales,) = labels["clicks"], labels["more"]
        loss = jnp.mean(linear(features) * 0 + clicks - sales)
        return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.SGD(0.0))

    def input_fn():
        yield X, {"clicks": 3 * X, "more": (X,)}

    assert make(model_fn).train(input_fn).evaluate(input_fn)["loss"] == 7.0


def test_text_labels_can_be_looked_up(make):
    def model_fn(features, labels, mode):
        ids = ex.lookup.string_to_index(labels, ["no", "yes"])
        loss = jnp.mean(linear(features["x"]) * 0 + ids)
        return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.SGD(0.0))

    def input_fn():
        yield {"x": X[:4]}, np.array([["yes"], ["no"], ["yes"], ["yes"]])

    assert make(model_fn).train(input_fn).evaluate(input_fn)["loss"] == 0.75
