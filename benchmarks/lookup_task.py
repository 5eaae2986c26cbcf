"""The lookup task: ids, one large table, one output; what is timed is the table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pacing import JsonSetup


@dataclass(frozen=True)
class Setup(JsonSetup):
    """Sizes of the task: the mean of the rows of `ids` ids feeds one dense layer."""

    vocabulary: int = 1_000_000
    dimension: int = 16
    ids: int = 1  # in each example
    batch_size: int = 1024
    batches: int = 64  # distinct ones, repeated for ever
    learning_rate: float = 0.05
    warmup: int = 100
    seed: int = 7


def examples(setup: Setup) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """All examples: "item" int64 [N] or [N, ids], uniform; labels float32 [N]."""
    rng = np.random.default_rng(setup.seed)
    count = setup.batch_size * setup.batches
    shape = (count,) if setup.ids == 1 else (count, setup.ids)
    features = {"item": rng.integers(0, setup.vocabulary, shape)}
    return features, rng.integers(0, 2, count).astype(np.float32)
