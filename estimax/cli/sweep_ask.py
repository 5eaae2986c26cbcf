"""Where the values of a trial come from: a seed, a grid, or optuna."""

from __future__ import annotations

from typing import Any, Protocol

from estimax.config.schema.run import SpaceSection
from estimax.config.sweep import SweepPlan, Values
from estimax.core.errors import ConfigError


class Asking(Protocol):
    """Gives values to trials, and learns from their results."""

    def ask(self, trial: int) -> Values:
        """Return the values of a new trial."""

    def learn(self, trial: int, values: Values, metric: float | None) -> None:
        """Take the result of a trial into account; None if it failed."""


def ask_for(plan: SweepPlan) -> Asking:
    """Return the source of values that a plan asks for."""
    return _OptunaAsking(plan) if plan.method == "optuna" else _PlannedAsking(plan)


class _PlannedAsking:
    """Values that depend on the number of the trial alone."""

    def __init__(self, plan: SweepPlan) -> None:
        self._plan = plan

    def ask(self, trial: int) -> Values:
        return self._plan.sample(trial)

    def learn(self, trial: int, values: Values, metric: float | None) -> None:
        pass


class _OptunaAsking:
    """Values that optuna chooses from the results so far."""

    def __init__(self, plan: SweepPlan) -> None:
        try:
            import optuna
        except ImportError:
            raise ConfigError(
                "sweep.method: optuna is not installed; pip install 'estimax[sweep]', "
                "or use random or grid."
            ) from None
        self._optuna = optuna
        self._plan = plan
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._study = optuna.create_study(
            direction="maximize" if plan.mode == "max" else "minimize",
            sampler=optuna.samplers.TPESampler(seed=plan.seed),
        )
        self._kinds = {key: _kind(optuna, s) for key, s in plan.space.items()}

    def ask(self, trial: int) -> Values:
        asked = self._study.ask(self._kinds).params
        found: Values = {}
        for key, space in self._plan.space.items():
            value: Any = asked[key]
            found[key] = value if space.choice is None else space.choice[value]
        return found

    def learn(self, trial: int, values: Values, metric: float | None) -> None:
        if metric is None:
            return
        params = {}
        for key, space in self._plan.space.items():
            choices = None if space.choice is None else list(space.choice)
            value = values[key]
            params[key] = value if choices is None else _index(choices, value)
        self._study.add_trial(
            self._optuna.trial.create_trial(
                params=params, distributions=self._kinds, value=metric
            )
        )


def _index(choices: list[Any], value: Any) -> int:
    plain = [list(c) if isinstance(c, tuple) else c for c in choices]
    return plain.index(value)


def _kind(optuna: Any, space: SpaceSection) -> Any:  # optuna has no strict types
    """Return optuna's distribution; choices are by index, since they may be lists."""
    kinds = optuna.distributions
    if space.choice is not None:
        return kinds.CategoricalDistribution(list(range(len(space.choice))))
    if space.int_uniform is not None:
        return kinds.IntDistribution(*space.int_uniform)
    if space.log_uniform is not None:
        return kinds.FloatDistribution(*space.log_uniform, log=True)
    assert space.uniform is not None
    return kinds.FloatDistribution(*space.uniform)
