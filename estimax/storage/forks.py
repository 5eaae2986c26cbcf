"""Notice that JAX is used in a forked process, where it would wait for ever.

    forks.check("train")          # raises ForkedError in such a process

JAX computes in threads, and a fork copies none of them: the child waits for threads
that do not exist. A fork before JAX's first use is harmless.
"""

from __future__ import annotations

import os
import sys

from estimax.core.errors import ForkedError

_parent: int | None = None  # the process that used JAX and was forked


def check(what: str) -> None:
    """Raise ForkedError if this process was forked from one that had used JAX.

    Args:
      what: What was called, for the message.
    """
    if _parent is not None:
        raise ForkedError(
            f"{what}: this process was forked from process {_parent}, which had used "
            "JAX before. JAX's threads do not survive a fork, so it would wait for "
            "ever. Start the process with multiprocessing.get_context('spawn'), or "
            "fork before JAX is used."
        )


def _note_fork() -> None:
    global _parent
    # Not imported: a process that has not imported JAX has not used it.
    bridge = sys.modules.get("jax._src.xla_bridge")
    if getattr(bridge, "_backends", None):
        _parent = os.getppid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
