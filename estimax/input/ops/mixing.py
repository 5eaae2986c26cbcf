"""Verbs that mix datasets: sample_from_datasets, choose_from_datasets, interleave.

    Mix(nodes, RandomChoice((0.7, 0.3), seed=1), stop_on_empty=False, verb="sample")
    Mix(nodes, DatasetChoice(choices), stop_on_empty=True, verb="choose")
    Interleave(source, fn, cycle_length=8)         # flat_map: cycle_length=1

`Mix` takes each element from the dataset that a choice names. A random choice is a
function of (seed, pass, position), so the position is one count and the position of
every dataset.

`Interleave` calls `fn` with elements of its source and reads the datasets that it
returns, `cycle_length` at a time. Each open dataset occupies a slot. The position has,
for every slot, the source's position before the element that `fn` was called with.

Neither loops over elements in Python: both find out which rows come next and gather
them with one `take`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.input.ops.shuffle import uniforms
from estimax.input.streams.background import Lookahead, Workers
from estimax.input.streams.chunks import Chunk, concatenate
from estimax.input.streams.stream import (
    Context,
    DatasetNode,
    State,
    Stream,
    VerbNode,
    chains_of,
    check_at_least,
    elements_at,
    elements_at_once,
    restore_error,
    save_error,
)
from estimax.input.streams.structure import Structure, call, is_dataset


@dataclass(frozen=True, eq=False)
class Mix:
    """Elements of several datasets, each from the dataset that `choice` selects."""

    nodes: tuple[DatasetNode, ...]
    choice: Choice
    stop_on_empty: bool
    verb: str
    source = None

    @property
    def name(self) -> str:
        return f"{self.verb}({chains_of(self.nodes)})"

    @property
    def columnar(self) -> bool:
        return all(node.columnar for node in self.nodes)

    def open(self, context: Context) -> Stream:
        return _MixStream(self, context)


class _MixStream:
    """A lookahead over each dataset, and which of them have ended."""

    def __init__(self, node: Mix, context: Context) -> None:
        self._node = node
        self._chooser = node.choice.open(context)
        self._rows = [
            Lookahead(one.open(context.in_epoch(i)), elements_at_once(one))
            for i, one in enumerate(node.nodes)
        ]
        self._ended = [False] * len(node.nodes)

    def read(self, n: int) -> Chunk | None:
        while not all(self._ended):
            choices = self._chooser.peek(n, self._ended)
            if not len(choices):
                return None
            first = int(choices[0])
            if self._ended[first]:
                self._chooser.advance(1)  # choose_from_datasets skips ended datasets
                continue
            if not self._rows[first].fill():
                self._ended[first] = True
                if self._node.stop_on_empty:
                    self._ended = [True] * len(self._ended)
                continue
            return self._gather(choices)
        return None

    def _gather(self, choices: NDArray[np.int64]) -> Chunk:
        """Return the elements of as many choices as can be met without reading more."""
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
        # `joined` is ordered by dataset, as a stable sort of the choices is. Inverting
        # that sort brings the rows into the order of the choices.
        order = np.empty(stop, np.int64)
        order[np.argsort(choices, kind="stable")] = np.arange(stop)
        return joined if len(used) == 1 else joined.take(order)

    def get_state(self) -> State:
        return {
            "choice": self._chooser.get_state(),
            "ended": list(self._ended),
            "sources": [rows.get_state() for rows in self._rows],
        }

    def set_state(self, state: State) -> None:
        check_slots(len(state["sources"]), len(self._rows), self._node.verb)
        self._chooser.set_state(state["choice"])
        self._ended = [bool(ended) for ended in state["ended"]]
        for rows, saved in zip(self._rows, state["sources"], strict=True):
            rows.set_state(saved)

    def close(self) -> None:
        self._chooser.close()
        for rows in self._rows:
            rows.close()


class Choice(Protocol):
    """How `Mix` selects the dataset of each element; `open` starts a pass."""

    def open(self, context: Context) -> Chooser:
        """Start at the first element."""


class Chooser(Protocol):
    """The choices of one pass, with an exact position."""

    def peek(self, n: int, ended: list[bool]) -> NDArray[np.int64]:
        """Return up to n next choices without consuming them; none at the end."""

    def advance(self, n: int) -> None:
        """Consume n choices."""

    def get_state(self) -> State:
        """Return the position."""

    def set_state(self, state: State) -> None:
        """Go to a position that `get_state` returned."""

    def close(self) -> None:
        """Release what is held."""


@dataclass(frozen=True)
class RandomChoice:
    """Select dataset i with probability `weights[i]`, among those not ended."""

    weights: tuple[float, ...]
    seed: int | None

    def __post_init__(self) -> None:
        if min(self.weights, default=0.0) < 0 or sum(self.weights) <= 0:
            raise InputError(
                "sample_from_datasets: weights must be at least 0, and one of them "
                f"above 0; got {list(self.weights)}."
            )

    def open(self, context: Context) -> Chooser:
        seed = context.seed if self.seed is None else self.seed
        return _RandomChooser(self.weights, ("sample", seed, context.path))


class _RandomChooser:
    _BLOCK = 4096  # random numbers drawn at a time

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
        # Ended datasets get an interval of length 0, so they are never chosen.
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
    """Select the dataset whose number another dataset gives."""

    node: DatasetNode

    def open(self, context: Context) -> Chooser:
        numbers = Lookahead(self.node.open(context), elements_at_once(self.node))
        return _DatasetChooser(numbers)


class _DatasetChooser:
    def __init__(self, numbers: Lookahead) -> None:
        self._numbers = numbers
        self._buffer = np.empty(0, np.int64)  # choices read and not yet consumed
        self._state = numbers.get_state()  # position of the first of them

    def peek(self, n: int, ended: list[bool]) -> NDArray[np.int64]:
        if not len(self._buffer):
            self._state = self._numbers.get_state()
            chunk = self._numbers.read(n)
            if chunk is not None:
                numbers = np.asarray(chunk.to_batch(), np.int64)
                known = np.arange(len(ended))
                if numbers.ndim != 1 or not np.isin(numbers, known).all():
                    raise InputError(
                        "choose_from_datasets: choices must be numbers from 0 to "
                        f"{len(ended) - 1}, got {numbers.tolist()[:6]}."
                    )
                self._buffer = numbers
        return self._buffer[:n]

    def advance(self, n: int) -> None:
        self._buffer = self._buffer[n:]
        given = int(self._state["given"]) + n
        self._state = {**self._state, "given": given}

    def get_state(self) -> State:
        return self._state if len(self._buffer) else self._numbers.get_state()

    def set_state(self, state: State) -> None:
        self._buffer = np.empty(0, np.int64)
        self._numbers.set_state(state)
        self._state = state

    def close(self) -> None:
        self._numbers.close()


@dataclass(frozen=True, eq=False)
class Interleave(VerbNode):
    """Elements of the datasets that `fn` makes of the elements of the source.

    `cycle_length` datasets are open at a time, and each in turn gives `block_length`
    elements. `threads` read the next chunk of each; 0 reads in the caller's thread.
    """

    fn: Callable[..., Any]
    cycle_length: int
    block_length: int = 1
    threads: int = 0
    name: str = "interleave"
    # False unless the caller knows better: `fn` would have to be called to find out.
    columnar: bool = False

    def __post_init__(self) -> None:
        check_at_least(1, self.cycle_length, "interleave: cycle_length")
        check_at_least(1, self.block_length, "interleave: block_length")

    def open(self, context: Context) -> Stream:
        return _InterleaveStream(self, context)


class _InterleaveStream:
    """The open datasets in their slots, and whose turn it is.

    A read first picks rows (`_pick`), which only counts, and then gathers all picked
    rows at once. Everything that a slot has loaded must be gathered before the slot
    loads its next chunk, because loading replaces the chunk.
    """

    def __init__(self, node: Interleave, context: Context) -> None:
        self._node = node
        self._context = context
        self._inputs = node.source.open(context)
        self._slots: list[_Slot | None] = [None] * node.cycle_length
        self._turn = 0  # the slot that gives the next element
        self._taken = 0  # elements of its current block already returned
        self._opened = 0  # datasets opened so far
        self._no_more = False  # whether the source has ended
        self._error: Exception | None = None  # to be raised by the next read
        self._workers = Workers(node.threads, "interleave") if node.threads else None

    def read(self, n: int) -> Chunk | None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        picks = _Picks([0] * len(self._slots))
        try:
            while picks.total < n and self._pick(picks, n):
                pass
        except Exception as error:
            if not picks.total:
                raise
            self._error = error  # first return the elements before the error
        return picks.gather(self._slots) if picks.total else None

    def _pick(self, picks: _Picks, n: int) -> bool:
        """Pick one block or several rounds of blocks; return whether to continue."""
        if self._pick_rounds(picks, n):
            return True
        slot = self._slots[self._turn]
        if slot is None:
            slot = self._slots[self._turn] = self._open_next()
        if slot is None:
            self._pass_turn()
            return any(self._slots)
        used = picks.used[self._turn]
        have = slot.rows.fill(n // len(self._slots)) - used
        if have <= 0:
            if used:  # gather these rows before the slot loads its next chunk
                return False
            slot.rows.close()
            self._slots[self._turn] = None
            self._pass_turn()
            return True
        count = min(have, n - picks.total)
        if len(self._slots) > 1:  # a single slot needs no turns
            count = min(count, self._node.block_length - self._taken)
        picks.add_block(self._turn, count)
        self._taken = (self._taken + count) if len(self._slots) > 1 else 0
        if self._taken == self._node.block_length:
            self._pass_turn()
        return True

    def _pick_rounds(self, picks: _Picks, n: int) -> bool:
        """Pick whole rounds if every slot has loaded enough rows; False if not."""
        block, cycle = self._node.block_length, len(self._slots)
        rounds = (n - picks.total) // (block * cycle)
        if rounds < 1 or cycle < 2 or self._turn or self._taken:
            return False
        active = [i for i, slot in enumerate(self._slots) if slot is not None]
        if not active or (len(active) < cycle and not self._no_more):
            return False
        for i in active:
            slot = self._slots[i]
            assert slot is not None
            have = slot.rows.fill(n // cycle) - picks.used[i]
            rounds = min(rounds, have // block)
        if rounds < 1:
            return False
        picks.add_rounds(active, rounds, block)
        return True

    def _pass_turn(self) -> None:
        self._turn = (self._turn + 1) % len(self._slots)
        self._taken = 0

    def _open_next(self) -> _Slot | None:
        """Open the dataset of the next element of the source; None at its end."""
        before = self._inputs.get_state()
        chunk = self._inputs.read(1)
        if chunk is None:
            self._no_more = True
            return None
        self._opened += 1
        return self._slot(before, chunk.element(0), self._opened - 1)

    def _slot(self, before: State, element: Structure, number: int) -> _Slot:
        inner = call(self._node.fn, element)
        if not is_dataset(inner):
            raise InputError(
                f"{self._node.name}: the function must return a Dataset, got "
                f"{type(inner).__name__}."
            )
        stream = inner.node.open(self._context.in_epoch(number))
        at_once = elements_at_once(inner.node)
        rows = Lookahead(stream, at_once, workers=self._workers)
        return _Slot(number, before, rows)

    def get_state(self) -> State:
        slots = [
            slot
            and {
                "number": slot.number,
                "input": slot.before,
                "rows": slot.rows.get_state(),
            }
            for slot in self._slots
        ]
        return {
            "turn": [self._turn, self._taken, self._opened],
            "slots": slots,
            "error": save_error(self._error),
            "source": self._inputs.get_state(),
        }

    def set_state(self, state: State) -> None:
        # Each slot's dataset is made again: read its input element, call `fn` with it.
        self._close_slots()
        check_slots(len(state["slots"]), len(self._slots), self._node.name)
        used = [(i, saved) for i, saved in enumerate(state["slots"]) if saved]
        inputs = [{"source": saved["input"], "given": 0} for _, saved in used]
        elements = elements_at(self._node.source, self._context, inputs)
        for (i, saved), element in zip(used, elements, strict=True):
            slot = self._slot(saved["input"], element, int(saved["number"]))
            slot.rows.set_state(saved["rows"])
            self._slots[i] = slot
        self._inputs.set_state(state["source"])
        self._no_more, self._error = False, restore_error(state["error"])
        self._turn, self._taken, self._opened = map(int, state["turn"])

    def close(self) -> None:
        self._close_slots()
        self._inputs.close()
        if self._workers is not None:
            self._workers.close()

    def _close_slots(self) -> None:
        for i, slot in enumerate(self._slots):
            if slot is not None:
                slot.rows.close()
            self._slots[i] = None


@dataclass(eq=False)
class _Slot:
    """An open dataset and the source's position before the element it was made from."""

    number: int
    before: State
    rows: Lookahead


