"""The task of many numbers: a table of numeric columns, whose first step is awaited."""

from __future__ import annotations

import json
import sys
import time

import numpy as np

HIDDEN_UNITS = [32]
ROWS, BATCH_SIZE, STEPS = 4_096, 128, 200


def columns() -> int:
    """Return how many columns there are: the argument of the script."""
    return int(sys.argv[1])


def examples() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Columns x0… of numbers; labels 0 or 1."""
    rng = np.random.default_rng(7)
    names = [f"x{i}" for i in range(columns())]
    features = {name: rng.random(ROWS, np.float32) for name in names}
    return features, rng.integers(0, 2, ROWS)


class Clock:
    """Tells the CPU seconds from `start` to the first step, and those of a step."""

    def __init__(self) -> None:
        self.began = time.process_time()
        self.first = 0.0

    def step_is_done(self) -> None:
        """Remember when the first step was done."""
        self.first = self.first or time.process_time()

    def tell(self, steps: int) -> None:
        """Print both, `steps` steps after the first."""
        each = (time.process_time() - self.first) / max(steps, 1)
        told = {"cpu_seconds": self.first - self.began, "cpu_ms_a_step": each * 1e3}
        print(json.dumps(told), flush=True)
