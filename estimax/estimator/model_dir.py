"""The folder of a model, as the one process that trains in it treats it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from estimax import checkpoints
from estimax.estimator.run_config import RunConfig
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
