"""The task of many columns: embeddings of small vocabularies below a small network."""

from __future__ import annotations

import json
import sys
import time

import numpy as np

VOCABULARY, WIDTH = 50, 4
HIDDEN_UNITS = [64, 32]
ROWS, BATCH_SIZE, LEARNING_RATE = 16_384, 256, 0.05
MORE_STEPS = 32  # timed, behind the first and as many to warm up

# The imports of the script are over.
_imported = 0.0


def columns() -> list[str]:
    """Return the names of the columns, as many as the first argument says."""
    global _imported
    _imported = time.process_time()
    return [f"c{i:04d}" for i in range(int(sys.argv[1]))]


def examples(names: list[str]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return ids of each column, and labels 0 or 1."""
    rng = np.random.default_rng(7)
    features = {name: rng.integers(0, VOCABULARY, ROWS) for name in names}
    return features, rng.integers(0, 2, ROWS)


class Clock:
    """Prints the CPU time up to the first step, and that of a later step."""

    def __init__(self) -> None:
        self._first = 0.0
        self._warm = 0.0

    def step_done(self, step: int) -> None:
        """Take the time behind a step whose loss is known."""
        now = time.process_time()
        if step == 1:
            self._first = now
        elif step == 1 + MORE_STEPS:
            self._warm = now
        elif step == 1 + 2 * MORE_STEPS:
            told = {
                "cpu_seconds": self._first,
                "cpu_seconds_after_imports": self._first - _imported,
                "cpu_ms_per_step": (now - self._warm) / MORE_STEPS * 1e3,
            }
            print(json.dumps(told), flush=True)
