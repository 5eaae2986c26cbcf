"""The values that trials try, and when one is stopped."""

import pytest

from estimax.config.load import load
from estimax.config.schema.run import PruneSection, SpaceSection
from estimax.config.sweep import (
    SweepPlan,
    TrialValues,
    overrides,
    sweep_plan,
    sweep_section,
)
from estimax.core.errors import ConfigError
from tests.cli.conftest import write_run

RATE = {"optimizers.dnn.learning_rate": {"log_uniform": [0.01, 1.0]}}


@pytest.fixture
def run(tmp_path):
    return load(write_run(tmp_path)).run


def plan_of(run, **changes):
    return sweep_plan(run, sweep_section(run, {"space": RATE, **changes}))


def test_a_random_trial_depends_on_seed_and_number_alone(run):
    draw = TrialValues(plan_of(run)).suggest
    values = [draw(n)["optimizers.dnn.learning_rate"] for n in range(50)]
    others = [TrialValues(plan_of(run)).suggest(n) for n in range(50)]
    assert values == [other[next(iter(RATE))] for other in others]
    assert len(set(values)) == 50
    assert 0.01 <= min(values) < 0.1 < max(values) <= 1.0


def test_a_grid_has_every_combination_once(run):
    space = {"seed": {"choice": [1, 2]}, "train.max_steps": {"choice": [5, 6, 7]}}
    plan = plan_of(run, method="grid", space=space)
    assert plan.trials == 6
    suggest = TrialValues(plan).suggest
    tried = [tuple(suggest(n).values()) for n in range(6)]
    assert [tuple(TrialValues(plan).suggest(n).values()) for n in range(6)] == tried
    assert sorted(tried) == [(1, 5), (1, 6), (1, 7), (2, 5), (2, 6), (2, 7)]


@pytest.mark.parametrize("method", ["random", "optuna"])
def test_results_that_were_saved_before_are_learned_or_passed_over(method):
    space = {
        "x": SpaceSection(uniform=(0.123456789, 1.0)),
        "units": SpaceSection(choice=(((1, 2), (3,)), (4,))),
    }
    suggestions = TrialValues(SweepPlan(method, 9, "loss", "min", space, 1, None))
    suggestions.learn({"x": 0.5, "units": [4]}, float("nan"))
    suggestions.learn({"x": 0.5, "units": [4]}, None)
    # Rounded below the limit, and nested lists as JSON has them.
    suggestions.learn({"x": 0.1234, "units": [[1, 2], [3]]}, 0.7)
    assert suggestions.suggest(3)["units"] in space["units"].choice


def test_optuna_learns_from_results():
    space = {
        "x": SpaceSection(uniform=(0.0, 1.0)),
        "units": SpaceSection(choice=([8], [16, 8])),
    }
    plan = SweepPlan("optuna", 40, "loss", "min", space, 1, None)
    suggestions = TrialValues(plan)
    tried = []
    for trial in range(40):
        values = suggestions.suggest(trial)
        assert values["units"] in ([8], [16, 8])
        tried.append(values["x"])
        suggestions.learn(values, (values["x"] - 0.3) ** 2)
    late = sum(abs(x - 0.3) for x in tried[20:]) / 20
    early = sum(abs(x - 0.3) for x in tried[:10]) / 10
    assert late < early


def test_a_study_that_is_continued_draws_no_value_again(run):
    plan = plan_of(run, method="optuna")
    first = TrialValues(plan).suggest(0)
    continued = TrialValues(plan)
    continued.learn(first, 0.5)
    assert continued.suggest(1) != first


def test_values_are_written_as_set_reads_them():
    given = {"a.b": [8, 4], "c": "no", "d": "1", "e": None, "f": 0.001}
    assert overrides(given) == ["a.b=[8, 4]", "c=no", "d='1'", "e=null", "f=0.001"]


def test_the_metric_is_that_of_the_head(run):
    plan = plan_of(run)
    assert (plan.metric, plan.mode) == ("auc", "max")
    plan = plan_of(run, metric="eval/average_loss")
    assert (plan.metric, plan.mode) == ("average_loss", "min")


def test_a_trial_below_the_median_of_those_that_came_as_far_is_stopped(run):
    plan = plan_of(run, prune={"min_evals": 2, "min_trials": 2})
    assert plan.prune == PruneSection(min_evals=2, min_trials=2)
    others = [[(10, 0.6), (20, 0.8)], [(10, 0.6), (20, 0.7)], [(10, 0.9)]]
    assert plan.should_prune([(10, 0.5), (20, 0.6)], others)
    assert not plan.should_prune([(10, 0.5), (20, 0.8)], others)
    assert not plan.should_prune([(10, 0.1)], others), "too few evaluations"
    assert not plan.should_prune([(10, 0.1), (20, 0.1)], others[1:]), "too few trials"
    assert plan.should_prune([(10, float("nan")), (20, float("nan"))], others)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"space": {"seed": {}}}, "give one of choice, uniform"),
        ({"space": {"seed": {"uniform": [2, 1]}}}, "the lower one first"),
        ({"method": "grid"}, "a grid needs a choice"),
        ({"metric": "acu"}, "unknown metric 'acu'; did you mean 'auc'"),
        ({"metric": "label/mean"}, "set it to min or max"),
        ({"method": "bayes"}, "unknown value 'bayes'"),
        ({"trials": 0}, "must be >= 1"),
    ],
)
def test_a_sweep_that_cannot_run_is_told(run, changes, words):
    with pytest.raises(ConfigError, match=words):
        plan_of(run, **changes)


def test_a_sweep_without_values_or_evaluation_is_told(tmp_path):
    path = write_run(tmp_path)
    run = load(path).run
    with pytest.raises(ConfigError, match="nothing to try"):
        sweep_plan(run, sweep_section(run, {}))
    run = load(path, ["eval=null", "export=[]"]).run
    with pytest.raises(ConfigError, match="no eval section"):
        plan_of(run)
