"""Compile a bundle for every batch size, into jax's compilation cache, and exit.

    python -m estimax.serving.precompile PATH 1,2,4 8

The server starts it, with its own environment, before it loads a new version. The input
is a pipe of the server: the process ends when the server does.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from estimax import export
from estimax.serving.config import BatchingConfig
from estimax.serving.programs import Programs


def main(path: str, sizes: str, list_length: str) -> None:
    """Compile the bundle at `path`."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    batching = BatchingConfig(
        batch_sizes=tuple(map(int, sizes.split(","))), list_length=int(list_length)
    )
    Programs(export.load(Path(path)), batching).compile()


def _end_with_parent() -> None:
    sys.stdin.buffer.read()  # returns when the process at the other end has gone
    os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
