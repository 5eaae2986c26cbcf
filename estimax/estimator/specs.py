"""What `train_and_evaluate` trains on and evaluates on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from estimax.core.errors import SpecError
from estimax.estimator.arguments import check_count, checked_hooks
from estimax.estimator.calling import check_input_fn
from estimax.export import Exporter
from estimax.hooks import Hook


@dataclass(frozen=True)
class TrainSpec:
    """Training's part: the input, the step to reach, and hooks.

    >>> TrainSpec(input_fn=lambda: None, max_steps=100).max_steps
    100
    """

    input_fn: Callable[..., Any]
    max_steps: int | None = None
    hooks: Sequence[Hook] = ()
    saving_listeners: Sequence[Any] = ()

    def __post_init__(self) -> None:
        check_input_fn(self.input_fn, "TrainSpec: ")
        object.__setattr__(self, "hooks", checked_hooks(self.hooks, "TrainSpec: "))
        object.__setattr__(self, "saving_listeners", tuple(self.saving_listeners or ()))
        check_count("TrainSpec: max_steps", self.max_steps)


@dataclass(frozen=True)
class EvalSpec:
    """Evaluation's part: the input, how much of it, how often, and exporters.

    `steps` None evaluates the whole input (tf.estimator's default of 100 batches
    evaluated a part of it in silence). An evaluation follows a checkpoint if
    `throttle_secs` have passed since the last one began. With `every_steps` n it takes
    place at every multiple of n instead, whenever checkpoints are saved.
    `start_delay_secs` is how long an evaluator in a process of its own waits at first.

    >>> EvalSpec(input_fn=lambda: None, name="holdout").steps is None
    True
    """

    input_fn: Callable[..., Any]
    steps: int | None = None
    name: str | None = None
    hooks: Sequence[Hook] = ()
    exporters: Exporter | Iterable[Exporter] | None = None
    start_delay_secs: float = 120
    throttle_secs: float = 600
    every_steps: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_input_fn(self.input_fn, "EvalSpec: ")
        object.__setattr__(self, "hooks", checked_hooks(self.hooks, "EvalSpec: "))
        check_count("EvalSpec: steps", self.steps)
        check_count("EvalSpec: every_steps", self.every_steps)
        if self.throttle_secs < 0 or self.start_delay_secs < 0:
            raise SpecError(
                "EvalSpec: throttle_secs and start_delay_secs must be >= 0."
            )
        object.__setattr__(self, "exporters", self.every_exporter)
        for exporter in self.every_exporter:
            if not isinstance(exporter, Exporter):
                raise TypeError(
                    "EvalSpec: exporters must be Exporters, got "
                    f"{type(exporter).__name__}."
                )
        names = [exporter.name for exporter in self.every_exporter]
        if len(set(names)) < len(names) or not all(names):
            raise SpecError(f"EvalSpec: exporters need distinct names, got {names}.")

    @property
    def every_exporter(self) -> tuple[Exporter, ...]:
        """The exporters as a tuple, however they were given."""
        given = self.exporters
        if given is None:
            return ()
        return (given,) if isinstance(given, Exporter) else tuple(given)
