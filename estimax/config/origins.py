"""Where a value of a run came from, and everything that is wrong with the run.

    problems = Problems("run.yaml")
    problems.add(Origin("run.yaml", 4, 3), "train.max_step", "unknown key")
    problems.raise_if_any()

Problems are collected, not thrown at first sight: a file with five mistakes is mended
in one go. After a hundred of them the rest is not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

from estimax.config.limits import MAX_PROBLEMS
from estimax.core.errors import ConfigError


@dataclass(frozen=True)
class Origin:
    """A place that can be shown: a file position, an option, or a default.

    >>> str(Origin("run.yaml", 4, 3))
    'run.yaml:4:3'
    >>> str(Origin("--set seed=1"))
    '--set seed=1'
    """

    source: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        if self.line is None:
            return self.source
        return f"{self.source}:{self.line}:{self.column}"


DEFAULT = Origin("default")


def shown(value: object, most: int = 60) -> str:
    """Return the `repr` of a value for a message, cut to `most` characters.

    >>> shown("abc"), shown("x" * 100, most=10)
    ("'abc'", "'xxxxxxxx…")
    """
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where it is written, its address, and the words."""

    origin: Origin
    path: str
    text: str

    def __str__(self) -> str:
        path = self.path if len(self.path) <= 200 else f"{self.path[:199]}…"
        address = f"{path}: " if path else ""
        return f"{self.origin}: {address}{self.text}"


class RunFileError(ConfigError):
    """All that is wrong with a run file, one line each.

    >>> error = RunFileError("a.yaml", [Problem(Origin("a.yaml", 1, 1), "x", "bad")])
    >>> print(error)
    1 error in a.yaml
      a.yaml:1:1: x: bad
    """

    def __init__(self, file: str, problems: list[Problem]) -> None:
        self.file = file
        self.problems = tuple(problems)
        count = f"{len(problems)} error{'s' if len(problems) > 1 else ''} in {file}"
        if len(problems) >= MAX_PROBLEMS:
            count += " (there may be more: the rest was not checked)"
        super().__init__("\n  ".join([count, *map(str, problems)]))


class Problems:
    """A growing list of problems in one run file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: dict[Problem, None] = {}  # in the order of their discovery

    def add(self, origin: Origin, path: str, text: str) -> None:
        """Note a problem; the same one is noted once.

        Raises:
          RunFileError: This was the hundredth. Finding suggestions for tens of
            thousands of problems would take minutes, and nobody reads them.
        """
        self._found[Problem(origin, path, text)] = None
        if len(self._found) >= MAX_PROBLEMS:
            self.raise_if_any()

    def under(self, path: str) -> bool:
        """Whether something at or below this address is already known to be wrong."""
        return any(p.path == path or p.path.startswith(f"{path}.") for p in self._found)

    def raise_if_any(self) -> None:
        """Raise everything found, in the order in which it is written."""
        if self._found:
            raise RunFileError(self.file, sorted(self._found, key=self._reading_order))

    def _reading_order(self, problem: Problem) -> tuple[bool, bool, str, int, int]:
        origin = problem.origin
        # The file itself first, then its includes, then the command line.
        return (
            origin.line is None,
            origin.source != self.file,
            origin.source,
            origin.line or 0,
            origin.column or 0,
        )
