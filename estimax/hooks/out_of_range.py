"""A hook that reports ids out of range, which `ex.embedding_lookup` has clamped.

Only ids that a `model_fn` computes are clamped: ids of the input are checked on the
host. The compiled step counts them (`Trace.count_out_of_range`).
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import jax

from estimax.hooks.hook import NEVER, Hook, RunContext, Values
from estimax.staging import OUT_OF_RANGE

_log = logging.getLogger("estimax")

# Reading a count waits for the device, so this many are read together.
_READ_TOGETHER = 100


class OutOfRangeIdsHook(Hook):
    """Log one warning with the number of computed ids that were out of range.

    `train` and `evaluate` add it. It does nothing for a model without such lookups.
    """

    def begin(self, context: RunContext) -> None:
        self._names = [n for n in context.logged if n.startswith(OUT_OF_RANGE)]
        self._unread: list[dict[str, Any]] = []
        self._counts: Counter[str] = Counter()

    def after_run(self, context: RunContext, values: Values) -> None:
        if self._names:
            self._unread.append({n: context.outputs[n] for n in self._names})
        if len(self._unread) >= _READ_TOGETHER:
            self._report(context)

    def end(self, context: RunContext) -> None:
        self._report(context)

    def next_step(self, step: int) -> int:
        return step if self._names else NEVER

    def _report(self, context: RunContext) -> None:
        for counts in jax.device_get(self._unread):
            self._counts.update({name: int(n) for name, n in counts.items()})
        self._unread = []
        found = [(n, count) for n, count in self._counts.items() if count]
        if not found:
            return
        self._names = []  # report once
        listed = ", ".join(
            f"{count} ids for {name.removeprefix(OUT_OF_RANGE)}"
            for name, count in found
        )
        _log.warning(
            "embedding_lookup: %s were out of range by step %d, and the nearest valid "
            "id was looked up instead. The model_fn computes these ids, so they cannot "
            "be checked before the step; check how it computes them. Later ones are "
            "not reported.",
            listed,
            context.step,
        )
