"""A file that tells whether the last `train` call in a folder ended normally.

    mark_ended(model_dir, step=1200)
    ended_at(model_dir)                 # 1200

A call that was killed, or ended by an error or a signal, leaves no new mark: the step
of its last checkpoint is then not the marked one. An interrupted call must resume on
the very same data; after a normal end other data is a choice.
"""

from __future__ import annotations

import json
from pathlib import Path

from estimax.wire import atomic

FILE = "last_train_call.json"


def mark_ended(model_dir: atomic.Pathish, step: int) -> None:
    """Note that a `train` call ended normally at a step.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mark_ended(folder, 100)
    ...     ended_at(folder)
    100
    """
    atomic.write_json(Path(model_dir) / FILE, {"ended_at_step": step})


def ended_at(model_dir: atomic.Pathish) -> int | None:
    """Return the step that was marked last; None if there is none."""
    try:
        content = json.loads((Path(model_dir) / FILE).read_text())
        return int(content["ended_at_step"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
