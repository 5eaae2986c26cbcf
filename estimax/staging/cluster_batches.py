"""Batches of a cluster: every process brings its part of each, all of one shape.

    batches = ClusterBatches(steps, peers, requests, prepare=…, misfit=…)
    for batch in batches: ...       # a PlacedBatch on the host; all processes have one

Before a batch is sent to the devices, the processes exchange its size and the widths of
its padded ids, and pad to the widest. A step begins only when every process has its
part, so that a slow input keeps the others waiting here and not on the device.

If every process reads the whole batch and takes its part of the rows, they also compare
a checksum of the rows of input that has no fingerprint, such as a generator.

Training ends for all processes at the first step for which one has no batch, or one of
another size; what the others have left is not trained on. A batch that does not divide
over the devices, such as a short last one, is left out.
"""

from __future__ import annotations

import contextlib
import logging
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from estimax.core.errors import ClusterError, InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.parallel.processes import BATCH, Processes
from estimax.parallel.requests import INTERRUPTED, STOP, Requests
from estimax.staging.batches import PlacedBatch
from estimax.staging.host_plan import RawBatch

_log = logging.getLogger("estimax")


# (sizes of the batches, widths of padded ids, other arrays) -> widths to pad to
Agree = Callable[[Sequence[int], Mapping[str, int], Any], Mapping[str, int]]


