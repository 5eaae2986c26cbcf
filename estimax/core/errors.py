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


# Comparing a name with an option takes some 20 microseconds, more if they are long.
_MOST_COMPARED = 2_000
_LONGEST_COMPARED = 200
_MOST_LISTED = 40


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """Return "; did you mean 'x'?", or the options when nothing is near.

    Of many options only the first are listed, and no near one is looked for.

    >>> did_you_mean("adagrd", ["adagrad", "adam"])
    "; did you mean 'adagrad'?"
    >>> did_you_mean("zzz", ["adagrad", "adam"])
    '; expected one of: adagrad, adam'
    """
    known = sorted(options)
    if len(name) <= _LONGEST_COMPARED and len(known) <= _MOST_COMPARED:
        short = [option for option in known if len(option) <= _LONGEST_COMPARED]
        near = difflib.get_close_matches(name, short, n=1)
        if near:
            return f"; did you mean {near[0]!r}?"
    if not known:
        return ""
    more = len(known) - _MOST_LISTED
    listed = [*known[:_MOST_LISTED], *([f"and {more:,} more"] if more > 0 else [])]
    return f"; expected one of: {', '.join(listed)}"
