"""Encode columns as Example messages in Python."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.strings import Strings
from estimax.native.example_types import FLOAT, FeatureValues
from estimax.native.reference.protos import entry, field


@dataclass(frozen=True, eq=False)
class Lists:
    """A checked column: flat values (`Strings`, float32 or int64) and row splits."""

    key: bytes
    kind: int
    values: FeatureValues
    splits: NDArray[np.int64]


def encode(columns: Sequence[Lists]) -> Strings:
    """Return an Example for every row; features without values are left out."""
    rows = [b""] * (len(columns[0].splits) - 1)
    for column in columns:
        values = _listed(column)
        for row, (start, stop) in enumerate(itertools.pairwise(column.splits.tolist())):
            if start < stop:
                rows[row] += entry(column.key, column.kind, values[start:stop])
    return Strings.of([field(1, features) for features in rows])


def _listed(column: Lists) -> list[Any]:
    """Return the values in the form that `protos.feature` expects."""
    if column.kind != FLOAT:
        return column.values.tolist()
    packed = np.asarray(column.values, "<f4").tobytes()
    return [packed[i : i + 4] for i in range(0, len(packed), 4)]
