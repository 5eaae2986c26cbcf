"""The feed: from an `input_fn` to batches on the device, each with its position.

with Feed(input_fn, position=None) as feed:
    program = compile(record(function, feed.first, mode), placement)
    for batch in feed.batches(program.plan): ...     # from a background thread
    for stack in feed.stacks(program.plan, length=16): ...    # several at once

A batch passes three objects. The source (a `DatasetIterator`, or a `Cursor` over any
other iterable) knows the position in the data, with pass and epoch. `ResumableBatches`
reads it, checks the batch, and knows the position of the call. The `Feed` owns the
thread: it asks for the position after each batch, prepares and packs the batch and
copies it to the device. From there on the position travels with its batch, so that a
checkpoint holds the position of the batch last trained on, however far ahead the thread
has read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from estimax.core.errors import InputError
from estimax.input.adapters import LabeledBatch
from estimax.input.streams import columns
from estimax.input.streams.background import Background
from estimax.parallel import Placement
from estimax.parallel.processes import Processes
from estimax.parallel.requests import Requests
from estimax.staging import host_plan as plans
from estimax.staging.batches import BatchStack, PlacedBatch
from estimax.staging.cluster_batches import Agree, ClusterBatches, checksum_of_rows
from estimax.staging.packing import ONE_DEVICE, pack, put
from estimax.staging.resume import ResumableBatches
from estimax.staging.stacking import stack_batches
from estimax.staging.trace import Origin

T = TypeVar("T")
# Both have `arrays`, which are copied to the device in the same way.
Placeable = TypeVar("Placeable", PlacedBatch, BatchStack)


class Feed:
    """The batches of one call to `train`, `evaluate` or `predict`.

    Args:
      make: Called without arguments; returns what the `input_fn` returns.
      position: Where the last call stopped; None starts at the beginning.
      has_ended: Whether the call that saved the position ended normally.
      may_start_over: False raises if the input cannot continue at the position.
      is_checked: False continues at the position without comparing the data.
      seed: Seed for shuffles that were given none.
      with_labels: Whether the model gets labels.
      parts: How many batches make up one step.
      placement: The devices of the batches.
      peers: The processes of a cluster that train together; None for one process.
      has_share: In a cluster, whether `make` returns a share of the data for this
        process alone. Otherwise all processes read the same batches, and each takes
        its part of the rows.
      epochs_of: Positions of another number of shares, at whose epoch the data starts.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        *,
        position: Any = None,
        has_ended: bool = False,
        may_start_over: bool = True,
        is_checked: bool = True,
        seed: int | None = None,
        with_labels: bool = True,
        parts: int = 1,
        placement: Placement = ONE_DEVICE,
        peers: Processes | None = None,
        has_share: bool = False,
        epochs_of: Sequence[Any] = (),
    ) -> None:
        self._placement = placement
        self._peers = peers
        self._has_share = has_share
        self.requests = Requests() if peers is not None else None
        self._with_labels = with_labels
        self._parts = parts
        self._batches = ResumableBatches(
            make,
            position,
            seed=seed,
            has_ended=has_ended,
            may_start_over=may_start_over,
            is_checked=is_checked,
            epochs_of=epochs_of,
        )
        self._ahead: Background[Any] | None = None
        self._cluster: ClusterBatches | None = None
        self._padded_size = 0

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        # The order matters. The thread may be waiting for the other processes, and must
        # give up before it can be joined. It must have ended before the input is
        # closed, because it may be reading a file.
        if self._cluster is not None:
            self._cluster.close()
        if self._ahead is not None:
            self._ahead.close()
        self._batches.close()

    @property
    def position(self) -> Any:
        """The position before the first batch."""
        return self._position(self._batches.start)

    @property
    def first(self) -> dict[Origin, Any] | None:
        """The first raw batch, which is not consumed; None if there is no data.

        It is the whole batch, also where each process of a cluster takes its part.
        """
        first = self._batches.first
        return None if first is None else self._whole(first)

    @property
    def endless(self) -> str:
        """Why the input never ends, with advice; empty if it ends or may end."""
        return self._batches.endless

    @property
    def waited_seconds(self) -> float:
        """How long the consumer has waited for batches so far, in seconds."""
        return 0.0 if self._ahead is None else self._ahead.waited_seconds

    @property
    def advice(self) -> str:
        """What makes the input slow, if that is known: a sentence, or ""."""
        return self._batches.advice

    def batches(
        self, plan: plans.HostPlan, *, depth: int, pads: bool = False
    ) -> Iterator[PlacedBatch]:
        """Yield batches that a thread has prepared and put on the device.

        `depth` is the number of batches that are prepared ahead. With `pads`, batches
        with a mask are padded to the size of the first.
        """
        if pads and plan.has_mask and self.first is not None:
            self._padded_size = plans.batch_size(self.first)
        yield from self._read_ahead(self._put(self._prepare_batches(plan)), depth)

    def stacks(
        self,
        plan: plans.HostPlan,
        *,
        depth: int,
        length: int | None,
        limit: int | None = None,
    ) -> Iterator[BatchStack]:
        """Yield stacks of up to `length` batches; None chooses by their size.

        In a cluster they hold one batch each, and end after `limit`.
        """
        # A cluster agrees on each batch, so it gets them one by one.
        if self._peers is None and length != 1:
            assert self._parts == 1, "accumulated batches are not stacked"
            raws = ((self._flatten(one), at) for (one,), at in self._read_steps())
            stacks = stack_batches(raws, plan, length=length, placement=self._placement)
            yield from self._read_ahead(self._put(stacks), depth)
            return
        batches = self._prepare_batches(plan, limit)
        for batch in self._read_ahead(self._put(batches), depth):
            yield BatchStack(
                batch.arrays, [batch.examples], [batch.position], agreed=batch.agreed
            )

    def _read_ahead(self, items: Iterator[T], depth: int) -> Iterator[T]:
        """Start the thread that reads `items`, up to `depth` of them ahead."""
        if depth < 1:
            raise InputError(f"Feed: depth must be at least 1, got {depth}.")
        ahead = self._ahead = Background(items, depth=depth, name="placement")
        return ahead

    def _put(self, items: Iterable[Placeable]) -> Iterator[Placeable]:
        """Copy what is packed on the host to the devices."""
        for item in items:
            yield replace(item, arrays=put(item.arrays, self._placement))

    def _read_steps(self) -> Iterator[tuple[list[LabeledBatch], Any]]:
        """Yield the batches of each step, and the position behind them.

        The last step may have fewer than `parts` batches.
        """
        while batches := list(itertools.islice(self._batches, self._parts)):
            # Before anything else is read: the position moves with every read.
            yield batches, self._position(self._batches.get_state())

    def _prepare_batches(
        self, plan: plans.HostPlan, limit: int | None = None
    ) -> Iterator[PlacedBatch]:
        """Return prepared batches, which are packed and still on the host."""
        # Not a generator: `_cluster` must be set before the thread starts. Otherwise
        # `__exit__` could come first, and wait for a thread that nobody told to stop.
        if self._peers is not None:
            self._cluster = self._prepare_together(plan, self._peers, limit)
            return self._cluster
        return (
            replace(self._prepare(plan, self._flatten_all(batches)), position=position)
            for batches, position in self._read_steps()
        )

    def _prepare_together(
        self, plan: plans.HostPlan, peers: Processes, limit: int | None
    ) -> ClusterBatches:
        """Return the batches in which all processes of a cluster take part."""
        assert self.requests is not None, "made with the peers"

        def prepare(batches: Sequence[LabeledBatch], exchange: Agree) -> PlacedBatch:
            raws = self._flatten_all(batches)
            sizes = [plans.batch_size(raw) for raw in raws]

            def agree(parts: Sequence[plans.PreparedBatch]) -> Mapping[str, int]:
                ids = plans.widths_of(parts)
                others = [
                    (part.raw, {n: part.staged[n] for n in part.staged if n not in ids})
                    for part in parts
                ]
                return exchange(sizes, ids, others)

            return self._prepare(plan, raws, agree)

        # Processes that all read the whole batch compare its rows, unless positions
        # with a fingerprint have already shown that they read the same data.
        is_compared = not self._has_share and not self._batches.has_fingerprint
        return ClusterBatches(
            self._read_steps(),
            peers,
            self.requests,
            prepare=prepare,
            misfit=self._misfit,
            checksum=partial(self._checksum, plan) if is_compared else None,
            limit=limit,
        )

    def _checksum(self, plan: plans.HostPlan, batches: Sequence[LabeledBatch]) -> int:
        """Return a checksum of the values that the model reads."""
        crc = 0
        for batch in batches:
            whole = self._whole(batch)
            # Features that no model reads may differ, such as a time of reading.
            read = {origin: whole[origin] for origin in plan.origins & whole.keys()}
            crc = checksum_of_rows(read, crc)
        return crc

    def _misfit(self, batches: Sequence[LabeledBatch]) -> str:
        """Return why the batches of a step cannot be divided, or ""."""
        shares = 1 if self._has_share or self._peers is None else self._peers.count
        devices = self._placement.batch_parts * shares
        for batch in batches:
            size = plans.batch_size(self._whole(batch))
            if not size or size % devices:
                return (
                    f"a batch of {size} examples cannot be split over {devices} devices"
                )
        return ""

    def _position(self, position: Any) -> Any:
        """Return a position, marked if it belongs to a share of the data."""
        return {"share": position} if self._has_share else position

    def _prepare(
        self,
        plan: plans.HostPlan,
        raws: Sequence[plans.RawBatch],
        agree: plans.Agree | None = None,
    ) -> PlacedBatch:
        """Return the packed batch of a step, on the host and without its position."""
        examples = sum(plans.batch_size(raw) for raw in raws)
        if self._parts == 1:
            batch = plan.prepare(raws[0], agree=agree)
            if self._padded_size:
                # A batch of another size would compile another program.
                batch = plans.pad_rows(batch, self._padded_size)
            arrays = pack(batch, self._placement)
            return PlacedBatch(arrays, examples, None, plan.forward(raws[0]))
        arrays = pack(plan.prepare_parts(raws, agree), self._placement)
        return PlacedBatch(arrays, examples, None)

    def _flatten_all(self, batches: Sequence[LabeledBatch]) -> list[plans.RawBatch]:
        return [self._flatten(batch) for batch in batches]

    def _flatten(self, batch: LabeledBatch) -> dict[Origin, Any]:
        """Return a raw batch; in a cluster, the rows of it that are this process's."""
        whole = self._whole(batch)
        if self._peers is None or self._has_share:
            return whole
        # `_misfit` has left out batches that do not divide, so no row is lost.
        each = plans.batch_size(whole) // self._peers.count
        start = self._peers.index * each
        return {
            origin: columns.slice_rows(value, start, start + each)
            for origin, value in whole.items()
        }

    def _whole(self, batch: LabeledBatch) -> dict[Origin, Any]:
        features, labels = batch
        return plans.flatten(features, labels if self._with_labels else None)
