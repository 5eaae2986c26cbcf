"""Which files a pattern means.

expand("data/train-*.csv")                # sorted by path
expand(["b.csv", "a.csv"])                # as given: an explicit list is an order
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from estimax.core.errors import InputError

PathLike = str | os.PathLike[str]


def expand(files: PathLike | Iterable[PathLike]) -> tuple[str, ...]:
    """The files of a pattern or list; patterns are sorted, nothing found is an error.

    A path that exists is never read as a pattern, even if it holds `*` or `[`.
    """
    one = isinstance(files, str | os.PathLike)
    given = [files] if isinstance(files, str | os.PathLike) else list(files)
    paths = [path for item in given for path in _matches(os.fspath(item))]
    if not paths:
        what = "the pattern" if one else "the list of files"
        raise InputError(f"no input files: {what} is empty.")
    return tuple(paths)


def list_paths(patterns: PathLike | Iterable[PathLike]) -> list[str]:
    """What all patterns match together, sorted by path, duplicates kept."""
    one = isinstance(patterns, str | os.PathLike)
    given = [patterns] if isinstance(patterns, str | os.PathLike) else list(patterns)
    paths = [path for item in given for path in _glob(os.fspath(item))]
    if not paths:
        shown = ", ".join(repr(os.fspath(item)) for item in given)
        what = "no file matches" if one else "no file matches any of"
        raise InputError(f"list_files: {what} {shown} (from {Path.cwd()}).")
    return sorted(paths)


def given_paths(files: Any) -> tuple[str, ...]:
    """Paths as they were given: a path, a list of paths, or text of either kind."""
    if isinstance(files, str | bytes | os.PathLike):
        return (os.fsdecode(files),)
    paths = tuple(os.fsdecode(path) for path in files)
    if not paths:
        raise InputError("no input files: the list of files is empty.")
    return paths


def _matches(pattern: str) -> list[str]:
    if os.path.isfile(pattern):
        return [pattern]
    if os.path.isdir(pattern):
        raise InputError(
            f"{pattern}: expected a file, found a folder. Name its files with a "
            f"pattern, such as {os.path.join(pattern, '*')!r}."
        )
    if os.path.lexists(pattern):
        _check_link(pattern)
        return [pattern]  # a named pipe or the like: whoever opens it says so
    if glob.has_magic(pattern):
        found = sorted(_glob(pattern))
        if found:
            return found
        raise InputError(f"no file matches {pattern!r} (from {Path.cwd()}).")
    raise InputError(f"{pattern}: there is no such file (from {Path.cwd()}).")


def _glob(pattern: str) -> list[str]:
    """Everything that matches and is no folder; what cannot be read is not left out."""
    found = [path for path in glob.glob(pattern) if not os.path.isdir(path)]
    for path in found:
        _check_link(path)
    return found


def _check_link(path: str) -> None:
    if not os.path.exists(path):
        raise InputError(
            f"{path}: is a link to {os.path.realpath(path)}, which does not exist. "
            "Restore that file or remove the link."
        )
