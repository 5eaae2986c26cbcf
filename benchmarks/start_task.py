"""The starting task: a small wide-and-deep model, whose first step is awaited."""

from __future__ import annotations

import json
import time

import numpy as np

WORDS, NUMBERS = 6, 4
BUCKETS, WIDTH = 1000, 8
HIDDEN_UNITS = [64, 32]
ROWS, BATCH_SIZE, STEPS = 20_000, 256, 300


def examples() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Columns c0… of short strings and x0… of numbers; labels 0 or 1."""
    rng = np.random.default_rng(7)
    words = np.array([b"v%d" % i for i in range(500)])
    features = {f"c{i}": words[rng.integers(0, 500, ROWS)] for i in range(WORDS)}
    features |= {f"x{i}": rng.random(ROWS, np.float32) for i in range(NUMBERS)}
    return features, rng.integers(0, 2, ROWS)


def tell_first_step() -> None:
    """Print when the first step was done; the parent process has the same clock."""
    told = {"at": time.monotonic(), "cpu_seconds": time.process_time()}
    print(json.dumps(told), flush=True)
