"""A file that says: training has ended here, and on purpose.

    mark_finished(model_dir, step=1200, reason="no decrease of 'loss' for 500 steps")
    finished(model_dir)                     # Finished(step=1200, reason=…), or None

An evaluator in another process, which waits for new checkpoints, reads it to learn that
there will be none. A run that begins again takes it away.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from estimax.wire import atomic

FILE = "training_finished.json"


@dataclass(frozen=True)
class Finished:
    """At which step training ended, and why."""

    step: int
    reason: str


def mark_finished(model_dir: atomic.Pathish, step: int, reason: str) -> None:
    """Say that training has ended.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mark_finished(folder, 100, "enough")
    ...     finished(folder)
    Finished(step=100, reason='enough')
    """
    atomic.write_json(Path(model_dir) / FILE, asdict(Finished(step, reason)))


def finished(model_dir: atomic.Pathish) -> Finished | None:
    """What was said of the end of training, if it was said."""
    try:
        content = json.loads((Path(model_dir) / FILE).read_text())
    except FileNotFoundError:
        return None
    return Finished(int(content["step"]), str(content["reason"]))


def forget_finished(model_dir: atomic.Pathish) -> None:
    """Take it back: training goes on."""
    (Path(model_dir) / FILE).unlink(missing_ok=True)
