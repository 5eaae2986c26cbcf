"""Placement: the next batches prepared and put on devices while this one computes.

    with prefetch_batches(iterator, prepare, depth=2) as batches:
        for prepared, state in batches: ...

`state` is the input's position just behind that batch: what a checkpoint must hold once
the batch has been trained on, however far ahead the thread may be.
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
    """Pull batches and run `prepare` on them in a thread, up to `depth` ahead.

    The iterator's position is taken right after each batch, in the same thread (None
    if it has no `get_state`). An error in either surfaces at the batch it belongs to.

    >>> with prefetch_batches(iter([1, 2]), lambda batch: batch * 10) as batches:
    ...     list(batches)
    [(10, None), (20, None)]
    """
    if depth < 1:
        raise InputError(f"prefetch_batches: depth must be at least 1, got {depth}.")
    return PreparedBatches(_prepared(iterator, prepare), depth)


class PreparedBatches(Generic[T]):
    """An iterator of `(prepared batch, position behind it)`, fed by a thread."""

    def __init__(self, items: Iterator[tuple[T, State | None]], depth: int) -> None:
        self._ahead = Background(items, depth=depth, name="placement")

    @property
    def waited_seconds(self) -> float:
        """How long the consumer has waited for batches: the input's share of time."""
        return self._ahead.waited_seconds

    def __iter__(self) -> PreparedBatches[T]:
        return self

    def __next__(self) -> tuple[T, State | None]:
        return self._ahead.next()

    def close(self) -> None:
        """Stop and join the thread; the iterator itself stays open, and is ahead."""
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
