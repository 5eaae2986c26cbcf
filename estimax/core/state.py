"""The state of training: one pytree that the compiled step takes and returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax

from estimax.core.table_stacks import Tables


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """Step counter, variables, optimizer state and random key.

    `params` and `model_state` are Flax trees. `tables` and `slots` are mappings by
    variable name, because embedding tables are updated row by row, not as a tree:
    dicts, or `TableStacks`, whose tables share a few arrays.
    """

    step: jax.Array  # int32 scalar: number of steps done
    params: Any  # trained variables, embedding tables excepted
    tables: Tables  # embedding tables by name, each [V, D]
    model_state: Any  # batch statistics and other collections that are not trained
    opt_state: Any  # of `params`, one entry per optimizer group
    slots: Tables  # table name -> slot name -> [V, D]
    key: jax.Array  # random key of the run; each step folds its number into it
    # Moving averages of trained variables by name, if the run keeps them.
    averages: dict[str, jax.Array] = field(default_factory=dict)
    # On a mesh: pairs of the name of a table that is sharded by row and its number of
    # rows V. Its arrays may have more rows, so that they divide evenly.
    row_counts: tuple[tuple[str, int], ...] = field(
        default=(), metadata={"static": True}
    )
