"""The errors that estimax raises, and suggestions for misspelled names.

Every error is an `EstimaxError` and also the builtin exception that a caller would
catch, e.g. `ValueError`. A message says where the problem is, what was expected, what
was found, and how to continue.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from estimax.core.display import without_addresses


class EstimaxError(Exception):
    """The base class of all errors that estimax raises.

    Catch it to handle every error of estimax. Each subclass also inherits from the
    builtin exception for its kind (`ValueError`, `FileNotFoundError`, `RuntimeError`),
    so code that catches those keeps working.

    Example:
      >>> try:
      ...     raise LabelError("labels must be in [0, 3), got 7.")
      ... except EstimaxError as error:
      ...     print(f"{type(error).__name__}: {error}")
      LabelError: labels must be in [0, 3), got 7.
      >>> issubclass(LabelError, ValueError)
      True
    """

    def __str__(self) -> str:
        return without_addresses(super().__str__())


class ConfigError(EstimaxError, ValueError):
    """A run file, `RunConfig`, `TF_CONFIG` or environment variable is invalid."""


class SpecError(EstimaxError, ValueError):
    """An `EstimatorSpec`, `model_fn` or `input_fn` is invalid."""


class FeatureError(EstimaxError, ValueError):
    """A feature or feature column is invalid, or the two do not fit each other."""


class LabelError(EstimaxError, ValueError):
    """Labels have the wrong shape, type or range for their head."""


@dataclass(frozen=True)
class Remedy:
    """The argument that would avoid an error, if the data is right as it is.

    Args:
      setting: The name of the argument, such as "quote".
      text: The advice for callers in Python, the rest of a sentence without its end.
    """

    setting: str
    text: str


class InputError(EstimaxError, ValueError):
    """Data cannot be read. The message names the file, line or record.

    Args:
      problem: What is wrong, and where; without a period at its end if `remedy` is
        given.
      remedy: Which argument of Python would help. The command line and run files have
        no such argument, and say the same in their own words: see `advise`.

    Example:
      >>> error = InputError("line 2: an open quote", Remedy("quote", "; pass None"))
      >>> print(error)
      line 2: an open quote; pass None.
      >>> error.advise({"quote": "; set csv.quote to null"})
      'line 2: an open quote; set csv.quote to null.'
    """

    def __init__(self, problem: str, remedy: Remedy | None = None) -> None:
        super().__init__(problem if remedy is None else f"{problem}{remedy.text}.")
        self.problem = problem
        self.remedy = remedy

    def advise(self, texts: Mapping[str, str]) -> str:
        """Return the message with other advice than for Python.

        Args:
          texts: The advice by `Remedy.setting`; a setting without a text is left out.
        """
        if self.remedy is None:
            return str(self)
        return f"{self.problem}{texts.get(self.remedy.setting, '')}."


class TooManyErrorsError(InputError):
    """`Dataset.ignore_errors` skipped more elements than its limits allow.

    `last` is the message of the last error, which names the file and the line.
    """

    def __init__(self, message: str, last: str = "") -> None:
        super().__init__(message)
        self.last = last


class MissingFileError(EstimaxError, FileNotFoundError):
    """A file, checkpoint or bundle does not exist."""


class CheckpointError(EstimaxError, ValueError):
    """A checkpoint is damaged or does not fit the model."""


class BundleError(EstimaxError, ValueError):
    """An exported bundle is damaged, or does not have what was requested."""


class InUseError(EstimaxError, RuntimeError):
    """Another process is training in the model directory."""


class ForkedError(EstimaxError, RuntimeError):
    """The process was forked from one that had used JAX, which cannot work there."""


class ClusterError(EstimaxError, RuntimeError):
    """A process of a cluster was lost or failed, or the processes do not agree."""


class NanLossError(EstimaxError, RuntimeError):
    """The training loss became NaN."""


# Comparing a name with an option takes about 20 microseconds, more for long names. With
# these limits a suggestion takes at most 40 ms.
_MOST_COMPARED = 2_000
_LONGEST_COMPARED = 200
_MOST_LISTED = 40


def did_you_mean(
    name: str, options: Iterable[str], *, listed_as: str = "expected one of"
) -> str:
    """Return "; did you mean 'x'?" for the closest option, or list the options.

    `listed_as` is "found" for options that data has, and not the names to choose from.

    If there are more than 2,000 options, no closest one is searched for. At most 40
    options are listed.

    >>> did_you_mean("adagrd", ["adagrad", "adam"])
    "; did you mean 'adagrad'?"
    >>> did_you_mean("ADAM", ["adagrad", "adam"])
    "; did you mean 'adam'?"
    >>> did_you_mean("zzz", ["adagrad", "adam"])
    '; expected one of: adagrad, adam'
    >>> did_you_mean("age", ["city"], listed_as="found")
    '; found: city'
    """
    known = sorted(options)
    if len(name) <= _LONGEST_COMPARED and len(known) <= _MOST_COMPARED:
        short = [option for option in known if len(option) <= _LONGEST_COMPARED]
        same = [option for option in short if option.casefold() == name.casefold()]
        near = same or difflib.get_close_matches(name, short, n=1)
        if near:
            return f"; did you mean {near[0]!r}?"
    if not known:
        return ""
    more = len(known) - _MOST_LISTED
    listed = [*known[:_MOST_LISTED], *([f"and {more:,} more"] if more > 0 else [])]
    return f"; {listed_as}: {', '.join(listed)}"
