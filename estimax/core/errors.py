"""The errors of estimax: what went wrong, where, and what to do about it.

Every error is an `EstimaxError` and also the builtin that a caller would catch.
"""

import difflib
from collections.abc import Iterable


class EstimaxError(Exception):
    """The base of every error that estimax raises on purpose."""


class ConfigError(EstimaxError, ValueError):
    """A run description (YAML, RunConfig, TF_CONFIG) that cannot be used."""


class SpecError(EstimaxError, ValueError):
    """An `EstimatorSpec`, `model_fn` or `input_fn` that breaks its contract."""


class FeatureError(EstimaxError, ValueError):
    """A feature or feature column that cannot be transformed as asked."""


class LabelError(EstimaxError, ValueError):
    """Labels of the wrong shape, kind or range for their head."""


class InputError(EstimaxError, ValueError):
    """Data that cannot be read; the message names file, line or record."""


class MissingFileError(EstimaxError, FileNotFoundError):
    """A file, checkpoint or bundle that should be there and is not."""


class CheckpointError(EstimaxError, ValueError):
    """A checkpoint that is damaged or does not fit the model."""


class BundleError(EstimaxError, ValueError):
    """An exported bundle that is damaged or asked for what it does not hold."""


class InUseError(EstimaxError, RuntimeError):
    """A model directory that another training is using."""


class NanLossError(EstimaxError, RuntimeError):
    """The training loss became NaN."""


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """Return "; did you mean 'x'?", or the options when nothing is near.

    >>> did_you_mean("adagrd", ["adagrad", "adam"])
    "; did you mean 'adagrad'?"
    >>> did_you_mean("zzz", ["adagrad", "adam"])
    '; expected one of: adagrad, adam'
    """
    known = sorted(options)
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; expected one of: {', '.join(known)}" if known else ""
