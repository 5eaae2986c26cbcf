"""Names of tf.estimator programs, rewritten or listed."""

import ast
from pathlib import Path

import pytest

pytest.importorskip("libcst")
from estimax.cli.port import port_text
from estimax.core.migration import counterpart

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
    text = port_text(PROGRAM).text
    assert "fc = ex.feature_columns\n" in text
    assert "return ex.EstimatorSpec(mode, loss=loss, train_op=train_op)" in text
    assert "mode):  # as ever" in text
    assert '    [fc.numeric_column("x")],\n    compat="v1",\n)' in text
    assert 'model.export_saved_model("out")' in text
    assert "import tensorflow as tf\nimport estimax as ex\n" in text, "one name is left"


def test_the_rest_is_listed_by_line_of_the_new_text():
    ported = port_text(PROGRAM)
    lines = ported.text.splitlines()
    left = {found.name: found for found in ported.remaining}
    assert left.keys() == {"tf.layers.dense", ".minimize"}
    assert "tf.layers.dense" in lines[left["tf.layers.dense"].line - 1]
    assert "nn.Dense" in left["tf.layers.dense"].advice
    assert "train_op=optimizer" in left[".minimize"].advice


def test_tensorflow_is_gone_if_nothing_needs_it():
    text = "# A.\nimport tensorflow.compat.v1 as tf\nx = tf.estimator.ModeKeys.TRAIN\n"
    ported = port_text(text)
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
        ("nn.l2_loss", "ex.optimizers.l2_loss"),
        ("contrib.data.map_and_batch", "ex.input.experimental.map_and_batch"),
        ("contrib.opt.LazyAdamOptimizer", "ex.optimizers.v1.LazyAdamOptimizer"),
        ("keras.optimizers.RMSprop", "ex.optimizers.RMSProp"),
        ("compat.v1.float32", '"float32"'),
        ("string", '"string"'),
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


def _left(text):
    return [found.name for found in sorted(port_text(text).remaining)]


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    import tensorflow.compat.v1 as tf\n"
        "except ImportError:\n    import tensorflow as tf\n"
        "print(tf.estimator.ModeKeys.TRAIN)\n",
        "def main():\n    import tensorflow as tf\n"
        "    print(tf.estimator.ModeKeys.TRAIN)\nmain()\n",
        "from tensorflow.estimator import ModeKeys as Keys\nprint(Keys.TRAIN)\n",
        "import os, tensorflow as tf\nprint(os.sep and tf.estimator.ModeKeys.TRAIN)\n",
        "from tensorflow import estimator\nprint(estimator.ModeKeys.TRAIN)\n",
        "import tensorflow as tf\nest = tf.estimator\nprint(est.ModeKeys.TRAIN)\n",
    ],
    ids=["try", "in a function", "member", "two in a line", "module", "assigned"],
)
def test_a_program_with_nothing_left_runs(text, capsys):
    ported = port_text(text)
    assert ported.remaining == []
    assert ported.replaced >= 1
    assert "tensorflow" not in ported.text
    exec(compile(ported.text, "program", "exec"), {})
    assert capsys.readouterr().out == "train\n"


CLASSICAL = """\
import numpy as np
import tensorflow as tf
from tensorflow.compat.v1.train import AdagradOptimizer

fc = tf.feature_column
columns = [
    fc.numeric_column("age", dtype=tf.float32),
    fc.indicator_column(fc.categorical_column_with_vocabulary_list("sex", ["f", "m"])),
]


def parse(record):
    spec = fc.make_parse_example_spec(columns)
    spec["y"] = tf.io.FixedLenFeature([1], tf.int64)
    features = tf.io.parse_single_example(record, spec)
    return features, features.pop("y")


def input_fn():
    records = tf.data.TFRecordDataset("rows.tfrecord").map(parse)
    return records.repeat().batch(4)


config = tf.estimator.RunConfig(model_dir="model", tf_random_seed=1)
model = tf.compat.v1.estimator.LinearClassifier(
    columns, optimizer=AdagradOptimizer(0.1), config=config
)
train = tf.estimator.TrainSpec(input_fn, max_steps=2)
result, _ = tf.estimator.train_and_evaluate(
    model, train, tf.estimator.EvalSpec(input_fn, steps=1, throttle_secs=0)
)
"""


