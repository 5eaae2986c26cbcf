"""The flights task: will a flight arrive more than 15 minutes late?

Trained on January to October 2013, tested on November and December, from what is known
before departure. The columns are written once, for `ex.feature_columns` and for
`tf.feature_column` alike. Imports NumPy only: TensorFlow's environment uses it as well.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pacing import JsonSetup

Columns = dict[str, np.ndarray]

NUMBERS = [
    *("sched_dep_time", "sched_arr_time", "distance", "plane_year", "seats"),
    *("temp", "dewp", "humid", "wind_speed", "precip", "pressure", "visib"),
]
IDS = {"month": 13, "weekday": 7, "hour": 24}
WORDS = {"carrier": 50, "origin": 10, "dest": 300, "plane_model": 300, "flight": 5000}
CROSSES = [("carrier", "dest", 2000), ("origin", "hour", 200)]


@dataclass(frozen=True)
class Setup(JsonSetup):
    """Sizes of the task, and where its files are."""

    folder: str = "data/flights"
    hidden_units: tuple[int, ...] = (128, 64, 32)
    dropout: float = 0.1
    dimension: int = 8
    batch_size: int = 256
    steps: int = 2100
    dnn_rate: float = 0.15
    linear_rate: float = 0.02
    linear_l1: float = 0.0005
    seed: int = 1
    answers: str = ""  # where a racer writes its probabilities


def flights(setup: Setup) -> tuple[Columns, np.ndarray, Columns, np.ndarray]:
    """Features and labels of training, in one shuffled order, and of testing."""
    train, test = (_read(Path(setup.folder) / f"{n}.csv") for n in ("train", "test"))
    order = np.random.default_rng(0).permutation(len(train["late"]))
    train = {name: column[order] for name, column in train.items()}
    for name in NUMBERS:
        known = train[name][~np.isnan(train[name])]
        for part in (train, test):
            filled = np.where(np.isnan(part[name]), known.mean(), part[name])
            part[name] = ((filled - known.mean()) / known.std()).astype(np.float32)
    labels, answers = train.pop("late"), test.pop("late")
    return train, labels, test, answers


def columns(fc: Any, dimension: int) -> tuple[list[Any], list[Any]]:
    """The wide columns and the deep ones, of either library."""
    ids = {n: fc.categorical_column_with_identity(n, size) for n, size in IDS.items()}
    words = {
        n: fc.categorical_column_with_hash_bucket(n, size) for n, size in WORDS.items()
    }
    # A feature that is hashed is crossed by its name, others by their column.
    crosses = [
        fc.crossed_column([ids.get(key, key) for key in keys], size)
        for *keys, size in CROSSES
    ]
    deep = [fc.numeric_column(name) for name in NUMBERS]
    for name in ("carrier", "dest", "plane_model"):
        deep.append(fc.embedding_column(words[name], dimension))
    deep.append(fc.embedding_column(ids["hour"], dimension))
    deep += [fc.indicator_column(words["origin"]), fc.indicator_column(ids["weekday"])]
    return [*ids.values(), *words.values(), *crosses], deep


def _read(path: Path) -> Columns:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    read: Columns = {"late": np.array([int(row["late"]) for row in rows])}
    for name in NUMBERS:
        read[name] = np.array([float(row[name] or "nan") for row in rows])
    for name in IDS:
        read[name] = np.array([int(float(row[name])) for row in rows])
    for name in WORDS:
        read[name] = np.array([row[name].encode() for row in rows], object)
    return read
