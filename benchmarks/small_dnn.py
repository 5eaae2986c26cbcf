"""The small task: 32 numbers, two little layers; what is timed is the loop around."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pacing import JsonSetup


@dataclass(frozen=True)
class Setup(JsonSetup):
    """Sizes of the task; the inputs come in so many `columns` of equal width."""

    inputs: int = 32
    columns: int = 1
    hidden_units: tuple[int, ...] = (64, 32)
    batch_size: int = 128
    batches: int = 256  # distinct ones, repeated for ever
    learning_rate: float = 0.05
    warmup: int = 300
    seed: int = 7

    @property
    def width(self) -> int:
        """The width of a column."""
        return self.inputs // self.columns


def examples(setup: Setup) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """All examples: x0… float32 [N, width]; labels int64 [N]."""
    rng = np.random.default_rng(setup.seed)
    count = setup.batch_size * setup.batches
    features = {
        f"x{i}": rng.random((count, setup.width)).astype(np.float32)
        for i in range(setup.columns)
    }
    labels = (features["x0"][:, 0] > rng.random(count)).astype(np.int64)
    return features, labels
