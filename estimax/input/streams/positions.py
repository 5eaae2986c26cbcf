"""Positions in iterables of other libraries: their own state, an index, or a count.

    cursor = Cursor(lambda: loader, resume="skip")
    batch = next(cursor, END)          # END after the last
    cursor.get_state()                 # {"batches": 1}

A cursor uses the first of these that an object has: `[i]` and `len` (lists, Keras
sequences), `get_state`/`set_state` (Grain), `state_dict`/`load_state_dict` (torchdata).
For any other iterable it counts elements; resuming reads and drops that many elements,
or raises if `resume="refuse"`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from estimax.core.errors import InputError
from estimax.input.streams.stream import State

Resume = Literal["skip", "refuse"]

# The end of an iterable. Not None, which can be an element.
END = object()

_METHODS = (("get_state", "set_state"), ("state_dict", "load_state_dict"))


class Cursor:
    """An iterator over the iterable that `make` returns, with a position.

    `make` is called with the first `next` or `set_state`. `unit` is the key of the
    count in saved positions and the word for elements in messages.
    """

    def __init__(
        self,
        make: Callable[[], Iterable[Any]],
        *,
        resume: Resume = "skip",
        unit: str = "batches",
    ) -> None:
        self._make = make
        self._resume = resume
        self._unit = unit
        self._count = 0
        self._iterator: Iterator[Any] | None = None
        self._save: Callable[[], Any] | None = None
        self._load: Callable[[Any], Any] | None = None
        self._sequence: Any = None  # an object with len and [i]

    def __repr__(self) -> str:
        return f"{self._unit} of a Python iterable"

    def __iter__(self) -> Cursor:
        return self

    def __next__(self) -> Any:
        if self._iterator is None:
            self._open()
        assert self._iterator is not None
        element = next(self._iterator)
        self._count += 1
        return element

    def get_state(self) -> State:
        """Return the position after the last element."""
        if self._save is not None:
            return {"own": _to_json(self._save()), self._unit: self._count}
        return {self._unit: self._count}

    def set_state(self, state: State) -> None:
        """Go to a position: directly if possible, otherwise by reading up to it."""
        if self._unit not in state:
            raise InputError(
                f"cannot resume the input: the saved position has no count of "
                f"{self._unit}; it belongs to another kind of input."
            )
        self.close()
        self._open()
        count = int(state[self._unit])
        if "own" in state and self._load is not None:
            self._load(_from_json(state["own"]))
        elif self._sequence is not None:
            self._iterator = _from_index(self._sequence, count)
        elif count:
            self._read_up_to(count)
        self._count = count

    def close(self) -> None:
        """Release the iterator; close it if it has a `close` method."""
        iterator, self._iterator = self._iterator, None
        self._save = self._load = self._sequence = None
        self._count = 0
        close = getattr(iterator, "close", None)
        if close is not None:
            close()

    def _open(self) -> None:
        iterable = self._make()
        if hasattr(iterable, "__getitem__") and hasattr(iterable, "__len__"):
            self._sequence = iterable
            self._iterator = _from_index(iterable, 0)
            return
        self._iterator = iter(iterable)
        for owner in (self._iterator, iterable):
            for save, load in _METHODS:
                if hasattr(owner, save) and hasattr(owner, load) and self._save is None:
                    self._use(getattr(owner, save), getattr(owner, load))

    def _use(self, save: Callable[[], Any], load: Callable[[Any], Any]) -> None:
        try:
            json.dumps(_to_json(save()))
        except TypeError:
            return  # such as tensors in a torch state_dict: count elements instead
        self._save, self._load = save, load

    def _read_up_to(self, count: int) -> None:
        """Read and drop `count` elements; raise if resuming that way is refused."""
        if self._resume == "refuse":
            raise InputError(
                f"cannot resume the input: it is a plain iterator, whose position is "
                f"only a count ({count} {self._unit}), and resume='refuse' forbids to "
                "read up to it again. Use an estimax Dataset, a list, or an iterator "
                "with get_state and set_state; or allow resume='skip'."
            )
        assert self._iterator is not None
        for done in range(count):
            if next(self._iterator, END) is END:
                raise InputError(
                    f"cannot resume the input: it ended after {done} {self._unit}, "
                    f"and the saved position is {count}. Has the data changed?"
                )


def once(iterable: Iterable[Any]) -> Callable[[], Iterable[Any]]:
    """Return a `make` for `Cursor` that raises if a one-shot iterator is used twice."""
    # Not `iter(x) is x`: calling `iter` on a torch loader starts its processes.
    if not hasattr(iterable, "__next__"):
        return lambda: iterable
    given = False

    def make() -> Iterable[Any]:
        nonlocal given
        if given and not any(hasattr(iterable, load) for _, load in _METHODS):
            raise InputError(
                f"this {type(iterable).__name__} can be iterated only once, and a "
                "second pass has begun. Pass a function that makes it: `f`, not `f()`."
            )
        given = True
        return iterable

    return make


def _from_index(sequence: Any, start: int) -> Iterator[Any]:
    return (sequence[i] for i in range(start, len(sequence)))


def _to_json(state: Any) -> Any:
    if isinstance(state, bytes):  # Grain's data loaders
        return {"base64": base64.b64encode(state).decode()}
    return state


def _from_json(state: Any) -> Any:
    if isinstance(state, dict) and state.keys() == {"base64"}:
        return base64.b64decode(state["base64"])
    return state
