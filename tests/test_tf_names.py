"""Every name of tf.estimator is in estimax, or its error says what to write.

Positional arguments have TensorFlow's order and defaults, except those listed here.
"""

import inspect
import re
from pathlib import Path

import pytest
from golden_files import load_golden

import estimax as ex

pytestmark = pytest.mark.golden
MODULES = load_golden("tf_names.json")["modules"]

# Module of TensorFlow -> the same in estimax.
SAME = {
    "tf.estimator": ex,
    "tf.estimator.experimental": ex.experimental,
    "tf.estimator.export": ex.export,
    "tf.compat.v1.estimator": ex,
    "tf.compat.v1.estimator.experimental": ex.experimental,
    "tf.compat.v1.estimator.export": ex.export,
    "tf.compat.v1.estimator.inputs": ex.inputs,
    "tf.estimator.Estimator": ex.Estimator,
    "tf.compat.v1.estimator.Estimator": ex.Estimator,
    "tf.feature_column": ex.feature_columns,
}
# Names without a counterpart, which an error explains.
EXPLAINED = {
    "EvalOutput": "signatures predict",
    "FeedFnHook": "yield the values from the input_fn",
    "LinearSDCA": "ProximalAdagrad",
    "export_savedmodel": "export_saved_model",
    "tpu": "ex.RunConfig(iterations_per_loop=n)",
}


def _pairs():
    for module, same in SAME.items():
        for name in MODULES[module]:
            yield pytest.param(same, name, id=f"{module}.{name}")


@pytest.mark.parametrize(("same", "name"), list(_pairs()))
def test_every_name_exists_or_is_explained(same, name):
    if name in EXPLAINED:
        with pytest.raises(AttributeError) as error:
            getattr(same, name)
        assert EXPLAINED[name] in str(error.value)
    else:
        assert getattr(same, name) is not None


@pytest.mark.parametrize("name", MODULES["tf.compat.v1.estimator.tpu"])
def test_names_of_the_tpu_module_are_explained(name):
    if hasattr(ex, name):
        return  # RunConfig and experimental
    with pytest.raises(AttributeError, match=r"ex\.(RunConfig|EstimatorSpec)"):
        getattr(ex, name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("layers", "flax.linen"),
        ("train", "ex.optimizers.v1"),
        ("data", "ex.input.Dataset"),
        ("nn", "jax.nn.relu"),
        ("keras", "ex.optimizers.Adam"),
        ("logging", "logging.basicConfig"),
        ("flags", "argparse"),
        ("placeholder", "input_fn"),
        ("compat", 'compat="v1"'),
        ("distribute", "no strategies"),
        ("gather", "ex.embedding_lookup(table, ids)"),
        ("identity", "ex.log_value(name, value)"),
        ("one_hot", "jax.nn.one_hot"),
        ("py_func", "ex.input.Dataset.map"),
        ("string_to_number", "ex.input.decode_csv"),
        ("tables_initializer", "ex.lookup"),
        ("SparseTensor", "ex.Sparse("),
        ("glorot_uniform_initializer", "jax.nn.initializers"),
        ("AdamOptimizer", "ex.optimizers.v1.AdamOptimizer"),
        ("reduce_mean", "jnp.mean"),
        ("parse_example", "write ex.input.parse_example"),
        ("numeric_column", "write ex.feature_columns.numeric_column"),
        ("Estimater", "did you mean 'Estimator'"),
    ],
)
def test_names_that_ports_meet_are_explained(name, words):
    with pytest.raises(AttributeError) as error:
        getattr(ex, name)
    assert words in str(error.value)


def test_methods_that_ports_meet_are_explained():
    optimizer, dataset = ex.optimizers.Adam(), ex.input.Dataset.range(3)
    expected = [
        (ex.hooks.RunContext(0), "graph", "there is no graph"),
        (optimizer, "minimize", "return the optimizer itself"),
        (optimizer, "compute_gradients", "'compute_gradients': .*global_clipnorm"),
        (optimizer, "apply_gradients", "'apply_gradients': .*global_clipnorm"),
        (dataset, "make_one_shot_iterator", "return the dataset itself"),
        (dataset, "make_initializable_iterator", "return the dataset itself"),
        (dataset, "output_shapes", "element_spec"),
        (ex.lookup, "StaticHashTable", "string_to_index"),
        (ex.lookup, "index_to_string_table_from_file", "index_to_string"),
    ]
    for value, name, words in expected:
        assert not hasattr(value, name)
        with pytest.raises(AttributeError, match=words):
            getattr(value, name)


