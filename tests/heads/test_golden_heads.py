"""Every head against the figures of TensorFlow's, case by case."""

import json
from types import SimpleNamespace

import golden_files
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from estimax import heads, staging
from estimax.core.device_dtypes import materialize
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings

GOLDEN = golden_files.load_golden("heads.json")
CASES = {case["id"]: case for case in GOLDEN["cases"]}
ERRORS = {case["id"]: case for case in GOLDEN["errors"]}
CLOSE = {"rtol": 5e-5, "atol": 2e-6}


def sq_sigmoid(labels, logits):
    return jnp.square(labels - jax.nn.sigmoid(logits))


def sq_sigmoid_feature(labels, logits, features):
    return sq_sigmoid(labels, logits) * features["scale"]


def mc_penalty(labels, logits):
    penalty = 0.1 * jnp.mean(jnp.square(logits), axis=-1, keepdims=True)
    return heads.losses.sparse_softmax_cross_entropy(labels, logits) + penalty


def ml_sq(labels, logits):
    return jnp.mean(sq_sigmoid(labels, logits), axis=-1, keepdims=True)


def abs_err(labels, logits):
    return jnp.abs(labels - logits)


LOSS_FNS = {
    f.__name__: f for f in (sq_sigmoid, sq_sigmoid_feature, mc_penalty, ml_sq, abs_err)
}
LINKS = {"exp": jnp.exp, "softplus": jax.nn.softplus, "sigmoid": jax.nn.sigmoid}


def build(description):
    args = dict(description["args"])
    if "heads" in args:
        args["heads"] = [build(child) for child in args["heads"]]
    if "static_head" in args:
        args["static_head"] = build(args["static_head"])
    if args.get("loss_fn"):
        args["loss_fn"] = LOSS_FNS[args["loss_fn"]]
    if args.get("inverse_link_fn"):
        args["inverse_link_fn"] = LINKS[args["inverse_link_fn"]]
    if isinstance(args.get("weight_column"), dict):
        column = args["weight_column"]
        args["weight_column"] = SimpleNamespace(
            key=column["key"], normalizer_fn=lambda x: x * column["normalizer_mul"]
        )
    return getattr(heads, description["class"])(**args)


def decode(value):
    if value is None:
        return None
    if "sparse" in value:
        sparse = value["sparse"]
        indices = np.array(sparse["indices"], np.int64).reshape(
            -1, len(sparse["dense_shape"])
        )
        values = decode(sparse["values"])
        if values.dtype == object:
            values = Strings.of(values)
        return Sparse(indices, values, tuple(sparse["dense_shape"]))
    if "dtype" not in value:
        return {key: decode(child) for key, child in value.items()}
    if value["dtype"] == "string":
        return np.array(value["data"], dtype=object).reshape(value["shape"])
    data = value["data"]
    if value["dtype"].startswith("float"):
        data = [float(v) for v in data]
    return np.array(data, dtype=value["dtype"]).reshape(value["shape"])


def assert_same(actual, expected, where):
    """Dtype, shape and values of an array against an encoded tensor."""
    wanted = decode(expected)
    assert actual.shape == wanted.shape, where
    if wanted.dtype == object:
        assert actual.dtype == object, where
        words = [word.encode() for word in wanted.reshape(-1)]
        assert actual.reshape(-1).tolist() == words, where
        return
    assert actual.dtype == wanted.dtype, where
    if wanted.dtype.kind in "iub":
        np.testing.assert_array_equal(actual, wanted, err_msg=where)
    else:
        np.testing.assert_allclose(actual, wanted, **CLOSE, err_msg=where)


def flat_key(key):
    return "|".join(key) if isinstance(key, tuple) else key


COMPARED = {
    "properties",
    "loss",
    "metrics_after_1",
    "metrics_after_all",
    "train_loss",
    "train_loss_grad_logits",
    "train_summary_tags",
    "predictions",
    "export_outputs",
}


def check_case(case):
    """Compare everything a case holds; returns the names of what was compared."""
    head = build(case["head"])
    regularization = case["regularization_losses"]
    expected = case["expected"]
    batches = [
        {part: decode(value) for part, value in batch.items()}
        for batch in case["batches"]
    ]
    check_properties(head, expected)
    losses = check_losses(head, batches, regularization, expected)
    check_metrics(head, batches, losses, regularization, expected)
    check_training(head, batches[0], regularization, expected)
    check_predictions(head, batches[0], expected)
    return COMPARED


def check_properties(head, expected):
    for key, value in expected["properties"].items():
        assert getattr(head, key) == value, key


def check_losses(head, batches, regularization, expected):
    losses = []
    for batch, value in zip(batches, expected["loss"], strict=True):
        loss = head.loss(**batch, regularization_losses=regularization)
        assert loss.dtype == jnp.float32
        assert loss.shape == ()
        np.testing.assert_allclose(loss, float(value), **CLOSE)
        losses.append(loss)
    return losses


def check_metrics(head, batches, losses, regularization, expected):
    spec = head.create_estimator_spec(
        **batches[0], mode="eval", regularization_losses=regularization
    )
    np.testing.assert_allclose(spec.loss, losses[0], rtol=1e-6)
    compare_metrics(spec.eval_metric_ops, losses[:1], expected["metrics_after_1"])
    assert head.metrics(regularization).keys() == spec.eval_metric_ops.keys()
    seen = spec.eval_metric_ops
    for batch in batches[1:]:
        seen = head.update_metrics(seen, **batch, regularization_losses=regularization)
    compare_metrics(seen, losses, expected["metrics_after_all"])


