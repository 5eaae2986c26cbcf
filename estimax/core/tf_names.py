"""Names of TensorFlow that estimax does not have, and what to write instead.

    ex.layers        # AttributeError: … layers are Flax layers, written inline …
    Adam().minimize  # AttributeError: Optimizer has no 'minimize': …

`estimax/__init__.py` and a few packages look names up here (`missing`). `Retired` is
for methods.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

_NO_SESSION = (
    "there are no sessions and graphs; the Estimator runs the model, and a hook reads "
    "values with context.fetch([name])"
)
_NO_TPU_CLASS = (
    "the same program runs on CPU, GPU and TPU; use ex.Estimator, and "
    "ex.RunConfig(iterations_per_loop=n) for n steps in each compiled call"
)
_INITIALIZERS = (
    "initializers are functions of JAX, such as jax.nn.initializers.glorot_uniform() "
    "in ex.get_variable(name, shape, initializer=…)"
)
_FLAGS = "use argparse, or the package absl-py with the same names"
_JNP = "arrays are JAX's; import jax.numpy as jnp and write {0}"

# Names that programs write after `tf.`, `tf.estimator.` or `tf.train.`.
TOP: dict[str, str] = {
    "CheckpointInputPipelineHook": (
        "checkpoints include the position of the input, unless "
        'RunConfig(resume_input="restart")'
    ),
    "FeedFnHook": (
        "there are no placeholders to feed; yield the values from the input_fn, as "
        "features"
    ),
    "InputPipelineConfig": _NO_TPU_CLASS,
    "LinearSDCA": (
        "there is no dual solver. The same optimum: optimizer="
        "ex.optimizers.ProximalAdagrad(0.1, l1_regularization_strength=l1 / n, "
        "l2_regularization_strength=l2 / n), with l1 and l2 of LinearSDCA and n the "
        "number of training examples (the sum of their weights)"
    ),
    "Print": "write jax.debug.print, or name a value for hooks: ex.log_value",
    "Saver": "the Estimator saves; see ex.RunConfig and ex.CheckpointSaverHook",
    "Scaffold": (
        "there is no graph to finish; load with Estimator(warm_start_from=…) what "
        "init_fn loads"
    ),
    "Session": _NO_SESSION,
    "ConfigProto": _NO_SESSION,
    "Graph": _NO_SESSION,
    "MonitoredTrainingSession": _NO_SESSION,
    "SparseTensor": "write ex.Sparse(indices, values, dense_shape)",
    "TPUConfig": _NO_TPU_CLASS,
    "TPUEstimator": _NO_TPU_CLASS,
    "TPUEstimatorSpec": (
        "return ex.EstimatorSpec; metrics are values, such as "
        'eval_metric_ops={"auc": ex.metrics.auc(labels, scores)}'
    ),
    "Variable": "declare variables with ex.get_variable(name, shape)",
    "app": _FLAGS,
    "compat": (
        "v1's names are here and in ex.feature_columns.v1, ex.metrics.v1, "
        "ex.optimizers.v1 and ex.losses; canned models have the argument "
        'compat="v1"'
    ),
    "contrib": (
        "feature columns, heads, metrics and hooks of tf.contrib are in "
        "ex.feature_columns, ex.heads, ex.metrics and ex.hooks; layers are Flax layers"
    ),
    "control_dependencies": (
        "operations run in the order that their values need; use ex.assign for "
        "variables, and nothing for statistics of batches"
    ),
    "data": "datasets are in ex.input: ex.input.Dataset, ex.input.TFRecordDataset",
    "disable_v2_behavior": "leave it out; there are no graphs",
    "distribute": (
        "there are no strategies; JAX uses the devices of the process, see ex.RunConfig"
    ),
    "estimator": "its names are at the top: ex.Estimator, ex.DNNClassifier",
    "feature_column": "write ex.feature_columns",
    "flags": _FLAGS,
    "gather": (
        "write ex.embedding_lookup(table, ids) for a variable, and "
        "jnp.take(x, ids, axis=0) for other arrays"
    ),
    "gfile": "files are opened with open(); ex.input reads local files and URLs",
    "global_variables_initializer": _NO_SESSION,
    "gradients": "gradients are JAX's: jax.grad",
    "identity": "name a value for hooks with ex.log_value(name, value)",
    "init_from_checkpoint": (
        "use Estimator(warm_start_from=ex.WarmStartSettings(path, vars_to_warm_start))"
    ),
    "initializers": _INITIALIZERS,
    "io": "parsers are in ex.input: ex.input.parse_example, ex.input.FixedLenFeature",
    "keras": (
        "write ex.optimizers.Adam, ex.metrics.auc(labels, scores), and Flax layers in "
        "place of tf.keras.layers"
    ),
    "latest_checkpoint": "write estimator.latest_checkpoint()",
    "layers": (
        "layers are Flax layers, written inline in the model_fn: import flax.linen as "
        "nn, then net = nn.relu(nn.Dense(64)(net))"
    ),
    "list_variables": "write estimator.get_variable_names()",
    "load_variable": "write estimator.get_variable_value(name)",
    "logging": (
        "use Python's logging: logging.basicConfig(level='INFO') shows what estimax "
        "logs"
    ),
    "nn": (
        "functions are JAX's and layers Flax's: jax.nn.relu, jax.nn.softmax, "
        "flax.linen.Dense, flax.linen.Conv; cross entropies are in ex.losses"
    ),
    "one_hot": "write jax.nn.one_hot(ids, n)",
    "placeholder": (
        "there are no placeholders; an input_fn yields features and labels, and an "
        "export takes the rows of ex.export.build_raw_serving_input_receiver_fn"
    ),
    "py_func": "write plain Python in ex.input.Dataset.map",
    "saved_model": "load an exported model with ex.export.load(path)",
    "set_random_seed": "write ex.RunConfig(tf_random_seed=…)",
    "string": "text is bytes; where a dtype is expected, write 'string'",
    "string_split": "split text in ex.input.Dataset.map: Python's line.split()",
    "string_to_number": (
        "parse text in the input_fn: ex.input.decode_csv, or Python's float(text)"
    ),
    "tables_initializer": "nothing is initialized; see ex.lookup",
    "tpu": _NO_TPU_CLASS,
    "train": (
        "optimizers and learning rate schedules are in ex.optimizers (those with the "
        "arguments of tf.train in ex.optimizers.v1, such as AdamOptimizer), hooks in "
        "ex.hooks, Example and Feature in ex.input; the Estimator reads and writes "
        "checkpoints"
    ),
    **dict.fromkeys(
        (
            "constant_initializer",
            "glorot_normal_initializer",
            "glorot_uniform_initializer",
            "ones_initializer",
            "random_normal_initializer",
            "random_uniform_initializer",
            "truncated_normal_initializer",
            "variance_scaling_initializer",
            "zeros_initializer",
        ),
        _INITIALIZERS,
    ),
    **{
        name: f"write ex.optimizers.v1.{name}"
        for name in (
            "AdadeltaOptimizer",
            "AdagradOptimizer",
            "AdamOptimizer",
            "FtrlOptimizer",
            "GradientDescentOptimizer",
            "MomentumOptimizer",
            "ProximalAdagradOptimizer",
            "ProximalGradientDescentOptimizer",
            "RMSPropOptimizer",
        )
    },
    **{
        name: _JNP.format(f"jnp.{target}")
        for name, target in {
            "abs": "abs",
            "add_n": "sum(jnp.stack(arrays), 0)",
            "argmax": "argmax",
            "cast": "asarray(x, dtype)",
            "clip_by_value": "clip",
            "concat": "concatenate",
            "constant": "array",
            "equal": "equal",
            "exp": "exp",
            "expand_dims": "expand_dims",
            "float32": "float32",
            "int32": "int32",
            "int64": "int64",
            "log": "log",
            "logical_and": "logical_and",
            "matmul": "matmul",
            "maximum": "maximum",
            "minimum": "minimum",
            "multiply": "multiply",
            "ones_like": "ones_like",
            "reduce_max": "max",
            "reduce_mean": "mean",
            "reduce_sum": "sum",
            "reshape": "reshape",
            "shape": "shape",
            "split": "split",
            "sqrt": "sqrt",
            "square": "square",
            "squeeze": "squeeze",
            "stack": "stack",
            "tile": "tile",
            "to_float": "asarray(x, jnp.float32)",
            "transpose": "transpose",
            "where": "where",
            "zeros": "zeros",
            "zeros_like": "zeros_like",
        }.items()
    },
}

_ONLY_PREDICTS = (
    "signatures predict: return ex.PredictOutput, ex.ClassificationOutput or "
    "ex.RegressionOutput. Evaluate with estimator.evaluate, or with the bundle that "
    "estimator.experimental_export_all_saved_models writes"
)
# Names of `tf.estimator.export`.
EXPORT = {"EvalOutput": _ONLY_PREDICTS, "TrainOutput": _ONLY_PREDICTS}

_TO_INDEX = "write ex.lookup.string_to_index(words, vocabulary, num_oov_buckets)"
_TO_STRING = "write ex.lookup.index_to_string(ids, vocabulary)"
# Names of `tf.lookup` and `tf.contrib.lookup`.
LOOKUP = {
    "KeyValueTensorInitializer": _TO_INDEX,
    "StaticHashTable": _TO_INDEX,
    "StaticVocabularyTable": _TO_INDEX,
    "TextFileInitializer": _TO_INDEX,
    "index_table_from_file": _TO_INDEX,
    "index_table_from_tensor": _TO_INDEX,
    "index_to_string_table_from_file": _TO_STRING,
    "index_to_string_table_from_tensor": _TO_STRING,
}


def missing(
    module: str, name: str, advice: Mapping[str, str], known: Iterable[str] = ()
) -> NoReturn:
    """Raise the AttributeError for a name that a module does not have.

    >>> missing("estimax", "io", {"io": "parsers are in ex.input"})
    Traceback (most recent call last):
    AttributeError: module 'estimax' has no attribute 'io': parsers are in ex.input.
    """
    message = f"module {module!r} has no attribute {name!r}"
    if name in advice:
        raise AttributeError(f"{message}: {advice[name]}.")
    near = difflib.get_close_matches(name, list(known), n=1)
    raise AttributeError(message + (f"; did you mean {near[0]!r}?" if near else ""))


class Retired:
    """A method of TensorFlow that a class does not have; getting it says what to write.

    >>> class Fast:
    ...     minimize = Retired("return the optimizer itself")
    >>> Fast().minimize
    Traceback (most recent call last):
    AttributeError: Fast has no 'minimize': return the optimizer itself.
    """

    def __init__(self, advice: str) -> None:
        self._advice = advice

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        raise AttributeError(f"{owner.__name__} has no {self._name!r}: {self._advice}.")
