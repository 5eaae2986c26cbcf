"""Compile a bundle for every batch size, into jax's compilation cache, and exit.

    python -m estimax.serving.precompile PATH '{"batch_sizes": [1, 8]}'

The server starts it, with its own environment, before it loads a new version. The input
is a pipe of the server: its first line has the shapes that requests to the version
before it had, and the process ends when the server does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from estimax import export
from estimax.serving.config import BatchingConfig
from estimax.serving.programs import Programs


def main(path: str, batching: str) -> None:
    """Compile the bundle at `path`."""
    shapes = sys.stdin.buffer.readline()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    given = json.loads(batching)
    config = BatchingConfig(**given | {"batch_sizes": tuple(given["batch_sizes"])})
    named = [{n: tuple(s) for n, s in one.items()} for one in json.loads(shapes)]
    Programs(export.load(Path(path)), config).compile(named)


def _end_with_parent() -> None:
    # Nothing more comes: it returns when the process at the other end has gone. Not of
    # `sys.stdin`, whose lock this thread would hold when the interpreter ends.
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
