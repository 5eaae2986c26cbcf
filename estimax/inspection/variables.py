"""What a model is made of: every variable, its size, and what trains it.

    print(ex.inspection.variable_table(model, input_fn))

Nothing is trained, compiled or allocated for it: shapes are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from estimax.checkpoints import state_names
from estimax.core.state import TrainState
from estimax.estimator import Estimator
from estimax.training import UpdateKind, UpdatePlan
from estimax.training.updates import TableUpdate

_WAYS = {
    UpdateKind.ROWS: "the rows of its batch",
    UpdateKind.MASKED: "the rows of its batch, found on the device",
    UpdateKind.WHOLE: "whole",
    UpdateKind.FROZEN: "never",
}


@dataclass(frozen=True)
class VariableInfo:
    """A variable, and what the optimizer keeps beside it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    size: int  # numbers
    nbytes: int
    optimizer: str | None  # None: not trained
    updated: str  # "whole", "the rows of its batch", …


@dataclass(frozen=True)
class VariableTable:
    """All variables of a model, largest first when printed as it stands."""

    variables: tuple[VariableInfo, ...]
    optimizer_bytes: int  # what optimizers keep: accumulators, moments

    @property
    def size(self) -> int:
        """How many numbers the model has."""
        return sum(variable.size for variable in self.variables)

    @property
    def nbytes(self) -> int:
        """The bytes of the variables, without what optimizers keep."""
        return sum(variable.nbytes for variable in self.variables)

    def __str__(self) -> str:
        rows = [
            [
                v.name,
                str(list(v.shape)),
                v.dtype,
                f"{v.size:,}",
                v.optimizer or "",
                v.updated,
            ]
            for v in self.variables
        ]
        table = as_text(
            ["variable", "shape", "dtype", "numbers", "optimizer", "updated"], rows
        )
        return (
            f"{table}\n{len(rows)} variables, {self.size:,} numbers, "
            f"{_megabytes(self.nbytes)}; optimizers keep "
            f"{_megabytes(self.optimizer_bytes)} more"
        )


def variable_table(estimator: Estimator, input_fn: Callable[..., Any]) -> VariableTable:
    """List a model's variables, with the first batch of `input_fn` to trace it with.

    >>> import numpy as np
    >>> import estimax as ex
    >>> columns = [ex.feature_columns.numeric_column("x", shape=3)]
    >>> model = ex.DNNClassifier([4], columns, model_dir="/tmp/estimax-doc-table")
    >>> table = variable_table(model, lambda: ({"x": np.ones((2, 3))}, np.ones(2)))
    >>> [(v.name, v.shape, v.optimizer) for v in table.variables][:1]
    [('dnn/hiddenlayer_0/kernel', (3, 4), 'Adagrad')]
    >>> table.size
    21
    """
    plan, state = estimator.describe_training(input_fn)
    found = sorted(_infos(plan, state), key=lambda v: (-v.size, v.name))
    kept = jax.tree.leaves((state.opt_state, state.slots))
    return VariableTable(tuple(found), sum(_nbytes(leaf) for leaf in kept))


def _infos(plan: UpdatePlan, state: TrainState) -> Iterator[VariableInfo]:
    bare = replace(state, opt_state={}, slots={}, averages={})
    arrays = state_names.flatten_state(bare)
    for name in state_names.variable_names(state):
        leaf = arrays[name]
        if name in plan.tables:
            update = plan.tables[name]
            group = None if update.kind is UpdateKind.FROZEN else update.group
            yield _info(plan, name, leaf, group, _WAYS[_table_way(plan, update)])
        elif name in plan.param_groups:
            group = plan.param_groups[name]
            way = UpdateKind.FROZEN if group is None else UpdateKind.WHOLE
            yield _info(plan, name, leaf, group, _WAYS[way])
        else:
            yield _info(plan, name, leaf, None, "by the model")


def _table_way(plan: UpdatePlan, update: TableUpdate) -> UpdateKind:
    if update.kind is not UpdateKind.ROWS or update.group is None:
        return update.kind
    # Adam, unless lazy, also moves the rows that the batch does not name.
    return (
        UpdateKind.ROWS if plan.optimizer(update.group).has_rows else UpdateKind.WHOLE
    )


def _info(
    plan: UpdatePlan, name: str, leaf: Any, group: int | None, updated: str
) -> VariableInfo:
    optimizer = None if group is None else plan.optimizer(group).name
    return VariableInfo(
        name,
        tuple(leaf.shape),
        str(leaf.dtype),
        int(leaf.size),
        _nbytes(leaf),
        optimizer,
        updated,
    )


def _nbytes(leaf: Any) -> int:
    return int(leaf.size) * int(leaf.dtype.itemsize)


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.1f} MB"


def as_text(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay rows out under their headings; cells that look like numbers go right.

    >>> print(as_text(["name", "size"], [["bias", "3"], ["kernel", "12"]]))
    name    size
    bias       3
    kernel    12
    """
    lines = [headings, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headings))]
    is_number = [all(_is_number(row[i]) for row in rows) for i in range(len(headings))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ).rstrip()
        for line in lines
    )


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() or cell[:1] in "+-"
