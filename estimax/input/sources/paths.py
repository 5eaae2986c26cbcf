"""Find the files that a path, a pattern or a list of these means.

    expand("data/train-*.csv")                # sorted by path
    expand("s3://bucket/day=*/*.parquet")     # listed through pyarrow or fsspec
    expand(["b.csv", "a.csv"])                # in the order of the list
    list_paths(["b-*", "a-*"])                # all matches, sorted: as in tf.data
    given_paths("a[1].csv")                   # paths alone, no patterns

A pattern without a match, a folder, and a broken link are errors.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from estimax.core.errors import InputError
from estimax.storage import files, url_patterns

PathLike = str | os.PathLike[str]


def expand(given: PathLike | Iterable[PathLike]) -> tuple[str, ...]:
    """Return the files of paths and patterns; the matches of a pattern are sorted.

    A path that exists is not treated as a pattern, even if it contains `*` or `[`.

    Raises:
      InputError: Nothing matches, or a path is a folder or a broken link.
    """
    # A single path or pattern always has a match: `_matches` raises otherwise.
    paths = [path for item in _as_list(given) for path in _matches(item)]
    if not paths:
        raise InputError("no input files: the list of files is empty.")
    return tuple(paths)


def list_paths(patterns: PathLike | Iterable[PathLike]) -> list[str]:
    """Return all files that match any of the patterns, sorted, with duplicates.

    Raises:
      InputError: Nothing matches, or a match is a broken link.
    """
    given = _as_list(patterns)
    paths = [path for item in given for path in _glob(item)]
    if not paths:
        shown = ", ".join(map(repr, given))
        raise InputError(
            f"list_files: no file matches any of [{shown}] (from {Path.cwd()})."
        )
    return sorted(paths)


def given_paths(given: Any) -> tuple[str, ...]:
    """Return one path or several as text, without treating them as patterns."""
    if isinstance(given, str | bytes | os.PathLike):
        return (os.fsdecode(given),)
    paths = tuple(os.fsdecode(path) for path in given)
    if not paths:
        raise InputError("no input files: the list of files is empty.")
    return paths


def _as_list(given: PathLike | Iterable[PathLike]) -> list[str]:
    """Return one path or several as a list of text."""
    several = [given] if isinstance(given, str | os.PathLike) else given
    return [os.fspath(path) for path in several]


def _matches(pattern: str) -> list[str]:
    """Return a path that exists, or the sorted matches of a pattern."""
    if files.is_remote(pattern):
        return url_patterns.expand(pattern)
    if os.path.isfile(pattern):
        return [pattern]
    if os.path.isdir(pattern):
        raise InputError(
            f"{pattern}: expected a file, found a folder. Pass a pattern for its "
            f"files, such as {os.path.join(pattern, '*')!r}."
        )
    if os.path.lexists(pattern):
        _check_link(pattern)
        return [pattern]  # a named pipe or a device, which fails when it is opened
    if glob.has_magic(pattern):
        found = sorted(_glob(pattern))
        if found:
            return found
        raise InputError(f"no file matches {pattern!r} (from {Path.cwd()}).")
    raise InputError(f"{pattern}: there is no such file (from {Path.cwd()}).")


def _glob(pattern: str) -> list[str]:
    """Return all matches that are not folders, also those that cannot be read."""
    if files.is_remote(pattern):
        return url_patterns.expand(pattern)
    found = [path for path in glob.glob(pattern) if not os.path.isdir(path)]
    for path in found:
        _check_link(path)
    return found


def _check_link(path: str) -> None:
    """Raise `InputError` if a path is a link whose target does not exist."""
    if not os.path.exists(path):
        raise InputError(
            f"{path}: broken link: {os.path.realpath(path)} does not exist. Restore "
            "that file or remove the link."
        )
