"""The feed: from an `input_fn` to batches on the device, each with its position.

with Feed(input_fn, position=None) as feed:
    program = compile(record(function, feed.first, mode), placement)
    for batch in feed.batches(program.plan): ...     # from a background thread
    for stack in feed.stacks(program.plan, length=16): ...    # several at once
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from estimax.input.streams import columns
from estimax.parallel import Placement
from estimax.parallel.processes import Processes
from estimax.parallel.requests import Requests
from estimax.staging import host_plan as plans
from estimax.staging.batches import BatchStack, PlacedBatch
from estimax.staging.checksums import checksum_of_rows
from estimax.staging.cluster_batches import Agree, ClusterBatches
from estimax.staging.packing import ONE_DEVICE, pack, put
from estimax.staging.prefetching import prefetch_batches
from estimax.staging.resume import ResumableBatches
from estimax.staging.stacking import Groups, stacks_from
from estimax.staging.trace import Origin

_log = logging.getLogger("estimax")


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
        self._prefetched: Any = None
        self._agreeing: ClusterBatches | None = None

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        if self._agreeing is not None:
            self._agreeing.close()
        if self._prefetched is not None:
            self._prefetched.close()
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
        return float(self._prefetched.waited_seconds) if self._prefetched else 0.0

    @property
    def advice(self) -> str:
        """What makes the input slow, if that is known: a sentence, or ""."""
        return self._batches.advice

    def batches(self, plan: plans.HostPlan, *, depth: int) -> Iterator[PlacedBatch]:
        """Yield batches that a thread has prepared and put on the device.

        `depth` is the number of batches that are prepared ahead.
        """

        def prepare(element: Any) -> PlacedBatch:
            batch = self._prepared(plan, element)
            return replace(batch, arrays=put(batch.arrays, self._placement))

        self._prefetched = prefetch_batches(self._steps(), prepare, depth=depth)
        for batch, position in self._prefetched:
            yield replace(batch, position=position)

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
        if self._peers is not None:
            yield from self._agreed(plan, self._peers, depth, limit)
            return
        if length == 1:
            for batch in self.batches(plan, depth=depth):
                yield BatchStack(batch.arrays, [batch.examples], [batch.position])
            return

        groups = Groups(self._batches, self._flatten, length)
        stacks = stacks_from(groups, plan, length, self._placement)
        self._prefetched = prefetch_batches(stacks, self._placed, depth=depth)
        for stack, _ in self._prefetched:
            yield stack

    def _agreed(
        self, plan: plans.HostPlan, peers: Processes, depth: int, limit: int | None
    ) -> Iterator[BatchStack]:
        """Yield the batches in which all processes of a cluster take part."""
        assert self.requests is not None, "made with the peers"

        def prepare(element: Any, exchange: Agree) -> PlacedBatch:
            sizes = [plans.batch_size(raw) for raw in self._raws(element)]

            def agree(parts: Sequence[plans.PreparedBatch]) -> Mapping[str, int]:
                ids = plans.widths_of(parts)
                others = [
                    (part.raw, {n: part.staged[n] for n in part.staged if n not in ids})
                    for part in parts
                ]
                return exchange(sizes, ids, others)

            return self._prepared(plan, element, agree)

        batches = self._agreeing = ClusterBatches(
            self._steps(),
            peers,
            self.requests,
            prepare=prepare,
            misfit=self._misfit,
            checksum=partial(self._checksum, plan) if self._is_checked else None,
            limit=limit,
        )
        self._prefetched = prefetch_batches(
            batches,
            lambda batch: replace(batch, arrays=put(batch.arrays, self._placement)),
            depth=depth,
        )
        for batch, position in self._prefetched:
            yield BatchStack(
                batch.arrays,
                [batch.examples],
                [self._position(position)],
                agreed=batch.agreed,
            )

    @property
    def _is_checked(self) -> bool:
        """Whether processes compare rows: they read the same, but nothing proves it."""
        return not self._has_share and not self._batches.has_fingerprint

    def _checksum(self, plan: plans.HostPlan, element: Any) -> int:
        """Return a checksum of the values that the model reads."""
        crc = 0
        for part in [element] if self._parts == 1 else element:
            whole = self._whole(part)
            read = {origin: whole[origin] for origin in plan.origins & whole.keys()}
            crc = checksum_of_rows(read, crc)
        return crc

    def _misfit(self, element: Any) -> str:
        """Return why the batches of an element cannot be divided, or ""."""
        devices = self._placement.batch_parts * (1 if self._has_share else self._count)
        for part in [element] if self._parts == 1 else element:
            size = plans.batch_size(self._whole(part))
            if not size or size % devices:
                return (
                    f"a batch of {size} examples cannot be split over {devices} devices"
                )
        return ""

    def _position(self, position: Any) -> Any:
        """Return a position, marked if it is that of a share of the data."""
        return {"share": position} if self._has_share else position

    @property
    def _count(self) -> int:
        return 1 if self._peers is None else self._peers.count

    def _steps(self) -> Any:
        return self._batches if self._parts == 1 else _Parts(self._batches, self._parts)

    def _prepared(
        self, plan: plans.HostPlan, element: Any, agree: plans.Agree | None = None
    ) -> PlacedBatch:
        """Return a batch that is still on the host, and without its position."""
        raws = self._raws(element)
        examples = sum(plans.batch_size(raw) for raw in raws)
        if self._parts == 1:
            arrays = pack(plan.prepare(raws[0], agree=agree), self._placement)
            return PlacedBatch(arrays, examples, None, plan.forward(raws[0]))
        arrays = pack(plan.prepare_parts(raws, agree), self._placement)
        return PlacedBatch(arrays, examples, None)

    def _raws(self, element: Any) -> list[dict[Origin, Any]]:
        """Return the raw batches of a step."""
        return [
            self._flatten(part) for part in ([element] if self._parts == 1 else element)
        ]

    def _placed(self, stack: BatchStack) -> BatchStack:
        return replace(stack, arrays=put(stack.arrays, self._placement))

    def _flatten(self, element: Any) -> dict[Origin, Any]:
        """Return a raw batch; in a cluster, the rows of it that are this process's."""
        whole = self._whole(element)
        if self._peers is None or self._has_share:
            return whole
        each = plans.batch_size(whole) // self._peers.count
        start = self._peers.index * each
        return {
            origin: columns.slice_rows(value, start, start + each)
            for origin, value in whole.items()
        }

    def _whole(self, element: Any) -> dict[Origin, Any]:
        features, labels = element
        return plans.flatten(features, labels if self._with_labels else None)


class _Parts:
    """An iterator of lists of `count` batches; the last list may be shorter."""

    def __init__(self, batches: ResumableBatches, count: int) -> None:
        self._batches = batches
        self._count = count

    def __iter__(self) -> _Parts:
        return self

    def __next__(self) -> list[Any]:
        parts = list(itertools.islice(self._batches, self._count))
        if not parts:
            raise StopIteration
        return parts

    def get_state(self) -> Any:
        return self._batches.get_state()
