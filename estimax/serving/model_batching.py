"""How the requests of one version are joined, which may have a file of its own.

batching_of(Path("/models/ctr/7"), BatchingConfig(), reads_file=True)
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from estimax.serving.config import BatchingConfig, read_batching_config

_FILE: Final = "batching_params.pbtxt"  # as in TensorFlow Serving


def batching_of(
    path: Path, batching: BatchingConfig, *, reads_file: bool
) -> BatchingConfig:
    """Return how requests of a version are joined.

    Args:
      path: The folder of the version.
      batching: The settings of the server.
      reads_file: Whether `batching_params.pbtxt` in the folder, or in its
        `assets.extra`, replaces them. The threads stay those of the server, which all
        models share.

    Raises:
      ConfigError: The file cannot be read, or a value is out of range.
    """
    if reads_file:
        for file in (path / _FILE, path / "assets.extra" / _FILE):
            if file.is_file():
                return replace(read_batching_config(file), threads=batching.threads)
    return batching
