"""Evaluating the variables as they are in training, without a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from estimax.core.errors import ConfigError, SpecError
from estimax.core.state import TrainState
from estimax.hooks.hook import Hook, RunContext, Values


@runtime_checkable
class EvaluatesStates(Protocol):
    """What the hook needs of an Estimator."""

    def evaluate_state(
        self,
        state: TrainState,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[Hook] | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluate variables that are in memory."""


class InMemoryEvaluatorHook(Hook):
    """Evaluates during training without going through the disk.

    Before the first step, every `every_n_iter` steps, and at the end. Results go to
    `estimator.eval_dir(name)` as those of `evaluate` do, and the latest are in
    `results`. An early stopping hook that is to see them goes behind it in the list.

    >>> import estimax as ex
    >>> model = ex.BaselineRegressor(model_dir="/tmp/estimax-doc-in-memory")
    >>> hook = InMemoryEvaluatorHook(model, lambda: None, every_n_iter=500)
    """

    def __init__(
        self,
        estimator: EvaluatesStates,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[Hook] | None = None,
        name: str | None = None,
        every_n_iter: int = 100,
    ) -> None:
        if not isinstance(estimator, EvaluatesStates):
            raise TypeError(
                "InMemoryEvaluatorHook: estimator must be an Estimator, got "
                f"{type(estimator).__name__}."
            )
        if every_n_iter <= 0:
            raise ConfigError(
                f"InMemoryEvaluatorHook: every_n_iter must be > 0, got {every_n_iter}."
            )

        def evaluate(state: TrainState) -> dict[str, Any]:
            return estimator.evaluate_state(state, input_fn, steps, hooks, name)

        self._evaluate_state = evaluate
        self._every = every_n_iter
        self._start = 0
        self._evaluated: int | None = None
        self.results: dict[str, Any] = {}

    def after_create_session(self, context: RunContext) -> None:
        """Evaluate what training starts from."""
        self._start = context.step
        self._evaluate(context)

    def after_run(self, context: RunContext, values: Values) -> None:
        """Evaluate: the loop calls only when it is time."""
        self._evaluate(context)

    def end(self, context: RunContext) -> None:
        """Evaluate the last state, unless it just was."""
        if self._evaluated != context.step:
            self._evaluate(context)

    def next_step(self, step: int) -> int:
        """Every so many steps from the start of this run."""
        done = (step - self._start) // self._every
        return self._start + (done + 1) * self._every

    def _evaluate(self, context: RunContext) -> None:
        if context.state is None:
            raise SpecError("InMemoryEvaluatorHook works in train; here is no state.")
        self._evaluated = context.step
        self.results = self._evaluate_state(context.state)
