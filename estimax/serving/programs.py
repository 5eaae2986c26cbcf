"""The compiled programs of a bundle: one for each function and batch size.

    programs = Programs(bundle, BatchingConfig())
    programs.compile()                        # before the version is available
    programs.run("predict", raw_batch)        # compiles nothing

A request must not wait for the compiler, which takes 0.1 s or more for each shape. So
every batch size is compiled ahead, a batch is padded to the next size by repeating its
last row, and lists of multi-valued features are padded to one length. Only a batch with
longer lists, or with a dense feature of free width, may have a shape that is new. It
raises `NotCompiledError`, and the caller runs it in a thread for which no other batch
waits. Such shapes are few: lists have one of a few lengths, and after `MOST_LEARNED`
shapes no more are compiled. `learned` returns them, for the next version to compile
before it is ready.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from estimax.export import Bundle
from estimax.export.bundle import with_last_row_repeated
from estimax.export.functions import BATCH, ArgumentSpec
from estimax.feature_columns import transforms
from estimax.serving.config import BatchingConfig
from estimax.serving.status import ServingError, invalid
from estimax.staging import host_plan as plans

NamedArrays = Mapping[str, NDArray[Any]]
ArgumentShapes = tuple[
    tuple[int, ...], ...
]  # of the arrays, in the order of their names
NamedShapes = Mapping[str, tuple[int, ...]]
MOST_LEARNED: Final = 64  # shapes that are compiled while requests are answered


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
        self._compiled: dict[tuple[int, ArgumentShapes], Any] = {}
        # Serializes compiling. Reading `_compiled` needs no lock: entries are only
        # added, and a program never changes.
        self._lock = threading.Lock()
        self.late_compiles = 0  # while requests were answered; see the module
        self._learned: dict[ArgumentShapes, None] = {}
        self._is_ready = False

    def compile(
        self,
        shapes: Iterable[NamedShapes] = (),
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Compile every program for every batch size, and run each once.

        Args:
          shapes: Further shapes to compile for, which `learned` of the programs of
            another version returned. Those that do not fit this one are left out.
          check: Called before each shape; raises if nobody wants them any more.
        """
        example = self._bundle.transform(self._bundle.example())
        row = {n: a[:1] for n, a in example.items()}
        batching = self._batching
        for size in batching.batch_sizes:
            check()
            self._run_once(self._pad(row, size, batching.list_lengths[0]))
        if (length := self._length(example)) > batching.list_lengths[0]:
            for size in batching.sizes_of_long_lists:  # the model's lists are long
                check()
                self._run_once(self._pad(row, size, length))
        for wanted in shapes:
            if self._fits(wanted):
                check()
                self._run_once(
                    {
                        name: np.zeros(wanted[name], spec.dtype)
                        for name, spec in self._bundle.arguments.items()
                    }
                )
                self._learned[tuple(wanted[n] for n in self._bundle.arguments)] = None
        self._is_ready = True

    def learned(self) -> list[NamedShapes]:
        """Return the shapes of requests that were compiled beside the batch sizes."""
        names = list(self._bundle.arguments)
        return [dict(zip(names, s, strict=True)) for s in list(self._learned)]

    def _run_once(self, arrays: NamedArrays) -> None:
        for group in self._groups:
            name = next(iter(group))
            for answer in self._compute(name, arrays, may_compile=True).values():
                answer.block_until_ready()

    def _fits(self, shapes: NamedShapes) -> bool:
        """Return whether the arguments of this bundle may have these shapes."""
        arguments = self._bundle.arguments
        free: dict[str, int] = {}
        return shapes.keys() == arguments.keys() and all(
            len(shapes[name]) == len(spec.shape)
            and all(
                (free.setdefault(dim, n) if isinstance(dim, str) else dim) == n
                for dim, n in zip(spec.shape, shapes[name], strict=True)
            )
            for name, spec in arguments.items()
        )

    def run(
        self, signature: str, batch: plans.RawBatch, may_compile: bool = False
    ) -> dict[str, NDArray[Any]]:
        """Return the answers of a signature for at most `max_batch_size` rows.

        Raises:
          NotCompiledError: The batch has a new shape, and `may_compile` is False.
          ServingError: A list is longer than `max_list_length`, or the batch has a new
            shape, and too many others have been compiled.
        """
        arrays = self._bundle.transform(batch)
        rows = len(next(iter(arrays.values())))
        # All lists of a batch get one length. A length for each feature would multiply
        # the number of shapes.
        length = self._length(arrays)
        is_long = length > self._batching.list_lengths[0]
        sizes = (
            self._batching.sizes_of_long_lists
            if is_long
            else self._batching.batch_sizes
        )
        # There is one: the queue makes no batch of more rows than the largest size.
        size = next(n for n in sizes if n >= rows)
        padded = self._pad(arrays, size, length)
        computed = self._compute(signature, padded, may_compile)
        # From the batch as it came: forwarded features never go to the device.
        forwarded = self._bundle.forwarded(batch)
        return {
            spec.name: spec.to_wire(
                np.asarray(computed[spec.name])[:rows]
                if spec.forwards is None
                else forwarded[spec.forwards]
            )
            for spec in self._bundle.signature(signature).outputs
        }

    def _compute(self, signature: str, arrays: NamedArrays, may_compile: bool) -> Any:
        shapes = tuple(array.shape for array in arrays.values())
        index = self._group_of[signature]
        key = index, shapes
        # Never `jit`, which would compile a new shape without asking.
        program = self._compiled.get(key)
        if program is None:
            if not may_compile:
                raise NotCompiledError
            program = self._compile(key, arrays)
        answers = program(self._bundle.weights, arrays)
        return answers[self._groups[index][signature]]

    def _compile(self, key: tuple[int, ArgumentShapes], arrays: NamedArrays) -> Any:
        with self._lock:
            if key not in self._compiled:
                if self._is_ready:
                    self._learn(key[1])
                distinct = dict.fromkeys(self._groups[key[0]].values())
                self._compiled[key] = self._bundle.compile(list(distinct), arrays)
                self.late_compiles += self._is_ready
            return self._compiled[key]

    def _learn(self, shapes: ArgumentShapes) -> None:
        if shapes not in self._learned and len(self._learned) >= MOST_LEARNED:
            raise invalid(
                f"expected one of the {MOST_LEARNED} shapes of features that were "
                "compiled for other requests, found another. Pad features of free "
                "width to a few sizes."
            )
        self._learned[shapes] = None

    def _length(self, arrays: NamedArrays) -> int:
        """Return the length to which all lists of a batch are padded."""
        longest = max(
            (
                array.shape[axis]
                for name, array in arrays.items()
                if name in self._fills
                for axis in self._fills[name].axes
            ),
            default=0,
        )
        lengths = self._batching.list_lengths
        found = next((length for length in lengths if length >= longest), None)
        if found is None:
            raise too_long(longest, self._batching.max_list_length)
        return found

    def _pad(
        self, arrays: NamedArrays, size: int, length: int
    ) -> dict[str, NDArray[Any]]:
        """Pad to `size` rows, and all lists to `length`, so that few shapes exist."""
        return {
            name: with_last_row_repeated(
                _pad_lists(array, self._fills.get(name), length), size
            )
            for name, array in arrays.items()
        }


def too_long(found: int, most: int, name: str | None = None) -> ServingError:
    """Return the error of a request with a list that is too long."""
    where = "" if name is None else f"feature {name!r}: "
    return invalid(
        f"{where}expected lists of at most {most} values, found {found}. Send shorter "
        "lists, or set max_list_length of the server's batching."
    )


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


def _pad_lists(
    array: NDArray[Any], fill: _ListFill | None, length: int
) -> NDArray[Any]:
    if fill is None or all(array.shape[axis] == length for axis in fill.axes):
        return array
    more = [(0, 0)] * array.ndim
    for axis in fill.axes:
        more[axis] = 0, max(length - array.shape[axis], 0)
    padded = np.pad(array, more, constant_values=fill.value)
    # Only the example of a bundle has longer lists; to compile, its first values do.
    kept = (
        slice(length) if axis in fill.axes else slice(None)
        for axis in range(array.ndim)
    )
    return padded[tuple(kept)]
