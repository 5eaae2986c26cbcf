"""A sample of the requests and their answers, as JSON lines in rotating files.

    log = RequestLog("requests.jsonl", rate=0.01)
    log.record(answer, columns)

A line has the time, the model, its version and signature, and `inputs`, which can be
sent again as the body of a request, with the `outputs` that were answered.
"""

from __future__ import annotations

import logging
import logging.handlers
import random
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from estimax.core.errors import ConfigError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.serving import json_values
from estimax.serving.inference import Answer


class RequestLog:
    """Writes some of the requests that were answered.

    Args:
      path: The file. Older ones have a number after the name.
      rate: The part of the requests that is written, from 0 to 1.
      max_bytes: A new file is begun when the file is this large.
      files: How many older files are kept.
    """

    def __init__(
        self,
        path: str,
        rate: float,
        *,
        max_bytes: int = 100 * 1024 * 1024,
        files: int = 5,
    ) -> None:
        if not 0 <= rate <= 1:
            raise ConfigError(f"request log: expected a rate in [0, 1], found {rate}.")
        self._rate = rate
        try:
            self._handler = logging.handlers.RotatingFileHandler(
                path, maxBytes=max_bytes, backupCount=files, encoding="utf-8"
            )
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}.") from None

    def record(self, answer: Answer, columns: Mapping[str, Any]) -> None:
        """Write a request, or not, at random."""
        if random.random() >= self._rate:
            return
        about = {
            "time": time.time(),
            "model": answer.model,
            "version": answer.version,
            "signature_name": answer.signature,
            "inputs": {name: _plain(value) for name, value in columns.items()},
            "outputs": {name: _plain(value) for name, value in answer.outputs.items()},
        }
        text = json_values.dumps(about, is_finite=False).decode()
        self._handler.handle(
            logging.LogRecord("requests", logging.INFO, "", 0, text, None, None)
        )

    def close(self) -> None:
        """Close the file."""
        self._handler.close()


def _plain(value: Any) -> Any:
    if isinstance(value, Sparse):
        return _rows(value)
    if isinstance(value, Strings):
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and value.dtype == object:
        return json_values.texts_json(value, is_bytes=False)
    return value


def _rows(value: Sparse) -> Any:
    """Return the values of every row of a sparse feature."""
    return [_plain(value.rows(i, i + 1).values) for i in range(len(value))]
