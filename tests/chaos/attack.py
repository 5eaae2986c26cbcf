"""The base classes of attacks: prepare undamaged files, damage them, judge the result.

An attack is prepared once in a child process and then tried many times. Every try has a
random generator of its own, so that it can be repeated alone from seed and number.
"""

from __future__ import annotations

import enum
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from estimax.core.errors import EstimaxError

GIGABYTE = 1 << 30
Note = Callable[[str], None]


class Outcome(enum.Enum):
    """The outcome of one try."""

    REFUSED = "refused"  # an error of estimax, or the documented builtin
    HARMLESS = "harmless"  # the same result as without damage
    FELL_BACK = "fell back"  # the result of the earlier checkpoint
    CHANGED = "changed"  # another result, where the format has no checksum
    FAILED = "FAILED"


class AttackFailedError(Exception):
    """A try found a defect. Raised by attacks, reported by the child process."""


class AttackSkippedError(Exception):
    """This machine cannot run the attack; the message says why."""


class Attack:
    """The base class of all attacks.

    Attributes:
      tries: The number of tries in one round.
      patience: Seconds after which a try counts as hanging.
      memory: Bytes by which the resident memory may grow in one try; None to allow any.
      isolated: Whether the child process gets its own mount namespace.
    """

    tries = 100
    patience = 120.0
    memory: int | None = GIGABYTE
    isolated = False

    def prepare(self, folder: Path) -> None:
        """Create the files that the tries need in `folder`, which is empty."""

    def attempt(self, draw: random.Random, note: Note) -> Outcome:
        """Try once. Call `note` with a description of the damage before the attack."""
        raise NotImplementedError


class FileAttack(Attack):
    """Damages a copy of a folder, reads it, and compares with the undamaged result.

    Subclasses define `make`, `damage` and `read`, and may define `judge`.

    Attributes:
      errors: What `read` may raise.
    """

    errors: tuple[type[Exception], ...] = (EstimaxError,)

    def prepare(self, folder: Path) -> None:
        self.whole = folder / "whole"
        self.whole.mkdir()
        self.make(self.whole)
        # Read a copy at the path of the damaged copies: results may contain the path.
        self.copy = folder / "copy"
        shutil.copytree(self.whole, self.copy, symlinks=True)
        self.expected = self.read(self.copy)

    def attempt(self, draw: random.Random, note: Note) -> Outcome:
        shutil.rmtree(self.copy)
        shutil.copytree(self.whole, self.copy, symlinks=True)
        note(self.damage(self.copy, draw))
        try:
            found = self.read(self.copy)
        except self.errors as error:
            self.check_error(error)
            return Outcome.REFUSED
        return self.judge(found)

    def make(self, folder: Path) -> None:
        """Write the undamaged files."""
        raise NotImplementedError

    def damage(self, folder: Path, draw: random.Random) -> str:
        """Damage files of `folder`; return what was done, for the report."""
        raise NotImplementedError

    def read(self, folder: Path) -> Any:
        """Return the content of the files, as values that compare with ==."""
        raise NotImplementedError

    def judge(self, found: Any) -> Outcome:
        """Compare a result with the undamaged one."""
        if found != self.expected:
            raise AttackFailedError(f"the result silently differs: {shortened(found)}")
        return Outcome.HARMLESS

    def check_error(self, error: Exception) -> None:
        """Check that an error names the file that it is about."""
        if str(self.copy) not in str(error):
            raise AttackFailedError(
                f"the error names no file of {self.copy}: "
                f"{type(error).__name__}: {shortened(error)}"
            )


def shortened(value: Any, most: int = 600) -> str:
    """Return a value as text of at most `most` characters."""
    text = str(value)
    return text if len(text) <= most else f"{text[:most]} …"
