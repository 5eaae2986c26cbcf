"""Random verbs: shuffle and rejection_resample.

    WindowShuffle(source, 10_000, seed=7)     # window k is permuted by (seed, epoch, k)
    Resample(source, class_func, target=(0.5, 0.5), initial=None)

Both draw numbers that are a pure function of (seed, epoch, position): `permutation` and
`uniforms` give the same numbers on every machine.

Shuffle reads windows of `buffer_size` elements and permutes each. As in TensorFlow,
output position p only holds input elements with index < p + buffer_size, and a buffer
as large as the data gives a uniform permutation. TensorFlow swaps elements through a
reservoir; here an element never leaves its window. The position is therefore two
integers instead of a buffer, and resuming reads at most one window.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.input.streams.chunks import Chunk, Columns, ElementList
from estimax.input.streams.stream import (
    Context,
    State,
    Stream,
    VerbNode,
    VerbStream,
    check_at_least,
    check_same,
    read_up_to_error,
)
from estimax.input.streams.structure import call

# Rows are gathered this many at a time and then sliced. Gathering one batch at a time
# would load every column into the processor's cache again for each batch; this halves
# the cost of 1024 rows of text.
_GATHERED_AT_ONCE = 16_384


def permutation(n: int, *key: object) -> NDArray[np.int64]:
    """Return a uniform permutation of range(n) that depends on `key` only.

    It is the same on every machine and NumPy version: NumPy guarantees the output of
    its bit generators, but not the stream of `Generator.permutation`.

    >>> sorted(permutation(5, "seed", 0).tolist())
    [0, 1, 2, 3, 4]
    """
    raw = _random_bits(n, key)
    # The index in the low bits makes all keys distinct: the order does not depend on
    # how a sort treats equal keys, and the low bits of the sorted keys are the result.
    bits = np.uint64(max(n - 1, 0).bit_length())
    keys = (raw >> bits << bits) | np.arange(n, dtype=np.uint64)
    keys.sort()
    return (keys & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)


def uniforms(n: int, *key: object) -> NDArray[np.float64]:
    """Return n numbers in [0, 1) that depend on `key` only, on every machine.

    >>> 0 <= uniforms(1, "seed", 0)[0] < 1
    np.True_
    """
    return (_random_bits(n, key) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _random_bits(n: int, key: tuple[object, ...]) -> NDArray[np.uint64]:
    digest = hashlib.blake2b(repr(key).encode(), digest_size=16).digest()
    raw = np.random.Philox(key=int.from_bytes(digest, "little")).random_raw(n)
    return np.asarray(raw, np.uint64)


@dataclass(frozen=True, eq=False)
class WindowShuffle(VerbNode):
    """A random order within windows of `buffer_size` elements."""

    buffer_size: int
    seed: int | None = None
    reshuffle_each_iteration: bool = True
    name = "shuffle"

    def __post_init__(self) -> None:
        check_at_least(1, self.buffer_size, "shuffle: buffer_size")

    def open(self, context: Context) -> Stream:
        source = self.source.open(context.below_shuffle())
        return _ShuffleStream(source, self.buffer_size, self.seed, self._key(context))

    def _key(self, context: Context) -> tuple[object, ...]:
        if not self.reshuffle_each_iteration:
            # One order for all passes, even without a seed: after shuffle(), take() and
            # skip() must split the data the same way in every iterator and process.
            return ("fixed", self.seed or 0)
        if self.seed is None:
            return ("run", context.seed, context.depth, context.path)
        return ("seed", self.seed, context.path)


class _ShuffleStream(VerbStream):
    """One window of the source in memory, returned in a permuted order."""

    def __init__(
        self, source: Stream, size: int, seed: int | None, key: tuple[object, ...]
    ) -> None:
        super().__init__(source)
        self._size = size
        self._seed = seed
        self._key = key
        self._window = 0  # number of the current window
        self._row = 0  # rows of it already returned
        self._chunk: Chunk | None = None  # the current window
        self._order = np.empty(0, np.int64)
        self._start: State = {}  # the source's position where the window begins
        self._gathered: Chunk | None = None  # rows in the new order, from _gathered_at
        self._gathered_at = 0
        self._held: Chunk | None = None  # a window whose error was just raised
        self._told = False  # whether the error that cut this window short was raised

    def read(self, n: int) -> Chunk | None:
        if self._chunk is None:
            self._chunk = self._load()
            if self._chunk is None:
                return None
            self._order = permutation(len(self._chunk), *self._key, self._window)
        out = self._gather(self._chunk, n)
        self._row += len(out)
        if self._row == len(self._order):
            self._chunk, self._row, self._window = None, 0, self._window + 1
            self._gathered = None
            self._told = False
        return out

    def _load(self) -> Chunk | None:
        """Read the next window. An error in the source ends the window early.

        The error is raised before any element of that window is returned. A run that
        stops there, repairs the data and resumes gets the order of intact data; a run
        that goes on (ignore_errors) gets the shorter window with the next read.
        """
        if self._held is not None:
            held, self._held = self._held, None
            return held
        self._start = self._source.get_state()
        chunk, error = read_up_to_error(self._source, self._size)
        if error is None or self._told:
            return chunk
        self._held, self._told = chunk, chunk is not None
        raise error

    def _gather(self, window: Chunk, n: int) -> Chunk:
        used = self._row - self._gathered_at
        if self._gathered is None or used >= len(self._gathered):
            rows = self._order[self._row : self._row + max(n, _GATHERED_AT_ONCE)]
            self._gathered, self._gathered_at = window.take(rows), self._row
            used = 0
        return self._gathered.slice(used, used + n)

    def get_state(self) -> State:
        # With a window in memory, the position is where that window begins.
        in_memory = self._chunk is not None or self._held is not None
        return {
            "told": self._told,
            "window": self._window,
            "row": self._row,
            "buffer_size": self._size,
            "seed": self._seed,
            "source": self._start if in_memory else self._source.get_state(),
        }

    def set_state(self, state: State) -> None:
        # The next read loads the window again.
        check_same("shuffle's buffer_size", state["buffer_size"], self._size)
        check_same("shuffle's seed", state["seed"], self._seed)
        self._source.set_state(state["source"])
        self._window, self._row = int(state["window"]), int(state["row"])
        self._chunk = self._gathered = self._held = None
        self._told = bool(state["told"])

    def close(self) -> None:
        self._chunk = self._gathered = self._held = None  # frees the memory
        super().close()


# Random numbers are drawn this many at a time.
_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class RandomNumbers:
    """Numbers from 0 to 2**32 - 1 without end, as int64."""

    seed: int | None = None
    rerandomize: bool = False
    name = "random"
    source = None
    columnar = True

    def open(self, context: Context) -> Stream:
        key: tuple[object, ...] = ("random", self.seed)
        if self.seed is None or self.rerandomize:
            seed = context.seed if self.seed is None else self.seed
            key = ("random", seed, context.path)
        return _RandomStream(key)


class _RandomStream:
    """A count of the numbers read; each depends on the key and its place only."""

    def __init__(self, key: tuple[object, ...]) -> None:
        self._key = key
        self._at = 0
        self._block = -1  # the number of the block in `_numbers`
        self._numbers = np.empty(0, np.int64)

    def read(self, n: int) -> Chunk | None:
        block, place = divmod(self._at, _BLOCK)
        if block != self._block:
            bits = _random_bits(_BLOCK, (*self._key, block)) >> np.uint64(32)
            self._block, self._numbers = block, bits.astype(np.int64)
        numbers = self._numbers[place : place + n].copy()
        self._at += len(numbers)
        return Columns(numbers, len(numbers))

    def get_state(self) -> State:
        return {"at": self._at}

    def set_state(self, state: State) -> None:
        self._at = int(state["at"])

    def close(self) -> None:
        pass


@dataclass(frozen=True, eq=False)
class Resample(VerbNode):
    """Pairs (class, element), where classes come in the proportions of `target`."""

    class_func: Callable[..., Any]
    target: tuple[float, ...]
    initial: tuple[float, ...] | None  # None: estimated while reading
    seed: int | None = None
    name = "rejection_resample"
    columnar = False

    def __post_init__(self) -> None:
        initial = self.target if self.initial is None else self.initial
        known = self.initial is not None
        if len(self.target) != len(initial) or (known and min(initial) <= 0):
            raise InputError(
                "rejection_resample: target_dist and initial_dist need one share for "
                "each class, and initial shares must be above 0; got "
                f"{self.target} and {initial}."
            )

    def open(self, context: Context) -> Stream:
        seed = context.seed if self.seed is None else self.seed
        key = ("resample", seed, context.path)
        return _ResampleStream(self, self.source.open(context), key)


class _ResampleStream(VerbStream):
    """The source, one random number for each of its elements, and counts of classes."""

    def __init__(self, node: Resample, source: Stream, key: tuple[Any, ...]) -> None:
        super().__init__(source)
        self._node = node
        self._key = key
        self._at = 0  # random numbers used
        self._block = -1
        self._draws = np.empty(0)
        # Counts start at 1, so that no class has a share of 0.
        self._counts = np.ones(len(node.target))

    def read(self, n: int) -> Chunk | None:
        while (chunk := self._source.read(min(n, _BLOCK))) is not None:
            kept = []
            for i in range(len(chunk)):
                element = chunk.element(i)
                number = int(call(self._node.class_func, element))
                if self._draw() < self._chance(number):
                    kept.append((np.int64(number), element))
            if kept:
                return ElementList(kept)
        return None

    def _chance(self, number: int) -> float:
        """Return the probability of keeping an element of class `number`."""
        initial = self._node.initial
        if initial is None:
            self._counts[number] += 1
        share = self._counts / self._counts.sum() if initial is None else initial
        ratio = np.array(self._node.target) / np.array(share)
        return float(ratio[number] / ratio.max())

    def _draw(self) -> float:
        block, place = divmod(self._at, _BLOCK)
        if block != self._block:
            self._draws = uniforms(_BLOCK, *self._key, block)
            self._block = block
        self._at += 1
        return float(self._draws[place])

    def get_state(self) -> State:
        counts = self._counts.tolist()
        return {"at": self._at, "counts": counts, "source": self._source.get_state()}

    def set_state(self, state: State) -> None:
        self._at, self._counts = int(state["at"]), np.array(state["counts"])
        self._source.set_state(state["source"])
