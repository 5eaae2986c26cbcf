"""The compiled programs of a bundle: one for each function and batch size.

    programs = Programs(bundle, BatchingConfig())
    programs.compile()                        # before the version is available
    programs.run("predict", raw_batch)        # compiles nothing

A request must not wait for the compiler, which takes 0.1 s or more for each shape. So
every batch size is compiled ahead, a batch is padded to the next size by repeating its
last row, and lists of multi-valued features are padded to one length. Only a batch with
longer lists, or with a dense feature of free width, has a shape of its own. It raises
`NotCompiledError`, and the caller runs it in a thread for which no other batch waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax import transforms
from estimax.core.sparse import padded_length
from estimax.export import Bundle
from estimax.export.bundle import with_last_row_repeated
from estimax.export.functions import BATCH, ArgumentSpec
from estimax.serving.config import BatchingConfig
from estimax.staging import plan as plans

Arrays = Mapping[str, NDArray[Any]]
Shapes = tuple[tuple[int, ...], ...]  # of the arrays, in the order of their names


class NotCompiledError(Exception):
    """There is no program for the shapes of a batch yet."""


class Programs:
    """The programs of one loaded bundle.

    Args:
      bundle: The bundle.
      batching: Batch sizes and the length of lists.
    """

    def __init__(self, bundle: Bundle, batching: BatchingConfig) -> None:
        self._bundle = bundle
        self._batching = batching
        self._groups = bundle.program_groups()
        self._group_of = {
            name: index for index, group in enumerate(self._groups) for name in group
        }
        self._fills = _list_fills(bundle)
        self._compiled: dict[tuple[int, Shapes], Any] = {}
        self._lock = threading.Lock()
        self.late_compiles = 0  # while requests were answered; see the module
        self._is_ready = False

    def compile(self, check: Callable[[], None] = lambda: None) -> None:
        """Compile every program for every batch size, and run each once.

        Args:
          check: Called before each program; raises if nobody wants them any more.
        """
        example = self._bundle.transform(self._bundle.example())
        for size in self._batching.batch_sizes:
            arrays = self._padded({n: a[:1] for n, a in example.items()}, size)
            for group in self._groups:
                check()
                name = next(iter(group))
                for answer in self._compute(name, arrays, may_compile=True).values():
                    answer.block_until_ready()
        self._is_ready = True

    def run(
        self, signature: str, batch: plans.RawBatch, may_compile: bool = False
    ) -> dict[str, NDArray[Any]]:
        """Return the answers of a signature for at most `max_batch_size` rows.

        Raises:
          NotCompiledError: The batch has a new shape, and `may_compile` is False.
        """
        arrays = self._bundle.transform(batch)
        rows = len(next(iter(arrays.values())))
        size = next(n for n in self._batching.batch_sizes if n >= rows)
        computed = self._compute(signature, self._padded(arrays, size), may_compile)
        forwarded = self._bundle.forwarded(batch)
        return {
            spec.name: spec.to_wire(
                np.asarray(computed[spec.name])[:rows]
                if spec.forwards is None
                else forwarded[spec.forwards]
            )
            for spec in self._bundle.signature(signature).outputs
        }

    def _compute(self, signature: str, arrays: Arrays, may_compile: bool) -> Any:
        shapes = tuple(array.shape for array in arrays.values())
        index = self._group_of[signature]
        key = index, shapes
        program = self._compiled.get(key)
        if program is None:
            if not may_compile:
                raise NotCompiledError
            program = self._compile(key, arrays)
        answers = program(self._bundle.weights, arrays)
        return answers[self._groups[index][signature]]

    def _compile(self, key: tuple[int, Shapes], arrays: Arrays) -> Any:
        with self._lock:
            if key not in self._compiled:
                distinct = dict.fromkeys(self._groups[key[0]].values())
                self._compiled[key] = self._bundle.compile(list(distinct), arrays)
                self.late_compiles += self._is_ready
            return self._compiled[key]

    def _padded(self, arrays: Arrays, size: int) -> dict[str, NDArray[Any]]:
        """Pad to `size` rows, and all lists to one length, so that few shapes exist."""
        lengths = [
            array.shape[axis]
            for name, array in arrays.items()
            if name in self._fills
            for axis in self._fills[name].axes
        ]
        length = padded_length(max([self._batching.list_length, *lengths]))
        return {
            name: with_last_row_repeated(
                _with_lists(array, self._fills.get(name), length), size
            )
            for name, array in arrays.items()
        }


@dataclass(frozen=True)
class _ListFill:
    """How the lists of an array are padded."""

    axes: tuple[int, ...]
    value: float


def _list_fills(bundle: Bundle) -> dict[str, _ListFill]:
    """Return how to pad each array with lists of free length.

    Only results of transforms that pad lists themselves are here: their programs treat
    padding as absent. A wider raw array would be another input.
    """
    found = {}
    for call in bundle.plan.calls:
        transform = call.transform
        is_padded = isinstance(transform, transforms.PadIds) or (
            isinstance(transform, transforms.SequenceIds | transforms.SequenceNumbers)
            and transform.rounded
        )
        for name, spec in bundle.arguments.items() if is_padded else ():
            if name == f"staged/{call.name}" or name.startswith(f"staged/{call.name}/"):
                axes = _free_axes(spec)
                found[name] = _ListFill(axes, _fill_value(transform, spec))
    return {name: fill for name, fill in found.items() if fill.axes}


def _free_axes(spec: ArgumentSpec) -> tuple[int, ...]:
    return tuple(
        axis
        for axis, size in enumerate(spec.shape)
        if axis and isinstance(size, str) and size != BATCH
    )


def _fill_value(transform: Any, spec: ArgumentSpec) -> float:
    kind = np.dtype(spec.dtype).kind
    if kind == "i":
        return -1  # no id
    if kind == "f" and isinstance(transform, transforms.SequenceNumbers):
        return transform.default
    return 0  # weights, and which numbers are present


def _with_lists(
    array: NDArray[Any], fill: _ListFill | None, length: int
) -> NDArray[Any]:
    if fill is None or all(array.shape[axis] == length for axis in fill.axes):
        return array
    more = [(0, 0)] * array.ndim
    for axis in fill.axes:
        more[axis] = 0, length - array.shape[axis]
    return np.pad(array, more, constant_values=fill.value)