def test_every_name_in_the_migration_guide_exists():
    guide = Path(__file__).parents[1] / "docs" / "guides" / "migrating.md"
    missing = {"ex.layers"}  # the guide's example of an error
    for path in _paths(guide.read_text()):
        if path.split(".")[-1] in ("X", "x") or f"ex.{path}" in missing:
            continue  # stands for any name
        assert _resolves(path), f"ex.{path}"


def _resolves(path):
    found = ex
    for part in path.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def _paths(text):
    """Yield what follows `ex.` in a sentence."""
    yield from re.findall(r"\bex\.([A-Za-z_0-9.]*[A-Za-z_0-9])", text)


# Where the arguments of a name are others: why.
OTHER_ARGUMENTS = {
    "ModeKeys": "constants, never called",
    "SessionRunContext": "made by estimax only, and has no session",
    "SessionRunValues": "made by estimax only",
    "NanLossDuringTrainingError": "an error, raised by estimax only",
    "ExportOutput": "a union of the three classes, never called",
}
# Defaults that differ: (name or "*", argument) -> why.
OTHER_DEFAULTS = {
    ("*", "loss_reduction"): "None takes that of `compat`; 'v2' is TensorFlow's",
    ("*", "label_dtype"): "dtypes are names",
    ("*", "hooks"): "an empty tuple for None",
    ("*", "saving_listeners"): "an empty tuple for None",
    ("EstimatorSpec", "training_hooks"): "an empty tuple for None",
    ("EstimatorSpec", "training_chief_hooks"): "an empty tuple for None",
    ("EstimatorSpec", "evaluation_hooks"): "an empty tuple for None",
    ("EstimatorSpec", "prediction_hooks"): "an empty tuple for None",
    ("EvalSpec", "steps"): "None: the whole input, as the guide says",
}


CANNED = ("Baseline", "DNN", "Linear")
V1_OPTIMIZERS = [
    name
    for name in MODULES["tf.compat.v1.train"]
    # A dual averaging and a synchronous optimizer do not exist in estimax. The proximal
    # ones are those of ex.optimizers, without use_locking and name.
    if name.endswith("Optimizer")
    and not name.startswith(("AdagradDA", "Sync", "Proximal"))
    and name != "Optimizer"
]


def _signatures():
    for module, same in SAME.items():
        if module.startswith("tf.compat.v1.estimator") and same is ex:
            continue  # see the test of v1's canned models
        for name, parameters in MODULES[module].items():
            if parameters and name not in EXPLAINED | OTHER_ARGUMENTS:
                yield pytest.param(name, getattr(same, name), parameters, id=name)
    for name in V1_OPTIMIZERS:
        ours = getattr(ex.optimizers.v1, name)
        yield pytest.param(name, ours, MODULES["tf.compat.v1.train"][name], id=name)


@pytest.mark.parametrize(("name", "ours", "theirs"), list(_signatures()))
def test_positional_arguments_have_the_order_of_tensorflow(name, ours, theirs):
    expected = [p["name"] for p in theirs if p["kind"] == "POSITIONAL_OR_KEYWORD"]
    assert _positional(ours)[: len(expected)] == expected


@pytest.mark.parametrize(("name", "ours", "theirs"), list(_signatures()))
def test_defaults_are_those_of_tensorflow(name, ours, theirs):
    found = inspect.signature(ours).parameters
    for parameter in theirs:
        argument = parameter["name"]
        if {(name, argument), ("*", argument)} & OTHER_DEFAULTS.keys():
            continue
        default = found[argument].default if argument in found else "no argument"
        if "default" in parameter:  # what TensorFlow requires may be optional here
            assert default == parameter["default"], argument


def _positional(function):
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind == p.POSITIONAL_OR_KEYWORD]


@pytest.mark.parametrize(
    "name", [n for n in MODULES["tf.compat.v1.estimator"] if n.startswith(CANNED)]
)
def test_canned_models_of_v1_have_partitioners_besides(name):
    theirs = [p["name"] for p in MODULES["tf.compat.v1.estimator"][name]]
    shared = [n for n in theirs if not n.endswith("partitioner")]
    assert _positional(getattr(ex, name))[: len(shared)] == shared
