"""Say where the data does not fit a run, when training or evaluating it has failed.

    with located(run, ["train", "test"]):
        estimator.train(...)

Errors of the input and of the head know the batch, not the file, and give advice for
Python. After such an error the files are read once more, as `estimax check --data`
does, to name file, line and the key of the run file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from estimax.cli.screen import note
from estimax.config import Run
from estimax.config.data_report import report
from estimax.core.errors import FeatureError, InputError, LabelError


@contextmanager
def located(run: Run, sources: Sequence[str]) -> Iterator[None]:
    """Raise an `InputError` that names the lines instead of an error about the data.

    If no file of the sources has a problem, the original error is raised.
    """
    try:
        yield
    except (InputError, LabelError, FeatureError) as error:
        note("looking for the rows that do not fit …")
        found = problems(run, dict.fromkeys(sources))
        if not found:
            raise
        raise misfit(found) from error


def problems(run: Run, sources: Iterable[str]) -> list[str]:
    """Return what is wrong with the files of the sources."""
    found: list[str] = []
    for name in sources:
        try:
            found += report(run, name).problems
        except InputError as error:
            found.append(str(error))
    return found


def misfit(found: Sequence[str]) -> InputError:
    """Return an error that lists the problems of the data."""
    return InputError("\n  ".join(["the files do not fit the run:", *found]))
