"""Who updates what: every variable's optimizer, and every table's way of being updated.

A table is updated in one of three ways, chosen once, when the model is recorded:

- by ROWS: its ids come from the host, made unique there; the step gathers those rows,
  takes the gradient with respect to them and scatters the result back;
- MASKED: its ids are computed on the device; the gradient is as large as the table, and
  rows that no id named keep their values and slots, as TensorFlow's sparse updates do;
- WHOLE: its optimizer is a raw optax transformation, which knows no rows, or one that
  moves every row in every step anyway.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

from estimax import optimizers
from estimax.staging.plan import Plan, RowGroup
from estimax.staging.recording import Lookup
from estimax.training.model import Model, Recording, Structure


class Way(enum.Enum):
    """How a table is updated."""

    ROWS = "rows"
    MASKED = "masked"
    WHOLE = "whole"
    FROZEN = "frozen"


@dataclass(frozen=True)
class TableUpdate:
    """One table's way, its optimizer's group, and the row group that serves it."""

    way: Way
    group: int | None
    rows: str | None = None  # name of the plan's RowGroup, for Way.ROWS


@dataclass(frozen=True)
class Training:
    """All that a train step is built from."""

    model: Model
    structure: Structure
    plan: Plan
    train_op: optimizers.TrainOp
    param_groups: dict[str, int | None]  # None: frozen
    tables: dict[str, TableUpdate]
    average_decay: float | None = None  # of moving averages; None: none are kept

    @classmethod
    def from_recording(
        cls, model: Model, recording: Recording, average_decay: float | None = None
    ) -> Training:
        """Assign optimizers and decide how each table is updated."""
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
            model,
            recording.structure,
            replace(recording.plan, groups=tuple(dict.fromkeys(groups.values()))),
            train_op,
            {name: group_of[name] for name in shapes.params},
            tables,
            average_decay,
        )

    def optimizer(self, group: int) -> optimizers.Optimizer:
        """The optimizer of a group."""
        return self.train_op.groups[group].optimizer

    def tables_by(self, *ways: Way) -> list[str]:
        """The names of tables updated in one of these ways."""
        return [name for name, update in self.tables.items() if update.way in ways]


def _row_groups(
    recording: Recording,
    train_op: optimizers.TrainOp,
    group_of: dict[str, int | None],
) -> dict[str, RowGroup]:
    """The row group of each table that is updated by rows.

    Tables that are looked up by the same calls share one list of unique ids.
    """
    groups: dict[str, RowGroup] = {}
    for name in recording.shapes.tables:
        uses = [use for use in recording.lookups if use.table == name]
        if _way(uses, train_op, group_of[name]) is Way.ROWS:
            calls = tuple(dict.fromkeys(u.call.name for u in uses if u.call))
            vocabulary = uses[0].shape[0]
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
    way = _way(uses, train_op, group_of[name])
    return TableUpdate(
        way, group_of[name], groups[name].name if name in groups else None
    )


def _way(
    uses: Sequence[Lookup], train_op: optimizers.TrainOp, group: int | None
) -> Way:
    if group is None or not all(use.trainable for use in uses):
        return Way.FROZEN
    optimizer = train_op.groups[group].optimizer
    if optimizer.rule is None:
        return Way.WHOLE
    if all(use.call for use in uses):
        return Way.ROWS
    return Way.MASKED if optimizer.has_rows else Way.WHOLE
