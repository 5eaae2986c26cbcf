"""An error about NaN that says where the NaN came from."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from estimax.core.errors import NanLossError
from estimax.training import NonFinite

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
