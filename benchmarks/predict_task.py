"""The prediction task: rows of ten words and ten numbers for an exported model.

Embeddings of 8 for hashed words, layers of 64 and 32. Imports NumPy only: TensorFlow's
environment uses it as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pacing import JsonSetup, Pacer

WORDS = [f"word{i}" for i in range(10)]
NUMBERS = [f"number{i}" for i in range(10)]
BUCKETS, WIDTH, HIDDEN = 1000, 8, [64, 32]


@dataclass(frozen=True)
class Setup(JsonSetup):
    """How many rows a request has."""

    rows: int = 1024
    warmup: int = 50
    seed: int = 7


def request(rows: int, seed: int) -> dict[str, Any]:
    """Columns of float32 and of str, as a data frame has them."""
    rng = np.random.default_rng(seed)
    numbers = {name: rng.normal(size=rows).astype(np.float32) for name in NUMBERS}
    words = {
        name: np.array([f"word {n}" for n in rng.integers(0, 5000, rows)], object)
        for name in WORDS
    }
    return numbers | words


def race(
    setup: Setup, predict: Callable[[dict[str, Any]], Any], versions: dict[str, str]
) -> None:
    """Answer one request after the other, at the pacer's pace."""
    asked = request(setup.rows, setup.seed)
    given = hashlib.sha1(repr([c.tolist() for c in asked.values()]).encode())
    pacer = Pacer(setup.warmup, data=given.hexdigest(), versions=versions)
    step = 0
    while True:
        predict(asked)
        step += 1
        if step == pacer.stop_at and not pacer.visit(step):
            break
