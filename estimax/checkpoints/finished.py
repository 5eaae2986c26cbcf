"""A file that says: training has ended here, and on purpose.

    mark_finished(model_dir, step=1200, reason="no decrease of 'loss' for 500 steps")
    finished(model_dir)                     # Finished(step=1200, reason=…), or None

An evaluator in another process, which waits for new checkpoints, reads it to learn that
there will be none. A run that begins again takes it away.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from estimax.core.errors import CheckpointError
from estimax.wire import atomic, json_text

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
        content = json_text.parse((Path(model_dir) / FILE).read_bytes())
        return Finished(json_text.whole(content, "step"), str(content["reason"]))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(
            f"{Path(model_dir) / FILE}: expected the end of a training, found other "
            f"content ({error}). Remove the file."
        ) from error


def forget_finished(model_dir: atomic.Pathish) -> None:
    """Take it back: training goes on."""
    (Path(model_dir) / FILE).unlink(missing_ok=True)
