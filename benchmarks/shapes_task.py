"""Shapes other than tables: small images and texts through convolutions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pacing import JsonSetup


@dataclass(frozen=True)
class Setup(JsonSetup):
    """An image network if `words` is 0, else a network on texts of so many words.

    The images are 28 × 28: convolutions of 5 × 5 with 32 and 64 filters, each followed
    by max pooling of 2 × 2, and a dense layer of 1,024. The texts: embeddings of 128,
    convolutions over 3, 4 and 5 words with 100 filters each, and their maximum over
    time.
    """

    words: int = 0
    iterations_per_loop: int = 1
    batch_size: int = 64
    batches: int = 16  # distinct ones, repeated for ever
    vocabulary: int = 20_000
    width: int = 128
    filters: int = 100
    spans: tuple[int, ...] = (3, 4, 5)
    classes: int = 10
    learning_rate: float = 0.01
    warmup: int = 25  # a multiple of `iterations_per_loop` is not needed
    seed: int = 7


def examples(setup: Setup) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return "x", float32 [N, 28, 28, 1] or int32 [N, words], and labels, int64 [N]."""
    rng = np.random.default_rng(setup.seed)
    count = setup.batch_size * setup.batches
    labels = rng.integers(0, setup.classes, count)
    if setup.words:
        ids = rng.integers(0, setup.vocabulary, (count, setup.words))
        return {"x": ids.astype(np.int32)}, labels
    return {"x": rng.random((count, 28, 28, 1), np.float32)}, labels
