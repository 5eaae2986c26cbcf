"""Sources that Python code feeds: generators of elements, iterables of batches.

    Generated(lambda: read_my_format(path))     # Dataset.from_generator
    Batches(loader, "skip")                     # Dataset.from_batches

Elements arrive one by one, so the speed is the generator's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from estimax.core.errors import InputError
from estimax.input.streams.chunks import Chunk, Elements, as_element
from estimax.input.streams.positions import END, Cursor, Resume, once
from estimax.input.streams.stream import Context, State
from estimax.input.streams.structure import Structure


class Generated:
    """Elements from a function that makes an iterable, called for every pass."""

    name = "from_generator"
    source = None
    columnar = False

    def __init__(self, generator: Callable[[], Iterable[Structure]]) -> None:
        if not callable(generator):
            raise InputError(
                "from_generator needs a function that makes the generator, got "
                f"{type(generator).__name__}: pass `f`, not `f()`."
            )
        self._generator = generator

    def open(self, context: Context) -> CursorStream:
        """Start a new generator when first read."""
        return CursorStream(Cursor(self._generator, unit="elements"), lambda e: e)


class Batches:
    """Ready batches from an iterable, or a function that makes one."""

    name = "from_batches"
    source = None
    columnar = False

    def __init__(
        self,
        batches: Iterable[Structure] | Callable[[], Iterable[Structure]],
        resume: Resume,
    ) -> None:
        if hasattr(batches, "__iter__"):
            self._make = once(batches)
        elif callable(batches):
            self._make = batches
        else:
            raise InputError(
                "from_batches needs an iterable of batches or a function that makes "
                f"one, got {type(batches).__name__}."
            )
        self._resume = resume

    def open(self, context: Context) -> CursorStream:
        """Start at the first batch when first read."""
        return CursorStream(Cursor(self._make, resume=self._resume), as_element)


class CursorStream:
    """Elements of a cursor, as a stream."""

    def __init__(
        self, cursor: Cursor, convert: Callable[[Structure], Structure]
    ) -> None:
        self._cursor = cursor
        self._convert = convert

    def read(self, n: int) -> Chunk | None:
        """One by one, up to n."""
        items: list[Structure] = []
        while len(items) < n and (element := self._cursor.next()) is not END:
            items.append(self._convert(element))
        return Elements(items) if items else None

    def get_state(self) -> State:
        """The cursor's."""
        return self._cursor.get_state()

    def set_state(self, state: State) -> None:
        """As exactly as the iterable can."""
        self._cursor.set_state(state)

    def close(self) -> None:
        """Close the generator."""
        self._cursor.close()
