"""The CSV task: files of 40 columns, made once, and how both sides read it.

Half of the columns are numbers, of which some are missing, and half are short text, as
in click logs. Imports nothing that takes time to import, as TensorFlow's side uses it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from pacing import JsonSetup


@dataclass(frozen=True)
class Setup(JsonSetup):
    """What is read: `columns` columns and `rows` rows, in `files` files."""

    path: str  # a pattern if there are several files
    files: int = 1
    columns: int = 40
    rows: int = 100_000
    batch_size: int = 1024
    shuffle: bool = True
    warmup: int = 20
    seed: int = 1


def write_files(setup: Setup) -> None:
    """Write the files, which have the same number of rows."""
    random.seed(setup.seed)
    kinds = [("int", "float", "text", "text")[i % 4] for i in range(setup.columns)]
    names = ",".join(f"{kind}_{i}" for i, kind in enumerate(kinds))
    for number in range(setup.files):
        with Path(setup.path.replace("*", f"{number:06}")).open("w") as file:
            file.write(f"{names},label\n")
            for _ in range(setup.rows // setup.files):
                fields = [_field(kind) for kind in kinds]
                file.write(",".join(fields) + f",{random.getrandbits(1)}\n")


def _field(kind: str) -> str:
    if kind == "text":
        return f"{random.getrandbits(random.choice((12, 32))):x}"
    if random.random() < 0.05:
        return ""
    if kind == "int":
        return str(random.getrandbits(16))
    return f"{random.gauss(0, 10):.4f}"
