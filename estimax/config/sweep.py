"""The trials of a sweep: which values they try, and when a bad one is stopped.

    plan = sweep_plan(run, section)          # metric, mode and space, checked
    values = TrialValues(plan).suggest(7)    # {"optimizers.dnn.learning_rate": 0.08}
    overrides(values)                        # as for --set

Optuna suggests the values. Trial n of a random or grid sweep has the same values
however often the sweep is started, because they depend on the seed of the run and on n
alone.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from estimax.config.checks import better, metrics_of
from estimax.config.complete import node_of
from estimax.config.decode import Decoder
from estimax.config.dump import dump_flow, to_plain
from estimax.config.nodes import Problems, ValueOrigin
from estimax.config.schema.run import PruneSection, Run, SpaceSection, SweepSection
from estimax.core.errors import ConfigError, did_you_mean

Values = dict[str, Any]  # by address
History = Sequence[tuple[int, float]]  # step and metric of each evaluation
_MOST_GRID = 10_000
_DIGITS = 6  # of a sampled number, so that its text is short
_MAIN_METRICS = ("auc", "accuracy", "average_loss", "loss")


@dataclass(frozen=True)
class SweepPlan:
    """A sweep whose settings have been checked."""

    method: Literal["random", "grid", "optuna"]
    trials: int
    metric: str
    mode: Literal["min", "max"]
    space: Mapping[str, SpaceSection]
    seed: int
    prune: PruneSection | None

    def is_better(self, value: float, than: float) -> bool:
        """Return whether a value of the metric is better than another."""
        return value > than if self.mode == "max" else value < than

    def best(self, values: Sequence[float]) -> float:
        """Return the best of some values of the metric; NaN if all are."""
        numbers = [value for value in values if not math.isnan(value)]
        if not numbers:
            return math.nan
        return max(numbers) if self.mode == "max" else min(numbers)

    def should_prune(self, own: History, others: Sequence[History]) -> bool:
        """Return whether a trial is worse than the median of those that came as far.

        Compared are the best values up to the step of the trial's last evaluation.
        """
        if self.prune is None or len(own) < self.prune.min_evals:
            return False
        step = own[-1][0]
        rivals = []
        for history in others:
            # A rival that has not come as far has no value to compare with.
            if history and history[-1][0] >= step:
                rivals.append(self.best([v for at, v in history if at <= step]))
        rivals = [value for value in rivals if not math.isnan(value)]
        if len(rivals) < self.prune.min_trials:
            return False
        mine = self.best([value for _, value in own])
        return math.isnan(mine) or self.is_better(statistics.median(rivals), mine)


class TrialValues:
    """The values of the trials of a sweep, suggested by optuna.

    Raises:
      ConfigError: Optuna is not installed.
    """

    def __init__(self, plan: SweepPlan) -> None:
        try:
            import optuna
        except ImportError:
            raise ConfigError(
                "sweep: optuna is not installed, which suggests the values of trials; "
                "pip install 'estimax[sweep]'."
            ) from None
        self._optuna = optuna
        self._plan = plan
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._study = optuna.create_study(
            direction="maximize" if plan.mode == "max" else "minimize"
        )
        self._kinds = {key: _distribution(optuna, s) for key, s in plan.space.items()}

    def suggest(self, trial: int) -> Values:
        """Return the values of a new trial, counted from 0."""
        samplers, study = self._optuna.samplers, self._study
        make = samplers.TPESampler if self._plan.method == "optuna" else None
        # A sampler for each trial: one that draws for all would begin again with the
        # values of trial 0 when a sweep that was killed is continued.
        seed = random.Random(f"{self._plan.seed}/{trial}").getrandbits(32)
        study.sampler = (make or samplers.RandomSampler)(seed=seed)
        if self._plan.method == "grid":
            # Not by GridSampler, which shuffles: in order, the last address first.
            sizes = [range(len(s.choice or ())) for s in self._plan.space.values()]
            point = next(itertools.islice(itertools.product(*sizes), trial, None))
            study.enqueue_trial(dict(zip(self._plan.space, point, strict=True)))
        found = study.ask(self._kinds).params
        return {key: _value(s, found[key]) for key, s in self._plan.space.items()}

    def learn(self, values: Values, metric: float | None) -> None:
        """Take the result of a trial into account; None or NaN if it failed."""
        # Random and grid values do not depend on results, and optuna takes no NaN.
        if self._plan.method != "optuna" or metric is None or math.isnan(metric):
            return
        params = {key: _param(s, values[key]) for key, s in self._plan.space.items()}
        trial = self._optuna.trial.create_trial(
            params=params, distributions=self._kinds, value=metric
        )
        self._study.add_trial(trial)


def _distribution(optuna: Any, space: SpaceSection) -> Any:  # no strict types there
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


def _value(space: SpaceSection, param: Any) -> Any:
    """Return the value that a parameter of optuna stands for."""
    if space.choice is not None:
        return space.choice[param]
    limits = space.uniform or space.log_uniform
    if limits is None:
        return param
    # Few digits, so that the text for --set is short; still between the limits.
    return min(max(float(f"{param:.{_DIGITS}g}"), limits[0]), limits[1])


def _param(space: SpaceSection, value: Any) -> Any:
    """Return the parameter of optuna that stands for a value."""
    if space.choice is not None:
        return [_as_lists(choice) for choice in space.choice].index(_as_lists(value))
    limits = space.uniform or space.log_uniform or space.int_uniform
    assert limits is not None, "a space has choices or limits"
    # Values are rounded for --set, so that one near a limit may be beyond it.
    return min(max(value, limits[0]), limits[1])


def _as_lists(value: Any) -> Any:
    """Return a value of a run file, where lists are tuples, as JSON has it."""
    if isinstance(value, list | tuple):
        return [_as_lists(item) for item in value]
    return value


def overrides(values: Values) -> list[str]:
    """Return the values of a trial as texts for --set.

    >>> overrides({"model.dnn.hidden_units": [64, 32]})
    ['model.dnn.hidden_units=[64, 32]']
    """
    return [f"{key}={dump_flow(value)}" for key, value in values.items()]


def extremes(space: SpaceSection) -> list[Any]:
    """Return values of a space that a run must accept: all choices, or both limits.

    >>> extremes(SpaceSection(uniform=(0.1, 0.5)))
    [0.1, 0.5]
    """
    given = space.choice or space.uniform or space.log_uniform or space.int_uniform
    return list(given or ())


def sweep_section(run: Run, changes: Mapping[str, Any]) -> SweepSection:
    """Return the section `sweep` of a run with some of its values replaced.

    Args:
      run: The run.
      changes: Values by key, as in a run file. `space` is added to that of the run.

    Raises:
      RunFileError: A value is not valid.
    """
    origin = ValueOrigin("the options of the sweep")
    problems = Problems(origin.source)
    given = to_plain(run.sweep) if run.sweep is not None else {}
    space = {**given.get("space", {}), **changes.get("space", {})}
    merged = node_of({**given, **changes, "space": space}, origin)
    section: SweepSection = Decoder(problems).section(merged, SweepSection, "sweep")
    problems.raise_if_any()
    return section


def sweep_plan(run: Run, section: SweepSection) -> SweepPlan:
    """Return the plan of a sweep.

    Raises:
      ConfigError: The space is empty or not valid, the metric is unknown, or the run
        has no evaluation.
    """
    if run.eval is None:
        raise ConfigError(
            "sweep: the run has no eval section, so that trials cannot be compared; "
            "add eval: {source: …}."
        )
    if not section.space:
        raise ConfigError(
            "sweep.space: nothing to try; add addresses with values, such as "
            "optimizers.dnn.learning_rate: {log_uniform: [0.01, 0.3]}."
        )
    for address, space in section.space.items():
        _check_space(address, space, section.method)
    known = metrics_of(getattr(run.model, "head", None))
    metric = (section.metric or "").removeprefix("eval/")
    if not metric:
        metric = next((m for m in _MAIN_METRICS if m in known), "loss")
    elif known and metric not in known:
        hint = did_you_mean(metric, known)
        raise ConfigError(f"sweep.metric: unknown metric {metric!r}{hint}")
    mode = section.mode or better(metric)
    if mode is None:
        raise ConfigError(
            f"sweep.mode: set it to min or max, whichever is better for {metric!r}."
        )
    trials = section.trials
    if section.method == "grid":
        sizes = [len(space.choice or ()) for space in section.space.values()]
        trials = math.prod(sizes)
        if trials > _MOST_GRID:
            raise ConfigError(
                f"sweep.space: a grid of {trials:,} combinations; the most is "
                f"{_MOST_GRID:,}. Use method: random with a number of trials."
            )
    return SweepPlan(
        section.method,
        trials,
        metric,
        "max" if mode == "max" else "min",
        section.space,
        run.seed,
        section.prune,
    )


def _check_space(address: str, space: SpaceSection, method: str) -> None:
    where = f"sweep.space.{address}"
    kinds = ("choice", "uniform", "log_uniform", "int_uniform")
    given = [kind for kind in kinds if getattr(space, kind) is not None]
    if len(given) != 1:
        raise ConfigError(
            f"{where}: give one of {', '.join(kinds)}; found "
            f"{', '.join(given) or 'none of them'}."
        )
    limits = getattr(space, given[0])
    if given[0] != "choice" and (len(limits) != 2 or limits[0] >= limits[1]):
        raise ConfigError(
            f"{where}.{given[0]}: expected two limits, the lower one first, found "
            f"{list(limits)}."
        )
    if given[0] != "choice" and method == "grid":
        raise ConfigError(
            f"{where}: a grid needs a choice of values, found {given[0]}; list the "
            "values, or use method: random."
        )
