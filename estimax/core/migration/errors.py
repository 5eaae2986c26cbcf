"""Errors for names and methods of TensorFlow that estimax does not have."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, NoReturn

from estimax.core.migration.counterparts import exact_counterpart
from estimax.core.migration.table import exact_advice, meanings

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
