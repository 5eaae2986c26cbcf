"""The folder of a model, as the one process that trains in it treats it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import jax

from estimax import checkpoints
from estimax.core.errors import NanLossError
from estimax.estimator.run_config import RunConfig
from estimax.training import NonFinite
from estimax.wire import atomic, locks

_DEPTH = 2  # of export/<name>/, where exporters write


@contextmanager
def training_in(config: RunConfig, purpose: str) -> Iterator[None]:
    """Keep other trainers out of the model_dir, and clear what a killed one left.

    Of a cluster's processes only the chief writes there; others need no lock.

    Raises:
      InUseError: Somebody else is training there.
      MissingFileError: The folder was deleted within the block.
    """
    if not config.is_chief:
        yield
        return
    model_dir = str(config.model_dir)
    with locks.hold(model_dir, purpose):
        # Checkpoints are written by trainers only, and there is no other one.
        atomic.remove_leftovers(
            model_dir, depth=_DEPTH, sole_writer_of=checkpoints.is_checkpoint_name
        )
        yield


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


def keep_compiled_programs(folder: str | None) -> None:
    """Have jax keep every program it compiles in a folder, from now on.

    This setting belongs to the process: the last one named is used by all of it. Small
    programs are kept as well, which jax by default does not.
    """
    if folder is None or jax.config.values["jax_compilation_cache_dir"] == folder:
        return
    settings: dict[str, str | float] = {
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]


_log = logging.getLogger("estimax")

# How long a run that failed may look for the reason before it gives up.
REPLAY_SECS = 30.0


@contextmanager
def explaining_nan(find: Callable[[], NonFinite | None]) -> Iterator[None]:
    """Add what `find` finds to a NanLossError that leaves the block."""
    try:
        yield
    except NanLossError as error:
        found = _found(find)
        if found is None:
            raise
        raise NanLossError(
            f"{error}\nTraining again from the latest checkpoint, step by step, "
            f"showed what went wrong first:\n{found}."
        ) from error


def _found(find: Callable[[], NonFinite | None]) -> NonFinite | None:
    try:
        return find()
    except Exception as problem:
        # The user's error is the NaN; that it could not be explained comes second.
        _log.warning("the reason for the NaN could not be looked for: %s", problem)
        return None
