"""rejection_resample: elements dropped at random until classes have other shares.

An element of class c is kept with probability proportional to target[c] / initial[c],
drawn from (seed, pass, position): the same elements again after a resume.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from estimax.core.errors import InputError
from estimax.input.streams.chunks import Chunk, Elements
from estimax.input.streams.stream import Context, Node, State, Stream
from estimax.input.streams.structure import call
from estimax.input.verbs.shuffle import uniforms

_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Resample:
    """Pairs of class and element, in the target's proportions."""

    source: Node
    class_func: Callable[..., Any]
    target: tuple[float, ...]
    initial: tuple[float, ...] | None  # None: counted as elements come
    seed: int | None = None
    name = "rejection_resample"
    columnar = False

    def __post_init__(self) -> None:
        initial = self.target if self.initial is None else self.initial
        known = self.initial is not None
        if len(self.target) != len(initial) or (known and min(initial) <= 0):
            raise InputError(
                "rejection_resample: expected a target and an initial share for every "
                f"class, the initial ones above 0; got {self.target} and {initial}."
            )

    def open(self, context: Context) -> ResampleStream:
        """The draws of this pass."""
        seed = context.seed if self.seed is None else self.seed
        key = ("resample", seed, context.path)
        return ResampleStream(self, self.source.open(context), key)


class ResampleStream:
    """The source, and how many elements were drawn for."""

    def __init__(self, node: Resample, source: Stream, key: tuple[Any, ...]) -> None:
        self._node = node
        self._source = source
        self._key = key
        self._at = 0
        self._block = -1
        self._draws = np.empty(0)
        # Every class counts as seen once, so that none is impossible.
        self._counts = np.ones(len(node.target))

    def read(self, n: int) -> Chunk | None:
        """The kept ones of the next elements."""
        while (chunk := self._source.read(min(n, _BLOCK))) is not None:
            kept = []
            for i in range(len(chunk)):
                element = chunk.element(i)
                number = int(call(self._node.class_func, element))
                if self._draw() < self._chance(number):
                    kept.append((np.int64(number), element))
            if kept:
                return Elements(kept)
        return None

    def _chance(self, number: int) -> float:
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
        """How many were drawn for, and the counts of classes."""
        counts = self._counts.tolist()
        return {"at": self._at, "counts": counts, "source": self._source.get_state()}

    def set_state(self, state: State) -> None:
        """Go on from there."""
        self._at, self._counts = int(state["at"]), np.array(state["counts"])
        self._source.set_state(state["source"])

    def close(self) -> None:
        """Close the source."""
        self._source.close()