def test_a_classical_program_runs_as_it_is_written(tmp_path, monkeypatch):
    import estimax as ex

    monkeypatch.chdir(tmp_path)
    with ex.input.TFRecordWriter("rows.tfrecord") as writer:
        for age, sex in [(20.0, "f"), (30.0, "m"), (40.0, "f"), (50.0, "m")]:
            row = {"age": age, "sex": sex, "y": int(sex == "m")}
            writer.write(ex.input.Example.of(row).serialize())
    ported = port_text(CLASSICAL)
    assert ported.remaining == []
    assert "tensorflow" not in ported.text
    names = {}
    exec(compile(ported.text, "program", "exec"), names)
    assert names["result"]["global_step"] == 2


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (
            "from tensorflow.keras.layers import Dense",
            ["tensorflow.keras.layers.Dense"],
        ),
        ("from tensorflow import *", ["from tensorflow import *"]),
        ("import tensorflow_hub as hub", ["tensorflow_hub"]),
        ("import tensorflow as tf\nf(tf)", ["tf"]),
        (
            "import tensorflow as tf\nf = tf.flags\nf.DEFINE_bool('a', 1, '')",
            ["tf.flags"],
        ),
        ("import tensorflow as tf\nb = tf.__version__ > '2'", ["tf.__version__"]),
        ("import tensorflow as tf\nfc = tf.feature_column\nfc.nothing", ["fc.nothing"]),
        (
            "import tensorflow as tf\ntf.train.Saver.restore",
            ["tf.train.Saver.restore"],
        ),
        ("from tensorflow.contrib import rnn\nrnn.GRUCell(3)", ["rnn.GRUCell"]),
        ("from tensorflow.keras import backend as K\nK.sum(1)", ["K.sum"]),
        ("x.get_shape().as_list()", [".as_list", ".get_shape"]),
        (
            "import tensorflow as tf\ntf.estimator.RunConfig(session_config=c)",
            ["ex.RunConfig(session_config=)"],
        ),
        (
            "import tensorflow as tf\ntf.get_variable('v', [1], collections=['c'])",
            ["ex.get_variable(collections=)"],
        ),
        (
            "import tensorflow as tf\ntf.keras.optimizers.Adam(lr=1, weight_decay=1)",
            ["ex.optimizers.Adam(weight_decay=)"],
        ),
        (
            "from tensorflow.estimator import RunConfig\nRunConfig(device_fn=f)",
            ["RunConfig(device_fn=)"],
        ),
        (
            "import tensorflow as tf\ntf.estimator.VocabInfo(*a, 1, 2, 3, 4, 5, 6, 7)",
            [],
        ),
        (
            "import tensorflow as tf\ntf.estimator.VocabInfo(1, 2, 3, 4, 5, 6, 7, 8)",
            ["ex.VocabInfo(…)"],
        ),
    ],
)
def test_what_would_fail_is_left(text, left):
    assert _left(text + "\n") == left


def test_left_names_say_what_to_write():
    text = (
        "import tensorflow as tf\na, b = tf.split(x, [2, 3], 1)\n"
        "c = tf.matmul(a, b, transpose_b=True)\nd = tf.equal(labels, 1)\n"
    )
    split, matmul, equal = sorted(port_text(text).remaining)
    assert "np.cumsum(sizes)[:-1]" in split.advice
    assert "jnp.swapaxes(b, -1, -2) for transpose_b=True" in matmul.advice
    assert equal.advice.startswith("write x == y")


def test_modules_beside_the_program_that_use_tensorflow_are_left(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text("import tensorflow as tf\n")
    (package / "plain.py").write_text("import os\n")
    program = package / "train.py"
    text = "from . import net, plain\nfrom package.net import f\nimport plain\n"
    left = sorted(port_text(text, "train.py", program).remaining)
    assert [(found.line, found.name) for found in left] == [
        (1, str(package / "net.py")),
        (2, str(package / "net.py")),
    ]
    assert "port it too" in left[0].advice


def test_members_of_v1_keep_its_behaviour():
    text = "from tensorflow.compat.v1.estimator import DNNClassifier\n"
    ported = port_text(text + "m = DNNClassifier([8], columns)\n")
    assert 'm = DNNClassifier([8], columns, compat="v1")' in ported.text
    assert ported.text.startswith("from estimax import DNNClassifier\n")


def test_an_import_that_nothing_uses_is_left_out():
    text = '"""Doc."""\nimport os\nimport tensorflow as tf\nprint(os.sep)\n'
    assert port_text(text).text == '"""Doc."""\nimport os\nprint(os.sep)\n'


@pytest.mark.parametrize("name", ["census", "deepfm"])
def test_real_programs_are_python_afterwards(cli, tmp_path, name):
    path = PORTS / name / "tensorflow_version.py"
    target = tmp_path / "ported.py"
    answer = cli("port", path, "--output", target)
    assert answer.code == 0, answer.err
    assert "tf.estimator." not in target.read_text()
    ast.parse(target.read_text())
    assert f"{target}:15:1: tf.disable_v2_behavior: leave it out" in answer.out
