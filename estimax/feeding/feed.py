"""The feed: from an `input_fn` to batches on the device, each with its position.

with Feed(input_fn, position=None) as feed:
    program = train_program(model, feed.first)       # a raw batch to record with
    for batch in feed.batches(program.plan): ...     # from a background thread
    for stack in feed.stacks(program.plan, length=16): ...    # several at once
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal

import jax

from estimax import input as inputs
from estimax.core.errors import InputError
from estimax.feeding.batches import BatchStack, PlacedBatch
from estimax.feeding.packing import Packed, pack
from estimax.feeding.prefetching import prefetch_batches
from estimax.feeding.stacking import Groups, stacks_from
from estimax.input.iterator import without_fingerprint
from estimax.staging import plan as plans
from estimax.staging.recording import Origin

_log = logging.getLogger("estimax")


class Feed:
    """The batches of one call to `train`, `evaluate` or `predict`.

    Args:
      make: Called without arguments; returns what the `input_fn` returns.
      position: Where to continue in the input; None starts at its beginning.
      has_ended: Whether the call that saved the position ended normally. If so, and the
        data has changed, it is read from its beginning; after an interruption, changed
        data is an error.
      may_start_over: False raises for changed data in both cases.
      is_checked: False continues at the position without comparing the data.
      seed: Seed for shuffles that were given none.
      with_labels: Whether the model gets labels.
      parts: How many batches make up one step.
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
    ) -> None:
        self._with_labels = with_labels
        self._parts = parts
        if not is_checked:
            position = without_fingerprint(position)
        self._batches = _Peekable(make, position, seed, may_start_over, has_ended)
        if self._batches.first is None and position is not None:
            # The last call used all of its data; this one makes another pass.
            self._batches.close()
            self._batches = _Peekable(make, None, seed)
        self._prefetched: Any = None

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        if self._prefetched is not None:
            self._prefetched.close()
        self._batches.close()

    @property
    def position(self) -> Any:
        """The position before the first batch."""
        return self._batches.start

    @property
    def first(self) -> dict[Origin, Any] | None:
        """The first raw batch, which is not consumed; None if there is no data."""
        first = self._batches.first
        return None if first is None else self._flatten(first)

    def warn_if_endless(self, what: str, limit: int | None) -> None:
        """Warn if the input repeats one batch for ever and no step count ends it."""
        if limit is None and self._batches.is_endless:
            _log.warning(
                "%s: the input_fn returned plain arrays, which are one batch repeated "
                "for ever. To use them once, return iter([(features, labels)])",
                what,
            )

    @property
    def waited_seconds(self) -> float:
        """How long the consumer has waited for batches so far, in seconds."""
        return float(self._prefetched.waited_seconds) if self._prefetched else 0.0

    def batches(self, plan: plans.Plan, *, depth: int) -> Iterator[PlacedBatch]:
        """Yield batches that a thread has prepared and put on the device.

        `depth` is the number of batches that are prepared ahead.
        """

        def prepare(element: Any) -> tuple[Packed, int]:
            arrays, examples = self._prepared(plan, element)
            return _to_device(arrays), examples

        self._prefetched = prefetch_batches(self._steps(), prepare, depth=depth)
        for (arrays, examples), position in self._prefetched:
            yield PlacedBatch(arrays, examples, position)

    def stacks(
        self, plan: plans.Plan, *, depth: int, length: int | None
    ) -> Iterator[BatchStack]:
        """Yield stacks of up to `length` batches; None chooses by their size."""
        if length == 1:
            for batch in self.batches(plan, depth=depth):
                yield BatchStack(batch.arrays, [batch.examples], [batch.position])
            return

        groups = Groups(self._batches, self._flatten, length)
        stacks = stacks_from(groups, plan, length)
        self._prefetched = prefetch_batches(stacks, _placed, depth=depth)
        for stack, _ in self._prefetched:
            yield stack

    def _steps(self) -> Iterator[Any]:
        return self._batches if self._parts == 1 else _Parts(self._batches, self._parts)

    def _prepared(self, plan: plans.Plan, element: Any) -> tuple[Packed, int]:
        if self._parts == 1:
            raw = self._flatten(element)
            return pack(plan.prepare(raw)), plans.batch_size(raw)
        raws = [self._flatten(part) for part in element]
        examples = sum(plans.batch_size(raw) for raw in raws)
        return pack(plan.prepare_parts(raws)), examples

    def _flatten(self, element: Any) -> dict[Origin, Any]:
        features, labels = element
        return plans.flatten(features, labels if self._with_labels else None)


# Up to this size a compiled identity function takes less time than `device_put`. Above,
# `device_put` is faster on a CPU, where it does not copy.
_SMALL_BYTES = 256 * 1024


def _to_device(packed: Packed) -> Packed:
    put = _copied if packed.nbytes <= _SMALL_BYTES else jax.device_put
    placed: Packed = put(packed)
    return placed


@jax.jit
def _copied(packed: Packed) -> Packed:
    return packed


def _placed(stack: BatchStack) -> BatchStack:
    return replace(stack, arrays=_to_device(stack.arrays))


class _Parts:
    """An iterator of lists of `count` batches; the last list may be shorter."""

    def __init__(self, batches: _Peekable, count: int) -> None:
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


class _Peekable:
    """An iterator of batches whose first one can be read without consuming it."""

    def __init__(
        self,
        make: Callable[[], Any],
        position: Any,
        seed: int | None,
        may_start_over: bool = True,
        has_ended: bool = False,
    ) -> None:
        resume: Literal["skip", "refuse"] = "skip" if may_start_over else "refuse"
        self._batches = inputs.as_batches(make(), resume=resume, seed=seed)
        may_change = has_ended and may_start_over
        if position is not None and not self._resume_at(
            position, may_start_over, may_change
        ):
            self._batches.close()
            self._batches = inputs.as_batches(make(), resume=resume, seed=seed)
        self.is_endless = bool(getattr(self._batches, "is_endless", False))
        self.start = self._batches.get_state()
        self.first = next(self._batches, None)
        self._given_back = self.first is not None

    def __iter__(self) -> _Peekable:
        return self

    def __next__(self) -> Any:
        if self._given_back:
            self._given_back = False
            return self.first
        return next(self._batches)

    def get_state(self) -> Any:
        return self._batches.get_state()

    def close(self) -> None:
        self._batches.close()

    def _resume_at(self, position: Any, may_start_over: bool, may_change: bool) -> bool:
        """Go to a position; return False if the input must start over instead."""
        try:
            self._batches.set_state(position)
        except InputError as error:
            if isinstance(error, inputs.ChangedInputError) and not may_change:
                raise inputs.ChangedInputError(
                    f'{error} RunConfig(resume_input="restart") starts it from its '
                    "beginning; the model and its step are kept. If only rows behind "
                    "the position were changed, as when a bad line was corrected, "
                    '"unchecked" continues there.'
                ) from error
            if not may_start_over:
                error.add_note(
                    'RunConfig(resume_input="refuse") asks for this error; '
                    '"exact" skips to the position, "restart" starts over.'
                )
                raise
            _log.warning(
                "the input starts from its beginning: it is not the one that the "
                "checkpoint was made with (%s)",
                error,
            )
            return False
        return True
