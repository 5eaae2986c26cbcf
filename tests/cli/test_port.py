"""Names of tf.estimator programs, rewritten or listed."""

import ast
from pathlib import Path

import pytest

pytest.importorskip("libcst")
from estimax.cli.port import ported_text
from estimax.core.tf_names import counterpart

PORTS = Path(__file__).parents[2] / "examples" / "ports"
PROGRAM = '''\
"""A program."""

# TensorFlow.
import tensorflow as tf

fc = tf.feature_column


def model_fn(features, labels, mode):  # as ever
    net = tf.layers.dense(features["x"], 4)
    train_op = optimizer.minimize(loss)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


model = tf.compat.v1.estimator.DNNClassifier(
    [8],
    [fc.numeric_column("x")],
)
model.export_savedmodel("out")
'''


def test_known_names_are_rewritten_and_the_layout_stays():
    text = ported_text(PROGRAM).text
    assert "fc = ex.feature_columns\n" in text
    assert "return ex.EstimatorSpec(mode, loss=loss, train_op=train_op)" in text
    assert "mode):  # as ever" in text
    assert '    [fc.numeric_column("x")],\n    compat="v1",\n)' in text
    assert 'model.export_saved_model("out")' in text
    assert "import tensorflow as tf\nimport estimax as ex\n" in text, "one name is left"


def test_the_rest_is_listed_by_line_of_the_new_text():
    ported = ported_text(PROGRAM)
    lines = ported.text.splitlines()
    left = {found.name: found for found in ported.remaining}
    assert left.keys() == {"tf.layers.dense", ".minimize"}
    assert "tf.layers.dense" in lines[left["tf.layers.dense"].line - 1]
    assert "nn.Dense" in left["tf.layers.dense"].advice
    assert "train_op=optimizer" in left[".minimize"].advice


def test_tensorflow_is_gone_if_nothing_needs_it():
    text = "# A.\nimport tensorflow.compat.v1 as tf\nx = tf.estimator.ModeKeys.TRAIN\n"
    ported = ported_text(text)
    assert ported.text == "# A.\nimport estimax as ex\nx = ex.ModeKeys.TRAIN\n"


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("estimator.DNNLinearCombinedRegressor", "ex.DNNLinearCombinedRegressor"),
        ("compat.v1.train.AdamOptimizer", "ex.optimizers.v1.AdamOptimizer"),
        ("keras.optimizers.legacy.Adagrad", "ex.optimizers.Adagrad"),
        ("data.Dataset.from_tensor_slices", "ex.input.Dataset.from_tensor_slices"),
        ("io.parse_example", "ex.input.parse_example"),
        ("compat.v1.metrics.auc", "ex.metrics.v1.auc"),
        ("compat.v1.losses.mean_squared_error", "ex.losses.mean_squared_error"),
        ("estimator.experimental.make_early_stopping_hook",) * 2,
        ("contrib.crf.crf_decode", "ex.crf.crf_decode"),
        ("get_variable", "ex.get_variable"),
        ("nn.embedding_lookup", "ex.embedding_lookup"),
    ],
)
def test_a_name_has_its_counterpart(name, written):
    expected = written.replace("estimator.experimental", "ex.experimental")
    assert counterpart(name).name == expected


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("placeholder", "no placeholders"),
        ("estimator.LinearSDCA", "ProximalAdagrad"),
        ("nn.relu", "jax.nn.relu"),
        ("exp", "jnp.exp"),
        ("reduce_max", "jnp.max"),
        ("train.exponential_decay", "without the step"),
        ("something.new", "no counterpart is known"),
    ],
)
def test_a_name_without_counterpart_has_advice(name, words):
    found = counterpart(name)
    assert found.name is None
    assert words in found.advice


@pytest.mark.parametrize("name", ["census", "deepfm"])
def test_real_programs_are_python_afterwards(cli, tmp_path, name):
    path = PORTS / name / "tensorflow_version.py"
    target = tmp_path / "ported.py"
    answer = cli("port", path, "--output", target)
    assert answer.code == 0, answer.err
    assert "tf.estimator." not in target.read_text()
    ast.parse(target.read_text())
    assert f"{target}:15:1: tf.disable_v2_behavior: leave it out" in answer.out
