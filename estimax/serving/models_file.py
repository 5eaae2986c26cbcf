"""A file of models, read again when it changes.

    file = ModelsFile("models.yaml", retry_seconds=60)
    file.read()                 # at the start
    file.changed()              # None, or the models to serve from now on
    file.applied()              # they are served

A file whose models cannot be served is tried again after some time, although it has not
changed: the folder of a version may appear after the file that names it.
"""

from __future__ import annotations

import time
from pathlib import Path

from estimax.serving.config import ModelConfig, read_model_configs

_Stamp = tuple[int, int] | None


class ModelsFile:
    """A file of models.

    Args:
      path: The file. None: there is none, and no method may be called.
      retry_seconds: The time until a file that could not be applied is tried again.
    """

    def __init__(self, path: str | None, retry_seconds: float) -> None:
        self._path = Path(path or "")
        self._retry_seconds = retry_seconds
        self._applied: _Stamp = None
        self._tried: _Stamp = None
        self._retry_at = 0.0

    def read(self) -> tuple[ModelConfig, ...]:
        """Read the file at the start; raise ConfigError if it is invalid."""
        self._tried = self._applied = self._stamp()
        return read_model_configs(self._path)

    def changed(self) -> tuple[ModelConfig, ...] | None:
        """Return the models if the file is not the one that was applied last.

        Raises:
          ConfigError: The file is invalid.
        """
        stamp, now = self._stamp(), time.monotonic()
        if stamp in (None, self._applied):
            return None
        if stamp == self._tried and now < self._retry_at:
            return None
        self._tried, self._retry_at = stamp, now + self._retry_seconds
        return read_model_configs(self._path)

    def applied(self) -> None:
        """Note that the models of the file are served now."""
        self._applied = self._tried

    def _stamp(self) -> _Stamp:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size
