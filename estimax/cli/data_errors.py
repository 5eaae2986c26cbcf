"""Say where the data does not fit a run, when training or evaluating it has failed.

    with locate_errors(run, ["train", "test"]):
        estimator.train(...)

Errors of the input and of the head know the batch, not the file, and give advice for
Python. After such an error the files are read once more, as `estimax check --data`
does, to name file, line and the key of the run file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from estimax.cli.console import note
from estimax.config import Run
from estimax.config.data_report import report
from estimax.config.tables import find_files
from estimax.core.errors import (
    FeatureError,
    InputError,
    LabelError,
    TooManyErrorsError,
)


@contextmanager
def locate_errors(run: Run, sources: Sequence[str]) -> Iterator[None]:
    """Raise an `InputError` that names the lines instead of an error about the data.

    If no file of the sources has a problem, the original error is raised.
    """
    try:
        yield
    except TooManyErrorsError as error:
        raise InputError(f"{_limit_key(run, sources, error.last)}: {error}") from error
    except (InputError, LabelError, FeatureError) as error:
        note("looking for the rows that do not fit …")
        found = problems(run, dict.fromkeys(sources))
        if not found:
            raise
        raise misfit(found) from error


def _limit_key(run: Run, sources: Iterable[str], last: str) -> str:
    """Return the key of the limit that a source exceeded whose last error is given."""
    limited = {
        name: source
        for name in sources
        if (source := run.data.sources[name]).on_bad_row == "skip"
    }
    # Errors of a file begin with its path.
    found = [
        name
        for name, source in limited.items()
        if any(last.startswith(path) for path in find_files(source, name))
    ]
    name = next(iter([*found, *limited]))
    fraction = run.data.sources[name].max_bad_rows is None
    return f"data.sources.{name}.max_bad_{'fraction' if fraction else 'rows'}"


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
