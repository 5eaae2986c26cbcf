"""The section `sweep`: runs with different values, to find the best ones.

sweep:
  method: random
  trials: 40
  metric: auc
  prune: {min_evals: 3}
  space:
    optimizers.dnn.learning_rate: {log_uniform: [0.01, 0.3]}
    model.dnn.hidden_units: {choice: [[64, 32], [128, 64]]}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from estimax.config.decode import About


@dataclass(frozen=True, kw_only=True)
class SpaceSection:
    """The values that a sweep tries at one address. Give exactly one of the keys."""

    choice: Annotated[
        tuple[Any, ...] | None, About("One of these values.", min_items=1)
    ] = None
    uniform: Annotated[
        tuple[float, ...] | None, About("A number between two limits.", min_items=2)
    ] = None
    log_uniform: Annotated[
        tuple[float, ...] | None,
        About(
            "A number between two limits, uniform in its logarithm.",
            min_items=2,
            above=0,
        ),
    ] = None
    int_uniform: Annotated[
        tuple[int, ...] | None,
        About("A whole number between two limits, both included.", min_items=2),
    ] = None


@dataclass(frozen=True, kw_only=True)
class PruneSection:
    """Stop a trial early if its metric is worse than the median of the others."""

    min_evals: Annotated[
        int, About("Evaluations of a trial before it may be stopped.", at_least=1)
    ] = 2
    min_trials: Annotated[
        int, About("Other trials that must have come as far.", at_least=1)
    ] = 4


@dataclass(frozen=True, kw_only=True)
class SweepSection:
    """Trials of the run with different values, started by `estimax sweep`."""

    method: Annotated[
        Literal["random", "grid", "optuna"],
        About(
            "random: independent trials; grid: every combination of the choices; "
            "optuna: trials that learn from earlier ones. All need optuna (pip install "
            "estimax[sweep])."
        ),
    ] = "random"
    trials: Annotated[
        int, About("Number of trials; a grid has as many as combinations.", at_least=1)
    ] = 20
    processes: Annotated[
        int, About("Trials that run at the same time.", at_least=1)
    ] = 1
    metric: Annotated[
        str | None,
        About("The metric to improve; by default that of the head, such as auc."),
    ] = None
    mode: Annotated[
        Literal["min", "max"] | None,
        About("Whether a small or a large metric is better; null decides by its name."),
    ] = None
    prune: Annotated[
        PruneSection | None, About("Stop bad trials early; null runs all to the end.")
    ] = None
    space: Annotated[
        Mapping[str, SpaceSection],
        About("Addresses of the run, as for --set, with the values to try."),
    ] = field(default_factory=dict)