@dataclass(eq=False)
class _Picks:
    """The rows that come next, as blocks of (slot, first row, number of rows).

    Rows are counted from the first row that a slot has not yet returned.
    """

    used: list[int]  # rows picked of each slot
    total: int = 0  # rows picked of all slots
    slots: list[NDArray[np.int64]] = field(default_factory=list)
    starts: list[NDArray[np.int64]] = field(default_factory=list)
    counts: list[NDArray[np.int64]] = field(default_factory=list)

    def add_block(self, slot: int, count: int) -> None:
        """Add the next `count` rows of one slot."""
        self._add(np.array([slot]), np.array([self.used[slot]]), count)
        self.used[slot] += count
        self.total += count

    def add_rounds(self, active: list[int], rounds: int, block: int) -> None:
        """Add `rounds` times a block of every active slot, in turn."""
        used = np.array(self.used)[active]
        starts = np.arange(rounds)[:, None] * block + used
        self._add(np.tile(np.array(active), rounds), starts.reshape(-1), block)
        for slot in active:
            self.used[slot] += rounds * block
        self.total += len(active) * rounds * block

    def _add(
        self, slots: NDArray[np.int64], starts: NDArray[np.int64], count: int
    ) -> None:
        self.slots.append(slots)
        self.starts.append(starts)
        self.counts.append(np.full(len(slots), count))

    def gather(self, slots: list[_Slot | None]) -> Chunk:
        """Take the picked rows out of the slots and return them in order."""
        parts = []
        for slot, used in zip(slots, self.used, strict=True):
            if used:
                assert slot is not None
                parts.append(slot.rows.give(used))
        joined = concatenate(parts)
        if len(parts) == 1:
            return joined
        # `joined` holds the rows slot by slot. Row k of a block is at the slot's base,
        # plus the block's start, plus k; all blocks are expanded at once.
        counts = np.concatenate(self.counts)
        base = np.cumsum(self.used) - np.array(self.used)
        starts = np.concatenate(self.starts) + base[np.concatenate(self.slots)]
        shift = np.repeat(starts - (np.cumsum(counts) - counts), counts)
        return joined.take(shift + np.arange(self.total))


def check_slots(saved: int, now: int, name: str) -> None:
    """Raise `InputError` if a position was saved with another number of slots."""
    if saved != now:
        raise InputError(
            f"cannot resume the input: {name} had {saved} slots when the position was "
            f"saved and has {now} now. Restore the old cycle_length, or start the "
            "input from its beginning."
        )
