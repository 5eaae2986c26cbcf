"""Batches on the device: one alone, or several stacked for one compiled loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from estimax.feeding.packing import Packed


@dataclass(frozen=True)
class PlacedBatch:
    """A batch on the device, its number of examples, and where the input was after."""

    arrays: Packed
    examples: int
    position: Any  # JSON-able; None where the input has no position


@dataclass(frozen=True)
class BatchStack:
    """Batches on the device for one call, and what is known of each."""

    arrays: Packed  # of one batch, or a stack of them
    examples: Sequence[int]
    positions: Sequence[Any]
    room: int = 1  # for so many batches

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def is_stack(self) -> bool:
        """Whether the arrays have an axis of batches."""
        return self.room > 1

    def batch(self, index: int) -> tuple[Any, ...]:
        """One of the batches: the arrays, and its place if they are a stack."""
        return (self.arrays, index) if self.is_stack else (self.arrays,)
