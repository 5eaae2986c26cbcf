"""The parsing task: a TFRecord file of Criteo-shaped examples, read in batches.

A label, 13 floats and 26 short strings in every example. With `buckets` the strings are
also hashed to ids. Imports NumPy only: TensorFlow's environment uses it as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pacing import JsonSetup, Pacer

FLOATS = [f"I{i}" for i in range(1, 14)]
TEXTS = [f"C{i}" for i in range(1, 27)]


@dataclass(frozen=True)
class Setup(JsonSetup):
    """The file, and what is done with it."""

    path: str = ""
    rows: int = 200_000
    batch_size: int = 1024
    buckets: int = 0  # 0: parse only
    threads: int = 2
    warmup: int = 50
    seed: int = 7


def columns(setup: Setup) -> dict[str, np.ndarray]:
    """All examples as columns; the strings are 8 hexadecimal digits, some frequent."""
    rng = np.random.default_rng(setup.seed)
    made: dict[str, np.ndarray] = {"label": rng.integers(0, 2, setup.rows)}
    for name in FLOATS:
        made[name] = rng.lognormal(size=setup.rows).astype(np.float32)
    for name in TEXTS:
        ids = rng.zipf(1.2, setup.rows).astype(np.uint64) * np.uint64(0x9E3779B1)
        words, places = np.unique(ids & np.uint64(0xFFFFFFFF), return_inverse=True)
        made[name] = np.char.mod("%08x", words)[places]
    return made


def digest(label: Any, floats: list[Any], texts: list[Any]) -> str:
    """What a batch holds, so that racers can be seen to do the same work."""
    total = sum(float(np.sum(np.asarray(f, np.float64))) for f in floats)
    return f"{int(np.sum(label))} {total:.6f} {sum(int(np.sum(t)) for t in texts)}"


def race(setup: Setup, batches: Any, about: Any, versions: dict[str, str]) -> None:
    """Take batches at the pacer's pace; `about` is the digest of the first."""
    batches = iter(batches)
    pacer = Pacer(setup.warmup, data=about(next(batches)), versions=versions)
    for step, _ in enumerate(batches, 1):
        if step == pacer.stop_at and not pacer.visit(step):
            break
