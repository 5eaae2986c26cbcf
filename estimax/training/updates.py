"""How `compile` plans updates: the optimizer of each variable, the way of each table.

How a table is updated is decided once, when the model is recorded:

- ROWS: its ids come from the host, which makes them unique. The step gathers those
  rows, takes the gradient with respect to them and scatters the result back. This is
  the usual case, and its cost does not depend on the size of the table.
- MASKED: its ids are computed on the device. The gradient is as large as the table;
  rows that no id selects keep their values and slots, as in TensorFlow.
- WHOLE: its optimizer is an optax transformation, which has no row rule, or one that
  changes every row in every step.
- FROZEN: it is not trained.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

from estimax import optimizers
from estimax.parallel import Placement
from estimax.staging.host_plan import HostPlan, RowGroup
from estimax.staging.trace import Lookup
from estimax.training.model import BatchStructure, ModelFunction
from estimax.training.recording import Recording


class UpdateKind(enum.Enum):
    """How a table is updated; see the module docstring."""

    ROWS = "rows"
    MASKED = "masked"
    WHOLE = "whole"
    FROZEN = "frozen"


@dataclass(frozen=True)
class TableUpdate:
    """How one table is updated, by which optimizer group, from which row group."""

    kind: UpdateKind
    group: int | None
    rows: str | None = None  # name of the plan's RowGroup, for UpdateKind.ROWS


@dataclass(frozen=True)
class VariableUpdate:
    """How a variable is updated, and by which optimizer; None if it is frozen."""

    kind: UpdateKind
    optimizer: optimizers.Optimizer | None


@dataclass(frozen=True)
class UpdatePlan:
    """What a train step is built from: the model, its placement, and all updates."""

    model: ModelFunction
    structure: BatchStructure
    plan: HostPlan
    placement: Placement
    train_op: optimizers.TrainOp
    param_groups: dict[str, int | None]  # index into train_op.groups; None: frozen
    tables: dict[str, TableUpdate]
    average_decay: float | None = None  # of moving averages; None keeps none
    has_max_pooling: bool = False  # gets a faster gradient; see `max_pooling.py`

    @classmethod
    def from_recording(
        cls,
        recording: Recording,
        placement: Placement | None = None,
        average_decay: float | None = None,
    ) -> UpdatePlan:
        """Assign optimizers and decide how each table is updated."""
        placement = placement or Placement()
        train_op = optimizers.as_train_op(recording.spec.train_op)
        shapes = recording.shapes
        names = [*shapes.params, *shapes.tables]
        group_of = optimizers.assign(train_op, names)
        groups = _row_groups(recording, train_op, group_of)
        tables = {
            name: _table_update(name, recording.lookups, train_op, group_of, groups)
            for name in shapes.tables
        }
        return cls(
            recording.model,
            recording.structure,
            replace(
                recording.plan,
                groups=tuple(dict.fromkeys(groups.values())),
                # Distinct ids are padded to a multiple of the devices that share them.
                parts=placement.size,
            ),
            placement,
            train_op,
            {name: group_of[name] for name in shapes.params},
            tables,
            average_decay,
            recording.has_max_pooling,
        )

    def optimizer(self, group: int) -> optimizers.Optimizer:
        """Return the optimizer of a group."""
        return self.train_op.groups[group].optimizer

    def by_variable(self) -> dict[str, VariableUpdate]:
        """Return how each param and table is updated, by its name."""
        whole = {
            name: UpdateKind.FROZEN if group is None else UpdateKind.WHOLE
            for name, group in self.param_groups.items()
        }
        kinds = whole | {name: update.kind for name, update in self.tables.items()}
        return {
            name: VariableUpdate(kind, self._optimizer_of(name, kind))
            for name, kind in kinds.items()
        }

    def _optimizer_of(self, name: str, kind: UpdateKind) -> optimizers.Optimizer | None:
        group = group_of(self, name)
        if kind is UpdateKind.FROZEN or group is None:
            return None
        return self.optimizer(group)

    def tables_by(self, *kinds: UpdateKind) -> list[str]:
        """Return the names of the tables that are updated in one of these ways."""
        return [name for name, update in self.tables.items() if update.kind in kinds]


def group_of(updates: UpdatePlan, name: str) -> int | None:
    """Return the optimizer group of a variable; None if it is frozen."""
    if name in updates.param_groups:
        return updates.param_groups[name]
    return updates.tables[name].group


def _row_groups(
    recording: Recording,
    train_op: optimizers.TrainOp,
    group_of: dict[str, int | None],
) -> dict[str, RowGroup]:
    """Return the row group of each table that is updated by row.

    Tables whose lookups use the same calls share one list of distinct ids.
    """
    groups: dict[str, RowGroup] = {}
    for name in recording.shapes.tables:
        uses = [use for use in recording.lookups if use.table == name]
        if _kind_of(uses, train_op, group_of[name]) is UpdateKind.ROWS:
            # In order of first use, and each once: equal in all processes.
            calls = tuple(dict.fromkeys(u.call.name for u in uses if u.call))
            vocabulary = uses[0].shape[0]
            # Tables of one name here share their distinct ids. The vocabulary is part
            # of it, because V is also the id that pads the list.
            label = "+".join(calls) + f"@{vocabulary}"
            groups[name] = RowGroup(label, calls, vocabulary)
    return groups


def _table_update(
    name: str,
    lookups: Sequence[Lookup],
    train_op: optimizers.TrainOp,
    group_of: dict[str, int | None],
    groups: dict[str, RowGroup],
) -> TableUpdate:
    uses = [use for use in lookups if use.table == name]
    kind = _kind_of(uses, train_op, group_of[name])
    return TableUpdate(
        kind, group_of[name], groups[name].name if name in groups else None
    )


def _kind_of(
    uses: Sequence[Lookup], train_op: optimizers.TrainOp, group: int | None
) -> UpdateKind:
    # One lookup that is not trainable freezes the table: its rows are shared.
    if group is None or not all(use.trainable for use in uses):
        return UpdateKind.FROZEN
    optimizer = train_op.groups[group].optimizer
    if optimizer.rule is None:
        return UpdateKind.WHOLE
    if all(use.call for use in uses):
        return UpdateKind.ROWS
    return UpdateKind.MASKED if optimizer.has_rows else UpdateKind.WHOLE
