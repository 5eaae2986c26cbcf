"""Sources of Python iterables: generators of elements, iterables of batches.

    Generated(lambda: read_my_format(path))     # Dataset.from_generator
    Batches(loader, "skip")                     # Dataset.from_batches

Elements arrive one by one, so the iterable limits the speed. A position is the best one
that the iterable offers; see `Cursor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from estimax.core.errors import InputError
from estimax.input.streams.chunks import Chunk, Elements, as_element
from estimax.input.streams.positions import END, Cursor, Resume, once
from estimax.input.streams.stream import Context, State
from estimax.input.streams.structure import Structure, encode_texts


class Generated:
    """The elements of a generator; the function is called once for every pass."""

    name = "from_generator"
    source = None
    columnar = False

    def __init__(self, generator: Callable[[], Iterable[Structure]]) -> None:
        if not callable(generator):
            raise InputError(
                "from_generator: expected a function that returns a generator, got "
                f"{type(generator).__name__}. Pass `f`, not `f()`."
            )
        self._generator = generator

    def open(self, context: Context) -> CursorStream:
        """Return a stream that calls the function at its first read."""
        return CursorStream(Cursor(self._generator, unit="elements"), encode_texts)


class Batches:
    """The batches of an iterable, or of a function that returns one."""

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
                "from_batches: expected an iterable of batches or a function that "
                f"returns one, got {type(batches).__name__}."
            )
        self._resume = resume

    def open(self, context: Context) -> CursorStream:
        """Return a stream that opens the iterable at its first read."""
        return CursorStream(Cursor(self._make, resume=self._resume), as_element)


class CursorStream:
    """Reads the elements of a `Cursor`, each converted by a function."""

    def __init__(
        self, cursor: Cursor, convert: Callable[[Structure], Structure]
    ) -> None:
        self._cursor = cursor
        self._convert = convert

    def read(self, n: int) -> Chunk | None:
        """Return up to n elements; None at the end."""
        items: list[Structure] = []
        while len(items) < n and (element := next(self._cursor, END)) is not END:
            items.append(self._convert(element))
        return Elements(items) if items else None

    def get_state(self) -> State:
        """Return the position of the cursor."""
        return self._cursor.get_state()

    def set_state(self, state: State) -> None:
        """Go to a position, as exactly as the iterable supports."""
        self._cursor.set_state(state)

    def close(self) -> None:
        """Close the generator."""
        self._cursor.close()
