"""The Criteo-shaped task: what every racer trains, and on which examples.

    setup = Setup.from_json(sys.argv[1])
    features, labels = examples(setup)          # NumPy columns, the same everywhere

Ids follow a power law (the k-th most frequent about 1/k as often as the first), with
the frequent ones scattered over the table as a hash scatters them; or, on demand, all
are equally frequent.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from pacing import JsonSetup

Columns = dict[str, np.ndarray]

# Coprime to every power of ten: multiplying by it permutes the ids of a vocabulary.
_SCATTER = 6_700_417


@dataclass(frozen=True)
class Setup(JsonSetup):
    """Sizes of the task."""

    vocabulary: int = 100_000
    dimension: int = 16
    categorical: int = 26
    numeric: int = 13
    hidden_units: tuple[int, ...] = (256, 128)
    batch_size: int = 1024
    batches: int = 64  # distinct ones, repeated for ever
    learning_rate: float = 0.05
    warmup: int = 20
    seed: int = 7
    ids: str = "power_law"  # or "uniform"

    @property
    def input_width(self) -> int:
        """The width of the first layer's input."""
        return self.categorical * self.dimension + self.numeric

    @property
    def state_bytes(self) -> int:
        """The size of the tables and their one Adagrad slot."""
        return 2 * 4 * self.categorical * self.vocabulary * self.dimension


def examples(setup: Setup) -> tuple[Columns, np.ndarray]:
    """All examples as columns: n0… float32 [N], c0… int64 [N]; labels int64 [N]."""
    rng = np.random.default_rng(setup.seed)
    count = setup.batch_size * setup.batches
    features: Columns = {}
    for i in range(setup.numeric):
        features[f"n{i}"] = rng.random(count).astype(np.float32)
    for i in range(setup.categorical):
        uniform = rng.random(count)
        if setup.ids == "uniform":
            features[f"c{i}"] = (uniform * setup.vocabulary).astype(np.int64)
        else:
            features[f"c{i}"] = power_law_ids(uniform, setup.vocabulary)
    labels = (rng.random(count) < 0.5 * features["n0"]).astype(np.int64)
    return features, labels


def power_law_ids(uniform: np.ndarray, vocabulary: int) -> np.ndarray:
    """Turn numbers of [0, 1) into int64 ids of [0, vocabulary)."""
    rank = np.minimum(vocabulary**uniform, vocabulary).astype(np.int64) - 1
    return rank * _SCATTER % vocabulary


def checksum(features: Columns) -> int:
    """Tells whether two racers were given the same examples."""
    total = 0
    for name in sorted(features):
        total = zlib.crc32(features[name].tobytes(), total)
    return total
