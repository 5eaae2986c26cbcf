"""The whole way: TFRecord files of strings, parsed, hashed, embedded and trained on.

Sizes of the model are those of the Criteo race; the file is that of the parsing race.
Imports NumPy only: TensorFlow's environment uses it as well.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Setup:
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

    def to_json(self) -> str:
        """For a worker's command line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Setup:
        """The way back."""
        values = json.loads(text)
        return cls(**values | {"hidden_units": tuple(values["hidden_units"])})
