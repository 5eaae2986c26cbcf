"""The name in estimax of a name in TensorFlow, or the advice of the migration guide.

    counterpart("estimator.DNNClassifier")     # Counterpart("ex.DNNClassifier", …)
    counterpart("layers.dense").advice         # "layers are Flax layers, …"

A name is only translated if estimax has it: every counterpart is looked up in the
package, so that a rewritten program does not fail at a missing name.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import estimax
from estimax.core.tf_names import EXPORT, TOP

# Prefixes of TensorFlow's names (without `tf.` and `compat.v1.`) and those of estimax;
# the first that fits is used. The second column is for `tf.compat.v1`.
_PREFIXES: tuple[tuple[str, str, str], ...] = (
    ("estimator.experimental.", "experimental.", "experimental."),
    ("estimator.export.", "export.", "export."),
    ("estimator.inputs.", "inputs.", "inputs."),
    ("estimator.", "", ""),
    ("contrib.estimator.", "", ""),
    ("contrib.crf.", "crf.", "crf."),
    ("feature_column.", "feature_columns.", "feature_columns.v1."),
    ("feature_column.", "feature_columns.", "feature_columns."),
    ("contrib.feature_column.", "feature_columns.", "feature_columns."),
    ("data.", "input.", "input."),
    ("io.gfile.", "", ""),
    ("io.", "input.", "input."),
    ("losses.", "losses.", "losses."),
    ("metrics.", "metrics.v1.", "metrics.v1."),
    ("keras.optimizers.legacy.", "optimizers.", "optimizers."),
    ("keras.optimizers.", "optimizers.", "optimizers."),
    ("summary.", "summary.", "summary."),
    ("saved_model.load", "export.load", "export.load"),
    ("nn.", "", ""),
    ("train.", "optimizers.v1.", "optimizers.v1."),
    ("train.", "", ""),
    *(
        (name, f"input.{name}", f"input.{name}")
        for name in (
            *("decode_csv", "parse_example", "parse_single_example"),
            *("FixedLenFeature", "FixedLenSequenceFeature", "VarLenFeature"),
        )
    ),
    ("", "", ""),
)
# Modules that a program gives a name of its own: `fc = tf.feature_column`.
_MODULES = {
    "data": "ex.input",
    "feature_column": "ex.feature_columns",
    "losses": "ex.losses",
    "metrics": "ex.metrics.v1",
    "summary": "ex.summary",
}
# Names that estimax has too, but whose arguments or meaning differ: a person decides.
_BY_HAND = {
    "train.Example": 'write ex.input.Example.of({"age": 31})',
    "train.Feature": 'write ex.input.Example.of({"age": 31})',
    "train.Features": 'write ex.input.Example.of({"age": 31})',
    **{
        f"train.{name}": f"write ex.optimizers.{name}(…) without the step"
        for name in (
            *("exponential_decay", "inverse_time_decay", "natural_exp_decay"),
            *("polynomial_decay", "cosine_decay", "piecewise_constant"),
        )
    },
    "train.ExponentialMovingAverage": "write ex.RunConfig(average_decay=0.999)",
    "nn.l2_loss": "write ex.optimizers.l2_loss",
    "nn.sigmoid_cross_entropy_with_logits": (
        "write optax.sigmoid_binary_cross_entropy(logits, labels)"
    ),
    "nn.sparse_softmax_cross_entropy_with_logits": (
        "write optax.softmax_cross_entropy_with_integer_labels(logits, labels)"
    ),
    "nn.dropout": "write nn.Dropout(1 - keep_prob, deterministic=…)(x), of flax.linen",
    "nn.dynamic_rnn": "write nn.RNN(nn.LSTMCell(units))(x, seq_lengths=lengths)",
    "nn.bidirectional_dynamic_rnn": (
        "write nn.Bidirectional(nn.RNN(nn.LSTMCell(units)), nn.RNN(…))(x, "
        "seq_lengths=lengths), of flax.linen"
    ),
    "layers.dense": (
        "write nn.Dense(64, kernel_init=nn.initializers.glorot_uniform())(x), of "
        "flax.linen"
    ),
    "layers.dropout": (
        "write nn.Dropout(0.1, deterministic=mode != ex.ModeKeys.TRAIN)(x), of "
        "flax.linen"
    ),
    "layers.batch_normalization": (
        "write nn.BatchNorm(use_running_average=mode != ex.ModeKeys.TRAIN, "
        "epsilon=1e-3)(x), of flax.linen"
    ),
    "layers.conv2d": 'write nn.Conv(32, (3, 3), padding="VALID")(x), of flax.linen',
    "layers.max_pooling2d": "write nn.max_pool(x, (2, 2), strides=(2, 2))",
    "layers.flatten": "write x.reshape((x.shape[0], -1))",
    "equal": 'write x == b"text": the text of a row is bytes',
}
# Methods that programs call on objects, with what to do instead.
METHODS = {
    "minimize": (
        "return train_op=optimizer, or ex.minimize(optimizer, var_list=prefix)"
    ),
    "apply_gradients": "return train_op=optimizer",
    "compute_gradients": "return train_op=optimizer; clip with global_clipnorm=…",
    "make_initializable_iterator": "return the dataset from the input_fn",
    "make_one_shot_iterator": "return the dataset from the input_fn",
}
RENAMED_METHODS = {"export_savedmodel": "export_saved_model"}
_UNKNOWN = 'no counterpart is known; see the guide "Migrate a tf.estimator program"'


@dataclass(frozen=True)
class Counterpart:
    """What to write for a name of TensorFlow: a name, or advice."""

    name: str | None  # "ex.DNNClassifier"
    advice: str = ""
    takes_compat: bool = False  # whether a call takes compat="v1"


def counterpart(name: str) -> Counterpart:
    """Return the counterpart of a name of TensorFlow, written without `tf.`.

    >>> counterpart("estimator.ModeKeys.TRAIN").name
    'ex.ModeKeys.TRAIN'
    >>> counterpart("compat.v1.estimator.DNNClassifier").takes_compat
    True
    >>> counterpart("placeholder").advice[:25]
    'there are no placeholders'
    """
    plain = name.removeprefix("compat.v1.")
    is_v1 = plain != name
    if plain in _MODULES:
        return Counterpart(_MODULES[plain])
    if plain in _BY_HAND:
        return Counterpart(None, _BY_HAND[plain])
    for prefix, new, of_v1 in _PREFIXES:
        if plain.startswith(prefix):
            target = (of_v1 if is_v1 else new) + plain[len(prefix) :]
            found = _resolved(target)
            if found is not None:
                takes = is_v1 and plain.startswith("estimator.") and _has_compat(found)
                return Counterpart(f"ex.{target}", takes_compat=takes)
    return Counterpart(None, _advice(plain))


def _resolved(target: str) -> Any:  # whatever the name is bound to; None if nothing
    value: Any = estimax
    for part in target.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            return None
    # A package is not what a program calls or subclasses.
    return None if inspect.ismodule(value) else value


def _has_compat(value: Any) -> bool:
    try:
        return "compat" in inspect.signature(value).parameters
    except (TypeError, ValueError):
        return False


def _advice(plain: str) -> str:
    """Return the most specific advice: of the name itself, then of its modules."""
    parts = plain.split(".")
    if parts[0] == "nn" and hasattr(jax.nn, parts[-1]):
        return f"write jax.nn.{parts[-1]}"
    for part in (*parts[1:], parts[0]):
        if part in TOP:
            return TOP[part]
        if part in EXPORT:
            return EXPORT[part]
    array = parts[0].removeprefix("reduce_")
    if len(parts) == 1 and hasattr(jnp, array):
        return f"arrays are JAX's; import jax.numpy as jnp and write jnp.{array}"
    return _UNKNOWN
