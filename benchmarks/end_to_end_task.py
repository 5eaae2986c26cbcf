"""The whole way: TFRecord files of strings, parsed, hashed, embedded and trained on.

Sizes of the model are those of the Criteo race; the file is that of the parsing race.
Imports NumPy only: TensorFlow's environment uses it as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from pacing import JsonSetup


@dataclass(frozen=True)
class Setup(JsonSetup):
    """The file, the model, and how many threads parse."""

    path: str = ""
    rows: int = 100_000
    buckets: int = 100_000
    dimension: int = 16
    hidden_units: tuple[int, ...] = (256, 128)
    batch_size: int = 1024
    learning_rate: float = 0.05
    threads: int = 2
    warmup: int = 30
    seed: int = 7
