"""What `train_and_evaluate` trains on and evaluates on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from estimax.core.errors import SpecError
from estimax.estimator.arguments import checked_hooks
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
        _check_input_fn("TrainSpec", self.input_fn)
        object.__setattr__(self, "hooks", checked_hooks(self.hooks, "TrainSpec: "))
        object.__setattr__(self, "saving_listeners", tuple(self.saving_listeners or ()))
        if self.max_steps is not None and self.max_steps <= 0:
            raise SpecError(f"TrainSpec: max_steps must be > 0, got {self.max_steps}.")


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
        _check_input_fn("EvalSpec", self.input_fn)
        object.__setattr__(self, "hooks", checked_hooks(self.hooks, "EvalSpec: "))
        if self.steps is not None and self.steps <= 0:
            raise SpecError(f"EvalSpec: steps must be > 0 or None, got {self.steps}.")
        if self.every_steps is not None and self.every_steps <= 0:
            raise SpecError(
                f"EvalSpec: every_steps must be > 0 or None, got {self.every_steps}."
            )
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


def _check_input_fn(where: str, input_fn: Any) -> None:
    if not callable(input_fn):
        raise TypeError(
            f"{where}: input_fn must be a function that returns the data, got "
            f"{type(input_fn).__name__}. Wrap it: input_fn=lambda: dataset."
        )
