"""The row-wise map task: rows are parsed or computed one by one, then batched.

Three inputs: lines of four CSV fields, records of 17 features, rows of eight numbers;
each mapped before `batch` (the literal tf.data idiom) or after it. Imports NumPy only:
TensorFlow's environment uses it as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pacing import JsonSetup, Pacer

FIELDS = ("age", "score", "city", "label")
DEFAULTS: list[list[Any]] = [[0], [0.0], [""], [0.0]]
FLOATS = [f"x{i}" for i in range(8)]
INTS = [f"c{i}" for i in range(4)]
TEXTS = [f"s{i}" for i in range(5)]
WIDTH = 8


@dataclass(frozen=True)
class Setup(JsonSetup):
    """The input, and when it is batched."""

    kind: str = "csv"  # csv, records or arithmetic
    batched_first: bool = False
    path: str = ""
    rows: int = 100_000
    batch_size: int = 128
    warmup: int = 50
    seed: int = 7


def lines(setup: Setup) -> list[str]:
    """The lines of the CSV file."""
    rng = np.random.default_rng(setup.seed)
    scores, cities = rng.normal(size=setup.rows), rng.integers(0, 50, setup.rows)
    return [
        f"{i % 90},{score:.4f},city{city},{i % 2}"
        for i, (score, city) in enumerate(zip(scores, cities, strict=True))
    ]


def columns(setup: Setup) -> dict[str, Any]:
    """The columns of the records."""
    rng = np.random.default_rng(setup.seed)
    made: dict[str, Any] = {}
    for name in FLOATS:
        made[name] = rng.normal(size=setup.rows).astype(np.float32)
    for name in INTS:
        made[name] = rng.integers(0, 100, setup.rows)
    for name in TEXTS:
        made[name] = np.char.mod("word%d", rng.integers(0, 37, setup.rows))
    return made


def numbers(setup: Setup) -> Any:
    """The rows of the arithmetic input."""
    rng = np.random.default_rng(setup.seed)
    return rng.normal(size=(setup.rows, WIDTH)).astype(np.float32)


def race(setup: Setup, batches: Any, digest: Any, versions: dict[str, str]) -> None:
    """Take batches at the pacer's pace; `digest` tells what the first one holds."""
    batches = iter(batches)
    pacer = Pacer(setup.warmup, data=digest(next(batches)), versions=versions)
    for step, _ in enumerate(batches, 1):
        if step == pacer.stop_at and not pacer.visit(step):
            break
