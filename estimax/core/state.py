"""All that training changes, as one value that the compiled step takes and gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """Step counter, variables, optimizer state and random key.

    `params` and `model_state` are flax trees; `tables` and `slots` are flat, by the
    table's variable name, because tables are updated by row and not by tree.
    """

    step: jax.Array  # int32 scalar: steps done
    params: Any
    tables: dict[str, jax.Array]  # name -> [V, D]
    model_state: Any  # batch statistics and other non-trained collections
    opt_state: Any  # one entry per optimizer group
    slots: dict[str, dict[str, jax.Array]]  # table name -> slot name -> [V, D]
    key: jax.Array  # the run's random key; a step folds its number in
    averages: dict[str, jax.Array] = field(default_factory=dict)  # of trained variables
