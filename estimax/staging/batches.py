"""Batches on the device: one alone, or several stacked for one compiled loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from estimax.core.device_dtypes import Forwarded
from estimax.staging.packing import Packed


@dataclass(frozen=True)
class PlacedBatch:
    """A batch on the device.

    Attributes:
      arrays: The prepared batch.
      examples: Its number of examples.
      position: The input's position behind the batch, as JSON; None without one.
      forwarded: Raw values that are predictions as they are, on the host.
      agreed: What all processes of a cluster do at this batch; see `Requests`.
    """

    arrays: Packed
    examples: int
    position: Any  # kept beside the batch, because the input has been read further
    forwarded: Mapping[Forwarded, NDArray[Any]] = field(default_factory=dict)
    agreed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class BatchStack:
    """Batches on the device that one compiled call can run.

    Attributes:
      arrays: One prepared batch, or several stacked along a new first axis.
      examples: The number of examples of each batch.
      positions: The input's position behind each batch.
      capacity: How many batches the arrays have space for; 1 if they are not stacked.
      agreed: What all processes of a cluster do at this batch; see `Requests`.
    """

    arrays: Packed
    examples: Sequence[int]
    positions: Sequence[Any]
    capacity: int = 1
    agreed: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def is_stack(self) -> bool:
        """Whether the arrays have an axis of batches."""
        return self.capacity > 1

    def batch(self, index: int) -> tuple[Any, ...]:
        """Return the arrays, and the index if they are stacked."""
        # Not sliced here: the compiled step takes the batch out of the stack, so that a
        # stack is one transfer and no batch of it needs a call of its own.
        return (self.arrays, index) if self.is_stack else (self.arrays,)
