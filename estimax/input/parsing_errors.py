"""Examples that cannot be parsed, in words: which one, what in it, and where it was.

with with_data(records):
    ...
    raise_problem(problem, wanted, records, names)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError, did_you_mean
from estimax.core.strings import Strings
from estimax.native import loading
from estimax.wire import protos

if TYPE_CHECKING:
    from estimax.input.parsing_plan import Wanted

# What messages call the examples of a batch: by their place, unless the user says.
Names = Sequence[Any] | Callable[[int], Any] | None

_LIST_NAMES = {1: "bytes_list", 2: "float_list", 3: "int64_list"}


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


@contextlib.contextmanager
def with_data(records: Strings) -> Iterator[None]:
    """Give errors the bytes of the example that they are about."""
    try:
        yield
    except ExampleError as error:
        error.data = records[error.record]
        raise


def raise_problem(
    problem: NDArray[np.int64],
    wanted: Sequence[Wanted],
    records: Strings,
    names: Names,
) -> NoReturn:
    """Say in words what a kernel found wrong."""
    kernels = loading.load("estimax.native.kernels.protos")
    what, row, f, offset, expected, found = problem.tolist()
    key = wanted[f].key if f >= 0 else None
    dtype = wanted[f].dtype if f >= 0 else ""
    if what == kernels.MALFORMED:
        where = f", in feature {key!r}" if key is not None else ""
        text = f"not a valid Example message: broken at byte {offset}{where}."
    elif what == kernels.WRONG_KIND:
        text = (
            f"feature {key!r} (byte {offset}): expected {dtype}, found a "
            f"{_LIST_NAMES.get(found, found)}."
        )
    elif what == kernels.MISSING:
        text = (
            f"feature {key!r} ({dtype}) is missing, and its FixedLenFeature has no "
            f"default_value{_hint(wanted[f].key, records[row])}"
        )
    elif what == kernels.NOT_MULTIPLE:
        text = (
            f"feature {key!r} (byte {offset}): found {found} values, which is no "
            f"multiple of the {expected} that a step has."
        )
    else:
        text = (
            f"feature {key!r} (byte {offset}): expected {expected} values, found "
            f"{found}."
        )
    raise ExampleError(f"{name_of(row, names)}: {text}", row, key, offset)


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
