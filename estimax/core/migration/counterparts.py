"""The name in estimax of a name in TensorFlow, or what to write in its place.

    counterpart("estimator.DNNClassifier")     # Counterpart("ex.DNNClassifier", …)
    counterpart("layers.dense").advice         # "write nn.Dense(64, …)(x) …"

A name is only translated if estimax has it: every counterpart is looked up in the
package, so that a rewritten program does not fail at a missing name.

`missing` raises the error for a name that estimax does not have, with the same advice.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NoReturn

from estimax.core.migration.arrays import DTYPES
from estimax.core.migration.programs import DIFFERS
from estimax.core.migration.table import advice, exact_advice, meanings

# Prefixes of TensorFlow's names (without `tf.` and `compat.v1.`) and those of estimax;
# the first that resolves is used. The third column is for `tf.compat.v1`.
_PREFIXES: tuple[tuple[str, str, str], ...] = (
    ("estimator.experimental.", "experimental.", "experimental."),
    ("estimator.export.", "export.", "export."),
    ("estimator.inputs.", "inputs.", "inputs."),
    ("estimator.tpu.", "", ""),
    ("estimator.", "", ""),
    ("contrib.crf.", "crf.", "crf."),
    ("contrib.data.", "input.experimental.", "input.experimental."),
    ("contrib.estimator.", "", ""),
    ("contrib.estimator.", "experimental.", "experimental."),
    ("contrib.feature_column.", "feature_columns.", "feature_columns."),
    ("contrib.framework.", "", ""),
    ("contrib.hooks.", "", ""),
    ("contrib.layers.embedding_lookup_sparse",) + ("embedding_lookup_sparse",) * 2,
    ("contrib.losses.", "losses.", "losses."),
    ("contrib.lookup.", "lookup.", "lookup."),
    ("contrib.metrics.streaming_", "metrics.v1.", "metrics.v1."),
    ("contrib.metrics.", "metrics.v1.", "metrics.v1."),
    ("contrib.opt.", "optimizers.v1.", "optimizers.v1."),
    ("contrib.summary.", "summary.", "summary."),
    ("contrib.tpu.", "", ""),
    ("contrib.training.", "input.experimental.", "input.experimental."),
    ("feature_column.", "feature_columns.", "feature_columns.v1."),
    ("feature_column.", "feature_columns.", "feature_columns."),
    ("data.experimental.", "input.experimental.", "input.experimental."),
    ("data.experimental.", "input.", "input."),
    ("data.", "input.", "input."),
    ("distribute.InputContext", "input.InputContext", "input.InputContext"),
    ("io.", "input.", "input."),
    ("keras.experimental.", "feature_columns.", "feature_columns."),
    ("keras.layers.DenseFeatures",) + ("feature_columns.DenseFeatures",) * 2,
    ("keras.optimizers.experimental.", "optimizers.", "optimizers."),
    ("keras.optimizers.legacy.RMSprop", "optimizers.RMSProp", "optimizers.RMSProp"),
    ("keras.optimizers.legacy.", "optimizers.", "optimizers."),
    ("keras.optimizers.RMSprop", "optimizers.RMSProp", "optimizers.RMSProp"),
    ("keras.optimizers.", "optimizers.", "optimizers."),
    ("losses.", "losses.", "losses."),
    ("metrics.", "metrics.v1.", "metrics.v1."),
    ("nn.embedding_lookup", "embedding_lookup", "embedding_lookup"),
    ("nn.l2_loss", "optimizers.l2_loss", "optimizers.l2_loss"),
    ("nn.safe_embedding_lookup_sparse",) + ("embedding_lookup_sparse",) * 2,
    ("optimizers.RMSprop", "optimizers.RMSProp", "optimizers.RMSProp"),
    ("optimizers.legacy.", "optimizers.", "optimizers."),
    ("optimizers.", "optimizers.", "optimizers."),
    ("python_io.", "input.python_io.", "input.python_io."),
    ("io.tf_record_iterator",) + ("input.python_io.tf_record_iterator",) * 2,
    ("python_io.", "input.", "input."),
    ("saved_model.load", "export.load", "export.load"),
    ("sparse.to_dense",) + ("sparse_tensor_to_dense",) * 2,
    ("summary.", "summary.", "summary."),
    ("train.", "optimizers.v1.", "optimizers.v1."),
    ("train.", "", ""),
    *(
        (f"{module}{name}", f"input.{name}", f"input.{name}")
        for module, names in {
            "": (
                *("decode_csv", "parse_example", "parse_single_example"),
                *("parse_sequence_example", "parse_single_sequence_example"),
                *("FixedLenFeature", "FixedLenSequenceFeature", "VarLenFeature"),
                *("RaggedFeature", "SparseFeature", "TensorSpec"),
            ),
            "train.": (
                *("Example", "Feature", "Features", "BytesList", "FloatList"),
                *("Int64List", "FeatureList", "FeatureLists", "SequenceExample"),
            ),
        }.items()
        for name in names
    ),
    ("", "", ""),
)
# Modules that a program gives a name of its own: `fc = tf.feature_column`. The row of
# `_PREFIXES` for such a module says which module of estimax has its names.
_MODULES = (
    *("data", "data.experimental", "contrib.data"),
    *("estimator", "estimator.experimental", "estimator.export", "estimator.inputs"),
    *("feature_column", "contrib.feature_column", "contrib.crf", "contrib.estimator"),
    *("keras.optimizers", "keras.optimizers.legacy", "optimizers"),
    *("losses", "metrics", "summary"),
)
# A name in quotes is a dtype for estimax, NumPy and JAX.
_DTYPES = {*DTYPES.split(), "string"}
# Names that can be translated only if estimax has these too: their constructors differ
# otherwise.
_NEEDS = {"train.Example": "input.Features", "train.Feature": "input.Features"}
_UNKNOWN = 'no counterpart is known; see the guide "Migrate a tf.estimator program"'


@dataclass(frozen=True)
class Counterpart:
    """What to write for a name of TensorFlow: a name, or advice."""

    name: str | None  # "ex.DNNClassifier"
    advice: str = ""
    takes_compat: bool = False  # whether a call takes compat="v1"
    value: Any = None  # what the name is bound to: a class, a function, a constant


def counterpart(name: str) -> Counterpart:
    """Return the counterpart of a name of TensorFlow, written without `tf.`.

    >>> counterpart("estimator.ModeKeys.TRAIN").name
    'ex.ModeKeys.TRAIN'
    >>> counterpart("compat.v1.estimator.DNNClassifier").takes_compat
    True
    >>> counterpart("placeholder").advice[:25]
    'there are no placeholders'
    """
    plain = name.removeprefix("compat.v2.").removeprefix("compat.v1.")
    if plain in _MODULES:
        module = next(new for old, new, _ in _PREFIXES if old == f"{plain}.")
        return Counterpart(f"ex.{module}".rstrip("."))
    found = _translate(plain, is_v1=name.startswith("compat.v1."))
    return found or Counterpart(None, advice(plain) or _UNKNOWN)


def exact_counterpart(name: str) -> str | None:
    """Return "write …" for a name that estimax or the table has, or else None.

    >>> exact_counterpart("train.AdamOptimizer")
    'write ex.optimizers.v1.AdamOptimizer'
    >>> exact_counterpart("train.Estimater") is None
    True
    """
    found = _translate(name, is_v1=False)
    return f"write {found.name}" if found else exact_advice(name)


def _translate(plain: str, *, is_v1: bool) -> Counterpart | None:
    if plain.removeprefix("dtypes.") in _DTYPES:
        return Counterpart(f'"{plain.removeprefix("dtypes.")}"')
    if plain in DIFFERS or (plain in _NEEDS and _resolve(_NEEDS[plain]) is None):
        return None
    for prefix, new, of_v1 in _PREFIXES:
        if not plain.startswith(prefix):
            continue
        target = (of_v1 if is_v1 else new) + plain[len(prefix) :]
        found = _resolve(target)
        if found is not None:
            takes = is_v1 and plain.startswith("estimator.") and _has_compat(found)
            return Counterpart(f"ex.{target}", takes_compat=takes, value=found)
    return None


def _resolve(target: str) -> Any:  # whatever the name is bound to; None if nothing
    # By its key, because core is below all packages; who asks has imported estimax.
    value: Any = sys.modules["estimax"]
    for part in target.split("."):
        if isinstance(value, ModuleType) and part not in _public(value):
            return None
        try:
            value = getattr(value, part)
        except AttributeError:
            return None
    # A package is not what a program calls or subclasses.
    return None if inspect.ismodule(value) else value


def _public(module: ModuleType) -> set[str]:
    # Not hasattr: a package asks this table about a name that it lacks.
    names = getattr(module, "__all__", None) or vars(module)
    return {name for name in names if not name.startswith("__")}


def look_up(path: str) -> Any:
    """Return what `ex.path` is bound to; AttributeError says what to write instead."""
    value: Any = sys.modules["estimax"]
    for part in path.split(".") if path else ():
        if not isinstance(value, ModuleType | type):
            break  # an object: its attributes are not ours to check
        value = getattr(value, part)
    return value


def _has_compat(value: Any) -> bool:
    try:
        return "compat" in inspect.signature(value).parameters
    except (TypeError, ValueError):
        return False


# The modules of TensorFlow whose names a program may look for in a package of estimax.
_LOOKED_FOR_IN = {
    "estimax": (
        *("", "estimator.", "train.", "nn.", "layers.", "data.", "io.", "keras."),
        *("keras.layers.", "contrib.layers.", "contrib.", "estimator.experimental."),
        *("estimator.export.", "estimator.tpu.", "feature_column.", "initializers."),
        *("metrics.", "losses.", "lookup.", "summary.", "contrib.estimator."),
        *("contrib.training.", "contrib.tpu.", "contrib.framework.", "nn.rnn_cell."),
    ),
    "estimax.experimental": ("estimator.experimental.", "contrib.estimator."),
    "estimax.export": ("estimator.export.", "saved_model.", "contrib.predictor."),
    "estimax.feature_columns": ("feature_column.", "contrib.layers."),
    "estimax.hooks": ("estimator.", "train.", "contrib.training."),
    "estimax.input": ("data.", "data.experimental.", "io.", "train.", "image."),
    "estimax.lookup": ("lookup.",),
    "estimax.losses": ("losses.", "nn."),
    "estimax.metrics": ("metrics.", "contrib.metrics."),
    "estimax.optimizers": ("train.", "optimizers.", "contrib.opt."),
    "estimax.summary": ("summary.", "contrib.summary."),
}


def missing(
    module: str, name: str, known: Iterable[str] = (), elsewhere: Iterable[str] = ()
) -> NoReturn:
    """Raise the AttributeError for a name that a module does not have.

    Args:
      module: The package that was asked.
      name: The name that it does not have.
      known: Names that it has, for "did you mean".
      elsewhere: Where estimax has the name, if the caller knows: "ex.input.csv_files".

    >>> missing("estimax", "io")
    Traceback (most recent call last):
    AttributeError: module 'estimax' has no attribute 'io': parsers are in ex.input: \
ex.input.parse_example, ex.input.FixedLenFeature.
    """
    message = f"module {module!r} has no attribute {name!r}"
    # Python and tools ask modules for names such as __path__.
    if name.startswith("_") and name != "__version__":
        raise AttributeError(message)
    prefixes = _LOOKED_FOR_IN.get(module, ())
    first = [exact_counterpart(prefixes[0] + name)] if prefixes else []
    found = [f"write {' or '.join(places)}"] if (places := list(elsewhere)) else []
    rest = (exact_counterpart(prefix + name) for prefix in prefixes[1:])
    advice = next((text for text in (*first, *found, *rest) if text), None)
    if advice:
        short = f" ({'; '.join(meanings(advice))})" if meanings(advice) else ""
        raise AttributeError(f"{message}: {advice}{short}.")
    near = difflib.get_close_matches(name, list(known), n=1)
    raise AttributeError(message + (f"; did you mean {near[0]!r}?" if near else ""))


def missing_package(name: str) -> NoReturn:
    """Raise the AttributeError for an internal package, without importing anything."""
    message = f"module 'estimax' has no attribute {name!r}"
    advice = exact_advice(name)
    raise AttributeError(f"{message}: {advice}." if advice else message)


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
