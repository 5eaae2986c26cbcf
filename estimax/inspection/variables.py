"""A table of the variables of a model: shape, size, optimizer, and way of updating.

    print(ex.inspection.variable_table(model, input_fn))

The model is traced for shapes only: nothing is trained, compiled or allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from estimax.checkpoints import state_names
from estimax.core.display import html_table
from estimax.core.state import TrainState
from estimax.estimator import Estimator
from estimax.training import UpdateKind, VariableUpdate

# How a variable is updated, in words.
_UPDATED = {
    UpdateKind.ROWS: "the rows of its batch",
    UpdateKind.MASKED: "the rows of its batch, found on the device",
    UpdateKind.WHOLE: "whole",
    UpdateKind.FROZEN: "never",
}


@dataclass(frozen=True)
class VariableInfo:
    """One variable of a model.

    Attributes:
      name: Name of the variable, as in a checkpoint.
      shape: Shape of the variable.
      dtype: Name of the dtype.
      size: Number of elements.
      nbytes: Size in bytes, without optimizer state.
      optimizer: Name of the optimizer; None if the variable is not trained.
      updated: What a step updates: "whole", "the rows of its batch", "never", ….
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    size: int
    nbytes: int
    optimizer: str | None
    updated: str


@dataclass(frozen=True)
class VariableTable:
    """The variables of a model; print it for a table.

    Attributes:
      variables: The variables, largest first.
      optimizer_bytes: Bytes of optimizer state, such as accumulators and moments.
    """

    variables: tuple[VariableInfo, ...]
    optimizer_bytes: int

    @property
    def size(self) -> int:
        """The number of elements of all variables."""
        return sum(variable.size for variable in self.variables)

    @property
    def nbytes(self) -> int:
        """The bytes of all variables, without optimizer state."""
        return sum(variable.nbytes for variable in self.variables)

    def __str__(self) -> str:
        return f"{as_text(*self._table())}\n{self._summary()}"

    def _repr_html_(self) -> str:
        return html_table(*self._table(), title=self._summary())

    def _table(self) -> tuple[list[str], list[list[str]]]:
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
        return ["variable", "shape", "dtype", "numbers", "optimizer", "updated"], rows

    def _summary(self) -> str:
        return (
            f"{len(self.variables)} variables, {self.size:,} numbers, "
            f"{_megabytes(self.nbytes)}; optimizers keep "
            f"{_megabytes(self.optimizer_bytes)} more"
        )


def variable_table(estimator: Estimator, input_fn: Callable[..., Any]) -> VariableTable:
    """List the variables of a model with their sizes and optimizers.

    Use it to see what a model consists of before it is trained.

    Args:
      estimator: The Estimator.
      input_fn: Function that returns the training data; only its first batch is read.

    Returns:
      The variables, largest first.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> columns = [ex.feature_columns.numeric_column("x", shape=3)]
      >>> model = ex.DNNClassifier([4], columns)
      >>> data = {"x": np.ones((2, 3))}, np.ones(2)
      >>> table = ex.inspection.variable_table(model, lambda: data)
      >>> [(v.name, v.shape, v.optimizer) for v in table.variables][:1]
      [('dnn/hiddenlayer_0/kernel', (3, 4), 'Adagrad')]
      >>> table.size
      21
    """
    updates, state = estimator.describe_training(input_fn)
    found = sorted(_infos(updates, state), key=lambda v: (-v.size, v.name))
    kept = jax.tree.leaves((state.opt_state, state.slots))
    return VariableTable(tuple(found), sum(_nbytes(leaf) for leaf in kept))


def _infos(
    updates: Mapping[str, VariableUpdate], state: TrainState
) -> Iterator[VariableInfo]:
    bare = replace(state, opt_state={}, slots={}, averages={})
    arrays = state_names.flatten_state(bare)
    for name in state_names.variable_names(state):
        leaf, update = arrays[name], updates.get(name)
        optimizer = None if update is None else update.optimizer
        yield VariableInfo(
            name,
            tuple(leaf.shape),
            str(leaf.dtype),
            int(leaf.size),
            _nbytes(leaf),
            None if optimizer is None else optimizer.name,
            "by the model" if update is None else _UPDATED[_effective_kind(update)],
        )


def _effective_kind(update: VariableUpdate) -> UpdateKind:
    # Adam that is not lazy updates all rows, also those that the batch does not use.
    if update.kind is not UpdateKind.ROWS or update.optimizer is None:
        return update.kind
    return UpdateKind.ROWS if update.optimizer.has_rows else UpdateKind.WHOLE


def _nbytes(leaf: Any) -> int:
    return int(leaf.size) * int(leaf.dtype.itemsize)


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.1f} MB"


def as_text(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as text; columns of numbers are aligned to the right.

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