def compare_metrics(metrics, losses, expected):
    values = {key: metric.compute() for key, metric in metrics.items()}
    values["loss"] = jnp.mean(jnp.stack(losses))
    assert sorted(values) == sorted(expected)
    for key, value in expected.items():
        assert values[key].shape == (), key
        assert values[key].dtype == jnp.float32, key
        np.testing.assert_allclose(values[key], float(value), **CLOSE, err_msg=key)


def check_training(head, batch, regularization, expected):
    trace = staging.Trace("train", lambda call: None)
    with staging.tracing(trace):
        spec = head.create_estimator_spec(
            **batch, mode="train", optimizer="SGD", regularization_losses=regularization
        )
    np.testing.assert_allclose(spec.loss, float(expected["train_loss"]), **CLOSE)
    # `loss` itself is logged by the training loop, from the spec.
    assert set(trace.logged) == set(expected["train_summary_tags"]) - {"loss"}

    def loss(logits):
        return head.loss(
            **{**batch, "logits": logits}, regularization_losses=regularization
        )

    gradient = jax.grad(loss)(jax.tree.map(jnp.asarray, batch["logits"]))
    wanted = expected["train_loss_grad_logits"]
    if not isinstance(gradient, dict):
        gradient, wanted = {"": gradient}, {"": wanted}
    assert set(gradient) == set(wanted)
    for key, value in wanted.items():
        assert_same(np.asarray(gradient[key]), value, f"gradient {key}")


def check_predictions(head, batch, expected):
    spec = head.create_estimator_spec(batch["features"], "infer", batch["logits"])
    predictions = {flat_key(k): v for k, v in materialize(spec.predictions).items()}
    assert set(predictions) == set(expected["predictions"])
    for key, value in expected["predictions"].items():
        assert_same(predictions[key], value, key)
    assert set(spec.export_outputs) == set(expected["export_outputs"])
    for name, wanted in expected["export_outputs"].items():
        output = spec.export_outputs[name]
        assert type(output).__name__ == wanted["type"], name
        arrays = dict(materialize(output.as_outputs()))
        if wanted["type"] == "RegressionOutput":
            arrays = {"value": arrays["outputs"]}
        assert set(arrays) == set(wanted["outputs"]), name
        for key, tensor in wanted["outputs"].items():
            same = expected["predictions"][tensor["equals_prediction"]]
            assert same["dtype"] == tensor["dtype"]
            assert same["shape"] == tensor["shape"]
            assert_same(arrays[key], same, f"{name} {key}")


def check_error(case):
    """Expect the error that TensorFlow raises, or a sibling of it."""
    kinds = {"ValueError": ValueError, "TypeError": TypeError}
    kind = kinds.get(case["tf_error"], (TypeError, ValueError))
    with pytest.raises(kind) as raised:
        provoke(case)
    assert len(str(raised.value)) > 20
    return raised.value


def provoke(case):
    head = build(case["head"])
    assert case["when"] != "init", "the constructor should have failed"
    labels, logits = decode(case["labels"]), decode(case["logits"])
    features = decode(case["features"])
    if case["when"] == "loss":
        head.loss(labels=labels, logits=logits, features=features)
    elif case["when"] == "predictions":
        head.predictions(logits, keys=case["keys"])
    elif case["when"] == "loss_reduction":
        _ = head.loss_reduction
    elif case["when"] == "train_spec":
        both = {"optimizer": "SGD", "train_op_fn": lambda loss: loss}
        head.create_estimator_spec(
            features, "train", logits, labels, **(both if case.get("both") else {})
        )
    else:
        raise AssertionError(f"unknown kind of error case {case['when']!r}")


@pytest.mark.golden
@pytest.mark.parametrize("case_id", CASES)
def test_head_gives_the_figures_of_tensorflow(case_id):
    assert check_case(CASES[case_id]) == set(CASES[case_id]["expected"])


@pytest.mark.golden
@pytest.mark.parametrize("case_id", ERRORS)
def test_head_refuses_what_tensorflow_refuses(case_id):
    check_error(ERRORS[case_id])


@pytest.mark.golden
def test_no_case_of_the_golden_file_is_left_out():
    assert len(CASES) == len(GOLDEN["cases"])
    assert len(ERRORS) == len(GOLDEN["errors"])
    if GOLDEN["meta"]["set"] == "public":
        assert (len(CASES), len(ERRORS)) == (67, 50)


@pytest.mark.golden
@pytest.mark.parametrize(
    "path",
    [
        ("loss", 1),
        ("train_loss",),
        ("train_loss_grad_logits", "data", 0),
        ("predictions", "logistic", "data", 2),
        ("metrics_after_1", "auc"),
        ("metrics_after_all", "average_loss"),
    ],
)
def test_a_wrong_golden_value_is_noticed(path):
    case = json.loads(json.dumps(CASES["binary/weighted"]))
    place = case["expected"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] += 0.001
    with pytest.raises(AssertionError):
        check_case(case)
