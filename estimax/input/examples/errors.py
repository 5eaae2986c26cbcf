"""Examples that cannot be parsed, in words: which one, what in it, and where it was.

with AttachData(records):
    raise_problem(problem, wanted, records, names)      # an ExampleError
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from estimax.core.errors import InputError, did_you_mean
from estimax.core.strings import Strings
from estimax.native.features import Flaw, Problem, Wanted
from estimax.wire import protos

# What messages call the examples of a batch: by their place, unless the user says.
Names = Sequence[Any] | Callable[[int], Any] | None


class ExampleError(InputError):
    """An example that cannot be parsed.

    `record` is its place in the batch, `feature` and `offset` say what in it is wrong.
    `data` holds its bytes; `where` is its file, record and byte, if a dataset found
    them.
    """

    def __init__(
        self, message: str, record: int, feature: str | None = None, offset: int = 0
    ) -> None:
        super().__init__(message)
        self.record = record
        self.feature = feature
        self.offset = offset
        self.data = b""
        self.where: str | None = None


class AttachData:
    """A context that gives an `ExampleError` the bytes of its example.

    A class, as every batch enters it: a generator takes four times as long.
    """

    __slots__ = ("_records",)

    def __init__(self, records: Strings) -> None:
        self._records = records

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, ExampleError):
            error.data = self._records[error.record]


def raise_problem(
    problem: Problem, wanted: Sequence[Wanted], records: Strings, names: Names
) -> NoReturn:
    """Raise the `ExampleError` that says what a parser found wrong."""
    text, key = _described(problem, wanted, records), None
    if problem.feature is not None:
        key = wanted[problem.feature].key
    where = name_of(problem.row, names)
    raise ExampleError(f"{where}: {text}", problem.row, key, problem.offset)


def _described(problem: Problem, wanted: Sequence[Wanted], records: Strings) -> str:
    offset, expected, found = problem.offset, problem.expected, problem.found
    if problem.feature is None:
        return f"not a valid Example message: broken at byte {offset}."
    key, dtype = wanted[problem.feature].key, wanted[problem.feature].dtype
    if problem.flaw == Flaw.MALFORMED:
        return (
            f"not a valid Example message: broken at byte {offset}, in feature {key!r}."
        )
    if problem.flaw == Flaw.MISSING:
        return (
            f"feature {key!r} ({dtype}) is missing, and its FixedLenFeature has no "
            f"default_value{_hint(key, records[problem.row])}"
        )
    where = f"feature {key!r} (byte {offset})"
    if problem.flaw == Flaw.WRONG_KIND:
        return f"{where}: expected {dtype}, found a {protos.NAMES[found]}."
    if problem.flaw == Flaw.NOT_MULTIPLE:
        return (
            f"{where}: found {found} values, which is no multiple of the {expected} "
            "that a step has."
        )
    return f"{where}: expected {expected} values, found {found}."


def _hint(key: str, record: bytes) -> str:
    """The key that was meant, or those that the example has."""
    try:
        keys = protos.decode_example(record)
    except InputError:
        return "."
    return did_you_mean(key, keys) if keys else "; the example has no feature at all."


def name_of(row: int, names: Names) -> str:
    """How messages call an example of the batch."""
    if names is None:
        return f"example {row} of the batch"
    given = names(row) if callable(names) else names[row]
    shown = given.decode("utf-8", "replace") if isinstance(given, bytes) else given
    return f"example {shown}"
