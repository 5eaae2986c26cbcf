"""bucket_by_sequence_length: batches of elements of about the same length.

    bucket_by_sequence_length(source, length, [10, 20], [32, 16, 8], …)

Buckets are [0, b0), [b0, b1), …, [last, ∞). A batch leaves when its bucket is full,
leftovers at the end in the order of the buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from estimax.core.errors import InputError
from estimax.input.streams.chunks import Elements
from estimax.input.streams.stream import Node
from estimax.input.streams.structure import Structure, call, map_leaves
from estimax.input.verbs.grouping import GroupByWindow
from estimax.input.verbs.windows import InMemory


@dataclass(frozen=True, eq=False)
class Buckets:
    """What `bucket_by_sequence_length` was asked for."""

    length_func: Callable[..., Any]
    boundaries: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    padded_shapes: Any = None
    padding_values: Any = None
    pad_to_bucket_boundary: bool = False
    no_padding: bool = False
    drop_remainder: bool = False

    def __post_init__(self) -> None:
        if len(self.batch_sizes) != len(self.boundaries) + 1:
            raise InputError(
                "bucket_by_sequence_length: expected one more bucket_batch_sizes than "
                f"bucket_boundaries, got {len(self.batch_sizes)} and "
                f"{len(self.boundaries)}."
            )
        if list(self.boundaries) != sorted(set(self.boundaries)):
            raise InputError(
                "bucket_by_sequence_length: bucket_boundaries must grow, got "
                f"{list(self.boundaries)}."
            )

    def node(self, source: Node, make_dataset: Callable[[Node], Any]) -> Node:
        """The grouping that does it."""
        return GroupByWindow(
            source,
            self._bucket,
            self._batch,
            lambda bucket: self.batch_sizes[bucket],
            make_dataset,
            "bucket_by_sequence_length",
        )

    def _bucket(self, *element: Structure) -> int:
        length = int(self.length_func(*element))
        bucket = int(np.searchsorted(self.boundaries, length, side="right"))
        if self.pad_to_bucket_boundary and bucket == len(self.boundaries):
            last = self.boundaries[-1] if self.boundaries else 0
            raise InputError(
                f"bucket_by_sequence_length: an element of length {length} is beyond "
                f"the last boundary ({last}), which pad_to_bucket_boundary cannot pad "
                "to. Add a boundary, or filter() longer elements out before."
            )
        return bucket

    def _batch(self, bucket: int, window: Any) -> Any:  # a Dataset in, a Dataset out
        size = self.batch_sizes[bucket]
        if self.no_padding:
            return window.batch(size, self.drop_remainder)
        shapes = self.padded_shapes
        if self.pad_to_bucket_boundary:
            longest = self.boundaries[bucket] - 1
            shapes = (
                self._shapes_of(window.node, longest)
                if shapes is None
                else _with_size(shapes, longest)
            )
        return window.padded_batch(
            size, shapes, self.padding_values, self.drop_remainder
        )

    def _shapes_of(self, window: InMemory, longest: int) -> Any:
        """Pad to the boundary what is as long as its element, and nothing else."""
        assert isinstance(window.chunk, Elements)
        items = window.chunk.items
        lengths = [int(call(self.length_func, item)) for item in items]

        def shape(*rows: Any) -> list[int | None]:
            shapes = [np.shape(row) for row in rows]
            rank = len(shapes[0])
            starts = [one[:1] for one in shapes]
            if rank and starts == [(length,) for length in lengths]:
                return [longest, *[None] * (rank - 1)]
            return [None] * rank

        return map_leaves(shape, *items)


def _with_size(shapes: Any, size: int) -> Any:
    """Fill in the unknown dims of given shapes."""
    if isinstance(shapes, Mapping):
        return {key: _with_size(value, size) for key, value in shapes.items()}
    if isinstance(shapes, Sequence):
        return type(shapes)(_with_size(value, size) for value in shapes)  # type: ignore[call-arg]
    return size if shapes in (None, -1) else shapes
