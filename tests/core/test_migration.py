"""One table knows every public name of TensorFlow, and what it says to write exists."""

import importlib
import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden_files import load_golden

import estimax as ex
from estimax.core.migration import counterpart, look_up
from estimax.core.migration.table import _rows

PUBLIC = {
    f"{module}.{name}".lstrip(".")
    for module, names in load_golden("tf_public_names.json").items()
    for name in names.split()
}


@pytest.mark.golden
def test_every_public_name_of_tensorflow_has_a_counterpart_or_advice():
    found = {name: counterpart(name) for name in PUBLIC}
    unknown = [n for n, at in found.items() if "no counterpart is known" in at.advice]
    assert not unknown
    assert len(PUBLIC) > 4000


@pytest.mark.golden
def test_every_name_at_the_top_of_tensorflow_is_known_to_estimax():
    """`ex.NAME` resolves, or its error says what `estimax port` says."""
    wrong = []
    for name in (name for name in PUBLIC if "." not in name):
        try:
            getattr(ex, name)
        except AttributeError as error:
            known = counterpart(name)
            if f"{name!r}: " not in str(error) or (
                (known.name or known.advice) not in str(error)
            ):
                wrong.append(str(error))
    assert not wrong


@pytest.mark.parametrize(
    ("name", "words"),
    [
        # The advice was wrong for these, or there was none.
        ("contrib.data.map_and_batch", "ex.input.experimental.map_and_batch"),
        ("contrib.predictor.from_saved_model", "ex.export.load(path)"),
        ("contrib.layers.xavier_initializer", "jax.nn.initializers.glorot_uniform()"),
        ("contrib.layers.l2_regularizer", "ex.optimizers.l2"),
        ("contrib.layers.optimize_loss", "train_op="),
        ("contrib.eager.py_func", "Dataset.map"),
        ("contrib.tpu.TPUEstimator", "ex.Estimator"),
        ("contrib.distribute.MirroredStrategy", "devices="),
        ("saved_model.builder.SavedModelBuilder", "export_saved_model"),
        ("image.resize_images", "jax.image.resize"),
        ("image.decode_jpeg", "Pillow"),
        ("get_collection_ref", "ex.get_collection(ex.GraphKeys.TRAINABLE_VARIABLES"),
        ("train.Saver.restore", "the Estimator saves"),
        ("py_func", "jax.pure_callback"),
        ("print", "jax.debug.print"),
        ("name_scope", "leave it out"),
        ("contrib.tensor_forest.random_forest", "ex.RandomForestClassifier("),
        ("keras.layers.Dense", "nn.Dense(64"),
        ("keras.layers.Layer", "class Mine(nn.Module)"),
        ("split", "np.cumsum(sizes)[:-1]"),
        ("matmul", "jnp.swapaxes(b, -1, -2) for transpose_b"),
        ("equal", "write x == y"),
        ("__version__", "remove the comparison"),
        ("sigmoid", "jax.nn.sigmoid"),
        ("range", "jnp.arange"),
        ("div", "x // y"),
        ("sequence_mask", "jnp.arange(n)[None] < lengths[:, None]"),
        ("as_string", "str(x).encode()"),
        ("strings.to_hash_bucket_fast", "ex.feature_columns.fingerprint64(text) % n"),
        ("matrix_set_diag", "jnp.where(jnp.eye(n, dtype=bool)"),
        ("nn.top_k", "jax.lax.top_k"),
        ("nn.bias_add", "x + b"),
        ("nn.l2_normalize", "1e-12"),
        ("nn.rnn_cell.GRUCell", "nn.GRUCell(units)"),
        ("contrib.rnn.GRUCell", "nn.GRUCell(units)"),
        ("keras.metrics.RecallAtPrecision", "ex.metrics.recall_at_precision"),
        ("python.ops.lookup_ops.StaticHashTable", "ex.lookup.string_to_index"),
        ("config.experimental.set_memory_growth", "XLA_PYTHON_CLIENT_PREALLOCATE"),
    ],
)
def test_a_name_says_what_to_write(name, words):
    found = counterpart(name)
    assert words in (found.name or found.advice)


def test_names_of_packages_are_explained_too():
    expected = [
        (ex.summary, "FileWriter", "ex.summary.SummaryWriter"),
        (ex.losses, "BinaryCrossentropy", "ex.losses.sigmoid_cross_entropy"),
        (ex.input, "decode_jpeg", "Pillow"),
        (ex.metrics, "AUC", "ex.metrics.auc"),
        (ex.optimizers, "ExponentialMovingAverage", "average_decay"),
        (ex.feature_columns, "real_valued_column", "numeric_column"),
        (ex.input, "csv_file", "did you mean 'csv_files'"),
    ]
    for package, name, words in expected:
        with pytest.raises(AttributeError, match=re.escape(words)):
            getattr(package, name)


def test_ex_estimator_says_the_same_before_and_after_it_was_used():
    assert ex.Estimator  # imports estimax.estimator
    from estimax import config, estimator

    assert estimator.Estimator is ex.Estimator
    assert config.__name__ == "estimax.config"
    with pytest.raises(AttributeError, match="its names are at the top"):
        _ = ex.estimator
    with pytest.raises(AttributeError, match="devices"):
        _ = ex.config


def _formulas():
    for row in load_golden("tf_formulas.json")["formulas"]:
        yield pytest.param(row, id=row["name"])


@pytest.mark.golden
@pytest.mark.parametrize("row", list(_formulas()))
def test_a_formula_computes_what_tensorflow_computes(row):
    assert row["code"] in counterpart(row["name"]).advice
    given = {
        name: jnp.asarray(value) if isinstance(value, list) else value
        for name, value in row["arguments"].items()
    }
    given |= {n: given[n].tolist() for n in ("sizes", "shape") if n in given}
    found = eval(row["code"], {"jnp": jnp, "jax": jax, "np": np, **given})
    found = found[1] if row["name"] == "split" else found
    np.testing.assert_allclose(found, row["result"], rtol=2e-5, atol=2e-6)


ROOTS = {
    "ex": "estimax",
    "jnp": "jax.numpy",
    "jax": "jax",
    "nn": "flax.linen",
    "np": "numpy",
    "optax": "optax",
}


@pytest.mark.parametrize("root", ROOTS)
def test_every_name_in_the_advice_exists(root):
    wanted = rf"(?<![\w.]){root}\.([A-Za-z_0-9.]*[A-Za-z_0-9])"
    paths = {path for text in _rows().values() for path in re.findall(wanted, text)}
    assert paths
    assert [path for path in sorted(paths) if not _exists(ROOTS[root], path)] == []


def test_every_argument_in_the_advice_exists():
    calls = {
        (path, name)
        for text in _rows().values()
        for path, given in re.findall(r"(?<![\w.])ex\.([\w.]+)\(([^()]*)", text)
        for name in re.findall(r"(\w+)=", given)
    }
    assert ("RunConfig", "devices") in calls
    wrong = [call for call in sorted(calls) if not _accepts(*call)]
    assert not wrong


def _accepts(path, argument):
    parameters = inspect.signature(look_up(path)).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    return argument in parameters or inspect.Parameter.VAR_KEYWORD in kinds


def _exists(module, path):
    value = importlib.import_module(module)
    for part in path.split("."):
        if not hasattr(value, part):
            try:  # a package that nothing has imported yet: jax.scipy.linalg
                importlib.import_module(f"{value.__name__}.{part}")
            except (ImportError, AttributeError):
                return False
        value = getattr(value, part)
    return True
