"""One dataset out of several, chosen element by element: at random or by a dataset.

    Mix(nodes, RandomChoice((0.7, 0.3), seed=1), stop_on_empty=False)
    Mix(nodes, DatasetChoice(choices), stop_on_empty=True)

A random choice is a function of (seed, pass, position), so a position is a count and
where every dataset is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.input.streams.chunks import Chunk, concatenate
from estimax.input.streams.lookahead import ROWS_AT_ONCE, Lookahead
from estimax.input.streams.stream import Context, Node, State, chains_of
from estimax.input.verbs.interleaving import check_slots
from estimax.input.verbs.shuffle import uniforms


class Choice(Protocol):
    """How the next elements are chosen; a value that a stream opens."""

    def open(self, context: Context) -> Chooser:
        """Start at the first element."""


class Chooser(Protocol):
    """The choices of one pass."""

    def peek(self, n: int, ended: list[bool]) -> NDArray[np.int64]:
        """Up to n next choices, none at the end."""

    def advance(self, n: int) -> None:
        """Go on behind n of them."""

    def get_state(self) -> State:
        """The position."""

    def set_state(self, state: State) -> None:
        """Go there."""

    def close(self) -> None:
        """Let go of what is held."""


@dataclass(frozen=True, eq=False)
class Mix:
    """Elements of several datasets, in the order that a choice says."""

    nodes: tuple[Node, ...]
    choice: Choice
    stop_on_empty: bool
    verb: str
    source = None

    @property
    def name(self) -> str:
        """With the chains of all its datasets."""
        return f"{self.verb}({chains_of(self.nodes)})"

    @property
    def columnar(self) -> bool:
        """If all are."""
        return all(node.columnar for node in self.nodes)

    def open(self, context: Context) -> MixStream:
        """Open all."""
        return MixStream(self, context)


class MixStream:
    """A lookahead into each dataset, and which have ended."""

    def __init__(self, node: Mix, context: Context) -> None:
        self._node = node
        self._chooser = node.choice.open(context)
        self._rows = [
            Lookahead(
                one.open(context.in_epoch(i)), ROWS_AT_ONCE if one.columnar else 1
            )
            for i, one in enumerate(node.nodes)
        ]
        self._ended = [False] * len(node.nodes)

    def read(self, n: int) -> Chunk | None:
        """As many of the choices as all datasets have in hand."""
        while not all(self._ended):
            choices = self._chooser.peek(n, self._ended)
            if not len(choices):
                return None
            first = int(choices[0])
            if self._ended[first]:
                self._chooser.advance(1)  # choose_from_datasets may name an empty one
                continue
            if not self._rows[first].fill():
                self._ended[first] = True
                if self._node.stop_on_empty:
                    self._ended = [True] * len(self._ended)
                continue
            return self._gather(choices)
        return None

    def _gather(self, choices: NDArray[np.int64]) -> Chunk:
        """The longest run of choices that is in hand, in order."""
        stop = len(choices)
        wanted = [int(i) for i in np.unique(choices)]
        for i in wanted:
            have = 0 if self._ended[i] else self._rows[i].fill()
            places = np.flatnonzero(choices == i)
            if len(places) > have:
                stop = min(stop, int(places[have]))
        choices = choices[:stop]
        self._chooser.advance(stop)
        counts = np.bincount(choices, minlength=len(self._rows))
        used = [(rows, int(n)) for rows, n in zip(self._rows, counts, strict=True) if n]
        joined = concatenate([rows.give(n) for rows, n in used])
        # A stable sort by dataset is the order in which they were joined.
        order = np.empty(stop, np.int64)
        order[np.argsort(choices, kind="stable")] = np.arange(stop)
        return joined if len(used) == 1 else joined.take(order)

    def get_state(self) -> State:
        """The choices' position and every dataset's."""
        return {
            "choice": self._chooser.get_state(),
            "ended": list(self._ended),
            "sources": [rows.get_state() for rows in self._rows],
        }

    def set_state(self, state: State) -> None:
        """Each to its own."""
        check_slots(len(state["sources"]), len(self._rows), self._node.verb)
        self._chooser.set_state(state["choice"])
        self._ended = [bool(ended) for ended in state["ended"]]
        for rows, saved in zip(self._rows, state["sources"], strict=True):
            rows.set_state(saved)

    def close(self) -> None:
        """Close all."""
        self._chooser.close()
        for rows in self._rows:
            rows.close()


@dataclass(frozen=True)
class RandomChoice:
    """Dataset i with probability `weights[i]` among those that have not ended."""

    weights: tuple[float, ...]
    seed: int | None

    def __post_init__(self) -> None:
        if min(self.weights, default=0.0) < 0 or sum(self.weights) <= 0:
            raise InputError(
                "sample_from_datasets: weights must not be negative and not all 0, "
                f"got {list(self.weights)}."
            )

    def open(self, context: Context) -> _RandomChooser:
        """The order of this pass."""
        seed = context.seed if self.seed is None else self.seed
        return _RandomChooser(self.weights, ("sample", seed, context.path))


class _RandomChooser:
    _BLOCK = 4096

    def __init__(self, weights: tuple[float, ...], key: tuple[Any, ...]) -> None:
        self._weights = weights
        self._key = key
        self._at = 0
        self._block = -1
        self._draws: NDArray[np.float64] = np.empty(0)

    def peek(self, n: int, ended: list[bool]) -> NDArray[np.int64]:
        block, start = divmod(self._at, self._BLOCK)
        if block != self._block:
            self._draws = uniforms(self._BLOCK, *self._key, block)
            self._block = block
        pairs = zip(self._weights, ended, strict=True)
        bounds = np.cumsum([0.0 if gone else weight for weight, gone in pairs])
        if not bounds[-1]:
            return np.empty(0, np.int64)
        draws = self._draws[start : start + n] * bounds[-1]
        chosen: NDArray[np.int64] = np.searchsorted(bounds, draws, side="right")
        return chosen

    def advance(self, n: int) -> None:
        self._at += n

    def get_state(self) -> State:
        return {"at": self._at}

    def set_state(self, state: State) -> None:
        self._at = int(state["at"])

    def close(self) -> None:
        pass


@dataclass(frozen=True, eq=False)
class DatasetChoice:
    """The numbers of datasets, from a dataset."""

    node: Node

    def open(self, context: Context) -> _DatasetChooser:
        """Start at its first element."""
        at_once = ROWS_AT_ONCE if self.node.columnar else 1
        return _DatasetChooser(Lookahead(self.node.open(context), at_once))


class _DatasetChooser:
    def __init__(self, numbers: Lookahead) -> None:
        self._numbers = numbers
        self._hand = np.empty(0, np.int64)
        self._state = numbers.get_state()

    def peek(self, n: int, ended: list[bool]) -> NDArray[np.int64]:
        if not len(self._hand):
            self._state = self._numbers.get_state()
            chunk = self._numbers.read(n)
            if chunk is not None:
                hand = np.asarray(chunk.stacked(), np.int64)
                if hand.ndim != 1 or not np.isin(hand, np.arange(len(ended))).all():
                    raise InputError(
                        "choose_from_datasets: choices must be numbers from 0 to "
                        f"{len(ended) - 1}, got {hand.tolist()[:6]}."
                    )
                self._hand = hand
        return self._hand[:n]

    def advance(self, n: int) -> None:
        self._hand = self._hand[n:]
        given = int(self._state["given"]) + n
        self._state = {**self._state, "given": given}

    def get_state(self) -> State:
        return self._state if len(self._hand) else self._numbers.get_state()

    def set_state(self, state: State) -> None:
        self._hand = np.empty(0, np.int64)
        self._numbers.set_state(state)
        self._state = state

    def close(self) -> None:
        self._numbers.close()