class ClusterBatches:
    """An iterator of batches in which all processes take part.

    Args:
      steps: What this process reads: the element of each step, and the position
        behind it.
      peers: The processes.
      requests: What hooks and signals of this process ask for.
      prepare: Prepares one element. It calls its second argument, an `Agree`, and
        pads ids to the widths that this returns.
      misfit: Returns why an element cannot be divided over the devices, or "".
      checksum: Returns a checksum of an element, which must be equal in all
        processes; None compares nothing.
      limit: The most batches to give; None gives all.
    """

    def __init__(
        self,
        steps: Iterator[tuple[Any, Any]],
        peers: Processes,
        requests: Requests,
        *,
        prepare: Callable[[Any, Agree], PlacedBatch],
        misfit: Callable[[Any], str],
        checksum: Callable[[Any], int] | None = None,
        limit: int | None = None,
    ) -> None:
        self._steps = steps
        self._peers = peers
        self._requests = requests
        self._prepare = prepare
        self._misfit = misfit
        self._checksum = checksum
        self._rows: int | None = None  # the checksum of the present element
        self._left = limit
        self._agreed: frozenset[str] = frozenset()
        self._is_first = True
        self._is_closed = False

    def close(self) -> None:
        """Give up waiting for the other processes; may be called in any thread."""
        # Only a flag, which `gather` polls: the input thread is inside of `__next__`,
        # so nothing else of this object may be touched.
        self._is_closed = True

    def __iter__(self) -> Iterator[PlacedBatch]:
        return self

    def __next__(self) -> PlacedBatch:
        # No exchange at the limit: it is the same step in all processes, so none of
        # them waits for another batch.
        if self._left == 0:
            raise StopIteration
        step = self._next_fitting()
        if step is None:
            # The others are waiting for this process: tell them that it has no batch.
            with contextlib.suppress(_EndedError):
                self._exchange(None, {}, None)
            raise StopIteration
        element, position = step
        # Before `prepare`, whose exchange sends the checksum with the sizes: a second
        # round trip for each batch would take longer than the checksum.
        self._rows = None if self._checksum is None else self._checksum(element)
        try:
            batch = self._prepare(element, self._exchange)
        except _EndedError:
            raise StopIteration from None
        if self._left is not None:
            self._left -= 1
        examples = batch.examples * self._peers.count
        return replace(batch, examples=examples, position=position, agreed=self._agreed)

    def _next_fitting(self) -> tuple[Any, Any] | None:
        """Return the next step that divides over the devices; None at the end."""
        for element, position in self._steps:
            misfit = self._misfit(element)
            if not misfit:
                self._is_first = False
                return element, position
            # A short last batch is left out. A first batch that does not fit means that
            # no batch will, which must not look like an empty input.
            if self._is_first:
                raise InputError(
                    f"{misfit}. In a cluster every batch must divide evenly: choose "
                    "another batch size."
                )
            _log.warning("%s, and is left out", misfit)
        return None

    def _exchange(
        self, sizes: Sequence[int] | None, widths: Mapping[str, int], arrays: Any
    ) -> Mapping[str, int]:
        """Tell all processes about this batch; return the widths to pad to."""
        # The widths of ids may differ, and are agreed below. All other shapes must be
        # the same, or the processes would compile different programs and wait for ever
        # in their first collective operation.
        shapes = [(leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(arrays)]
        mine = {
            "sizes": sizes,
            "widths": dict(widths),
            "shapes": zlib.crc32(repr(shapes).encode()),
            "rows": self._rows,
            "asks": self._requests.take(),
        }
        # Waits until every process has called this. It runs in the input thread, so a
        # step on the device never waits for a process that has no batch yet.
        found = self._peers.gather(BATCH, mine, lambda: self._is_closed)
        self._note_requests([one["asks"] for one in found])
        # Every process has the same list, so all of them decide the same here.
        if STOP in self._agreed or self._is_over([one["sizes"] for one in found]):
            raise _EndedError
        if len({one["shapes"] for one in found}) > 1:
            raise ClusterError(
                "the batches of the processes have different shapes, although they "
                f"have as many rows; here they are {shapes}. Pad features to one "
                "length in the input_fn."
            )
        self._check_rows([one["rows"] for one in found])
        return {
            name: max(one["widths"].get(name, 0) for one in found) for name in widths
        }

    def _check_rows(self, checksums: Sequence[int | None]) -> None:
        """Raise if the processes have read different rows for the same batch."""
        if len(set(checksums)) == 1:
            return
        names: dict[int | None, list[str]] = {}
        for index, checksum in enumerate(checksums):
            names.setdefault(checksum, []).append(self._peers.name_of(index))
        told = "; ".join(
            f"checksum {checksum} in {', '.join(who)}"
            for checksum, who in names.items()
        )
        raise ClusterError(
            "the processes of the cluster read different rows for the same batch: "
            f"{told}. An input_fn without input_context must return the same batches "
            "in all processes, of which each takes its part: give a shuffle a fixed "
            "seed, and list files in a fixed order. To give every process a share of "
            "its own, let the input_fn take input_context, or set "
            "RunConfig(split_batches=False)."
        )

    def _note_requests(self, asks: Sequence[Sequence[str]]) -> None:
        every = {request for asked in asks for request in asked}
        for index, asked in enumerate(asks):
            for request in asked:
                if request.startswith(INTERRUPTED):
                    name = request.removeprefix(INTERRUPTED)
                    where = self._peers.name_of(index)
                    self._requests.interrupted_by = f"{name} in {where}"
                    every.add(STOP)
        self._agreed = frozenset(every)

    def _is_over(self, sizes: Sequence[Sequence[int] | None]) -> bool:
        if all(one == sizes[0] for one in sizes):
            return sizes[0] is None
        told = ", ".join(
            f"{self._peers.name_of(i)} {'none' if one is None else sum(one)}"
            for i, one in enumerate(sizes)
        )
        _log.info(
            "the data ends here for all processes, because their next batches differ; "
            "examples: %s",
            told,
        )
        return True


class _EndedError(Exception):
    """Raised within `prepare` if the processes agreed to end."""


def checksum_of_rows(batch: RawBatch, crc: int = 0) -> int:
    """Return a CRC of the names, types, shapes and bytes of all values of a batch.

    `crc` is the CRC of the batches before it.

    >>> from estimax.staging.trace import Origin
    >>> x = Origin("features", "x")
    >>> checksum_of_rows({x: np.ones(3)}) == checksum_of_rows({x: np.zeros(3)})
    False
    """
    for origin in sorted(batch, key=lambda one: one.name):
        crc = zlib.crc32(origin.name.encode(), crc)
        for array in _arrays_of(batch[origin]):
            crc = zlib.crc32(f"{array.dtype}{array.shape}".encode(), crc)
            flat = np.ascontiguousarray(array).reshape(-1)
            crc = zlib.crc32(flat.view(np.uint8).data, crc)
    return crc


def _arrays_of(value: Any) -> Iterator[Any]:
    """Yield the arrays of numbers that a raw value consists of."""
    if isinstance(value, Strings):
        yield value.lengths.reshape(value.shape)
        yield value.data[value.offsets[0] : value.offsets[-1]]
    elif isinstance(value, Sparse):
        yield value.indices
        yield from _arrays_of(value.values)
    else:
        yield np.asarray(value)
