"""Prefetching: a thread prepares the next batches while the device computes.

    with prefetch_batches(iterator, prepare, depth=2) as batches:
        for prepared, state in batches: ...

`state` is the input's position behind that batch. A checkpoint must hold this position
after the batch was trained on, however far ahead the thread has read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from estimax.core.errors import InputError
from estimax.input.streams.background import Background
from estimax.input.streams.stream import State

T = TypeVar("T")


def prefetch_batches(
    iterator: Iterator[Any], prepare: Callable[[Any], T], *, depth: int = 2
) -> PreparedBatches[T]:
    """Read batches and call `prepare` on each in a thread, up to `depth` batches ahead.

    The thread takes the position of the iterator after each batch (None if it has no
    `get_state`). An error is raised when its batch is due.

    >>> with prefetch_batches(iter([1, 2]), lambda batch: batch * 10) as batches:
    ...     list(batches)
    [(10, None), (20, None)]
    """
    if depth < 1:
        raise InputError(f"prefetch_batches: depth must be at least 1, got {depth}.")
    return PreparedBatches(_prepared(iterator, prepare), depth)


class PreparedBatches(Generic[T]):
    """An iterator of `(prepared batch, position behind it)` that a thread fills."""

    def __init__(self, items: Iterator[tuple[T, State | None]], depth: int) -> None:
        self._ahead = Background(items, depth=depth, name="placement")

    @property
    def waited_seconds(self) -> float:
        """How long the consumer has waited for batches, in seconds."""
        return self._ahead.waited_seconds

    def __iter__(self) -> PreparedBatches[T]:
        return self

    def __next__(self) -> tuple[T, State | None]:
        return self._ahead.next()

    def close(self) -> None:
        """Stop the thread. The iterator stays open; it may have been read ahead."""
        self._ahead.close()

    def __enter__(self) -> PreparedBatches[T]:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _prepared(
    iterator: Iterator[Any], prepare: Callable[[Any], T]
) -> Iterator[tuple[T, State | None]]:
    get_state: Callable[[], State] | None = getattr(iterator, "get_state", None)
    for batch in iterator:
        state = get_state() if get_state is not None else None
        yield prepare(batch), state
