"""The file of models of a server, read again when it changes.

file = ModelsFile("models.config")
file.read()         # the models
file.changed()      # None, or the new models
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from estimax.core.errors import ConfigError
from estimax.serving.config import ModelConfig, read_model_configs

_log = logging.getLogger("estimax.serving")


class ModelsFile:
    """A file of models, read again when its time or size changes.

    Args:
      path: The file. None: there is none.
    """

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path)
        self._seen: Any = None

    def read(self) -> tuple[ModelConfig, ...]:
        """Read the file; raise ConfigError if it is invalid."""
        assert self._path is not None
        self._seen = self._stamp()
        return read_model_configs(self._path)

    def changed(self) -> tuple[ModelConfig, ...] | None:
        """Return the models if the file has changed and is valid."""
        if self._path is None or self._stamp() in (self._seen, None):
            return None
        try:
            return self.read()
        except ConfigError as error:
            _log.error("%s; the models stay as they are", error)
            return None

    def _stamp(self) -> tuple[int, int] | None:
        assert self._path is not None
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size
