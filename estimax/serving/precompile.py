"""Compile a bundle for every batch size, into jax's compilation cache, and exit.

    python -m estimax.serving.precompile PATH 1,2,4 8

The server starts it, with its own environment, before it loads a new version.
"""

from __future__ import annotations

import sys
from pathlib import Path

from estimax import export
from estimax.serving.config import BatchingConfig
from estimax.serving.programs import Programs


def main(path: str, sizes: str, list_length: str) -> None:
    """Compile the bundle at `path`."""
    batching = BatchingConfig(
        batch_sizes=tuple(map(int, sizes.split(","))), list_length=int(list_length)
    )
    Programs(export.load(Path(path)), batching).compile()


if __name__ == "__main__":
    main(*sys.argv[1:])
