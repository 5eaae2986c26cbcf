"""What surrounds a `train` call: lock, note of its end, NaN report.

- `training_in` keeps other trainers out of the model_dir.
- `mark_ended` and `ended_at` tell a call that ended normally from one that was killed.
- `explaining_nan` adds the first value that was not finite to a NanLossError.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from estimax import checkpoints
from estimax.core.errors import NanLossError
from estimax.estimator.run_config import RunConfig
from estimax.storage import atomic, locks
from estimax.training import NonFinite

LAST_CALL_FILE = "last_train_call.json"
# Most seconds to search for the reason of a NaN after a run has failed.
REPLAY_SECS = 30.0

_DEPTH = 2  # of export/<name>/, where exporters write
_log = logging.getLogger("estimax")


@contextmanager
def training_in(config: RunConfig, purpose: str) -> Iterator[None]:
    """Hold the lock of the model_dir, and remove what a killed trainer left there.

    In a cluster only the chief writes to the model_dir; other processes take no lock.

    Raises:
      InUseError: Another process or thread holds the lock.
      MissingFileError: The folder was deleted within the block.
    """
    if not config.is_chief:
        yield
        return
    model_dir = str(config.model_dir)
    with locks.hold(model_dir, purpose):
        # Only trainers write checkpoints, and the lock keeps others out. An incomplete
        # checkpoint here was therefore left by a process that no longer runs.
        atomic.remove_leftovers(
            model_dir, depth=_DEPTH, sole_writer_of=checkpoints.is_checkpoint_name
        )
        yield


def mark_ended(model_dir: atomic.Pathish, step: int) -> None:
    """Write to the model_dir that a `train` call ended normally at a step.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mark_ended(folder, 100)
    ...     ended_at(folder)
    100
    """
    atomic.write_json(Path(model_dir) / LAST_CALL_FILE, {"ended_at_step": step})


def ended_at(model_dir: atomic.Pathish) -> int | None:
    """Return the step of the last `mark_ended`; None if there was none."""
    try:
        content = json.loads((Path(model_dir) / LAST_CALL_FILE).read_text())
        return int(content["ended_at_step"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


@contextmanager
def explaining_nan(find: Callable[[], NonFinite | None]) -> Iterator[None]:
    """Add the result of `find` to a NanLossError that leaves the block."""
    try:
        yield
    except NanLossError as error:
        found = _search_reason(find)
        if found is None:
            raise
        raise NanLossError(
            f"{error}\nTraining again from the latest checkpoint, step by step, "
            f"showed what went wrong first:\n{found}."
        ) from error


def _search_reason(find: Callable[[], NonFinite | None]) -> NonFinite | None:
    try:
        return find()
    except Exception as problem:
        # The NaN is the error to report. A failed search for its reason must not
        # replace it, so it is only logged.
        _log.warning("the reason for the NaN could not be searched for: %s", problem)
        return None
