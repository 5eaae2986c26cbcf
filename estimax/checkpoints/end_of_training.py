"""A file in the model_dir that marks the end of training, with step and reason.

    mark_finished(model_dir, step=1200, reason="no decrease of 'loss' for 500 steps")
    finished(model_dir)                     # Finished(step=1200, reason=…), or None

An evaluator in another process waits for new checkpoints. It reads this file to know
that no more will follow. The next run removes the file when it begins.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from estimax.core.errors import CheckpointError
from estimax.storage import atomic, json_text

FINISHED_FILE = "training_finished.json"


@dataclass(frozen=True)
class Finished:
    """The step at which training ended, and the reason."""

    step: int
    reason: str


def mark_finished(model_dir: atomic.Pathish, step: int, reason: str) -> None:
    """Write the file that marks the end of training.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mark_finished(folder, 100, "enough")
    ...     finished(folder)
    Finished(step=100, reason='enough')
    """
    atomic.write_json(Path(model_dir) / FINISHED_FILE, asdict(Finished(step, reason)))


def finished(model_dir: atomic.Pathish) -> Finished | None:
    """Return step and reason of the end of training; None if it has not ended."""
    try:
        content = json_text.parse((Path(model_dir) / FINISHED_FILE).read_bytes())
        return Finished(json_text.whole(content, "step"), str(content["reason"]))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(
            f"{Path(model_dir) / FINISHED_FILE}: expected the step and reason of the "
            f"end of training, found other content ({error}). Remove the file."
        ) from error


def forget_finished(model_dir: atomic.Pathish) -> None:
    """Remove the mark, because training continues."""
    (Path(model_dir) / FINISHED_FILE).unlink(missing_ok=True)
