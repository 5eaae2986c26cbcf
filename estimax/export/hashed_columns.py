"""Hash all text columns of a request with one call of compiled code.

    columns = HashedColumns(plan)
    prepared = columns.prepare(batch)        # the same as plan.prepare(batch)

A request of one row has a few words in each of dozens of columns. Looking at a column
takes 7 microseconds and hashing its word 0.1, so columns that are hashed alike are
looked at together: 26 of them take 25 microseconds in place of 190.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from estimax.core.sparse import Ids
from estimax.core.strings import Strings
from estimax.feature_columns.transforms import HashBucket, PadIds
from estimax.native import hashing
from estimax.staging import host_plan as plans

_FEWEST = 2  # columns that are worth it


class HashedColumns:
    """Prepares the batches of a plan whose text columns may be hashed together.

    Args:
      plan: The host transforms of a bundle.
    """

    def __init__(self, plan: plans.HostPlan) -> None:
        self._plan = plan
        sources = {
            call.name: source
            for call in plan.calls
            if (source := _hashed_source(call.transform)) is not None
        }
        self._calls = [call for call in plan.calls if call.name in sources]
        rest = tuple(call for call in plan.calls if call.name not in sources)
        self._rest = dataclasses.replace(plan, calls=rest)
        self._sizes = [sources[call.name].num_buckets for call in self._calls]

    def prepare(self, batch: plans.RawBatch) -> plans.PreparedBatch:
        """Return what `plan.prepare(batch)` returns."""
        if len(self._calls) < _FEWEST:
            return self._plan.prepare(batch)
        columns = [batch[call.inputs[0]] for call in self._calls]
        if not _are_alike(columns):
            return self._plan.prepare(batch)
        offsets = np.concatenate([column.offsets for column in columns])
        rows = len(columns[0])
        lengths = np.diff(offsets.reshape(len(columns), rows + 1))
        found = np.concatenate(hashing.hash_columns(columns, self._sizes))
        ids = found.reshape(len(columns), rows, 1).astype(np.int32)
        ids[lengths == 0] = -1  # no word
        prepared = self._rest.prepare(batch)
        staged = dict(prepared.staged)
        for call, own in zip(self._calls, ids, strict=True):
            staged[call.name] = Ids(own)
        return prepared._replace(staged=staged)


def _hashed_source(transform: Any) -> HashBucket | None:
    """Return how a transform hashes text, whose ids are never out of range, or None."""
    if type(transform) is not PadIds or type(transform.source) is not HashBucket:
        return None
    return None if transform.source.is_integer else transform.source


def _are_alike(columns: list[Any]) -> bool:
    """Return whether all columns have one word in each row."""
    first = columns[0]
    if not isinstance(first, Strings):
        return False
    rows = len(first)
    return all(
        type(column) is Strings and column.shape in ((rows,), (rows, 1))
        for column in columns
    )
