"""What the metrics of a trained model say, worked by hand."""

import pytest

from estimax.config.load import load
from estimax.config.verdict import (
    _of_curves,
    _of_others,
    is_worse_than,
    label_units,
    perfect_metric,
    verdict_of,
)
from estimax.hooks.summary import SummaryWriter
from tests.config import run_files

AVERAGE = """\
schema: estimax/run/v1
name: average
run: {model_dir: runs/average}
data:
  label: late
  sources: {train: {format: csv, files: train.csv, batch_size: 8}}
features:
  age: {type: numeric}
model:
  type: average
  models: {trees: {type: boosted_trees}, network: {type: tabular}}
eval: {source: train}
"""


@pytest.mark.parametrize(
    ("metrics", "baseline", "told"),
    [
        ({"accuracy": 1.0, "average_loss": 0.01}, {"accuracy": 0.6}, "accuracy is 1"),
        ({"accuracy": 0.99, "auc": 1.0}, {"accuracy": 0.6}, "auc is 1"),
        (
            {"accuracy": 0.999, "average_loss": 8e-6},
            {"accuracy": 0.6},
            "average_loss is 8e-06",
        ),
        ({"accuracy": 0.99, "auc": 0.999, "average_loss": 0.01}, {}, None),
        ({"accuracy": 1.0}, {"accuracy": 1.0}, None),
        ({"average_loss": 0.01}, {"average_loss": 1000.0}, "R² is 0.9999900"),
        ({"average_loss": 1e-6}, {"average_loss": 1e-5}, None),
        ({"average_loss": 1e-6}, {}, None),
        ({}, {}, None),
    ],
)
def test_a_perfect_metric_is_named(metrics, baseline, told):
    assert perfect_metric(metrics, baseline) == told


def titles(evaluated, trained=()):
    return [remark.title for remark in _of_curves(list(trained), evaluated)]


@pytest.mark.parametrize(
    ("losses", "title"),
    [
        ([0.9, 0.7, 0.5], "still improving"),
        ([0.9, 0.5, 0.4999], "converged"),
        ([0.9, 0.5, 0.503], "converged"),
        ([0.9, 0.5, 0.6], "overfitting"),
    ],
)
def test_the_curve_of_the_evaluation_says_how_the_training_went(losses, title):
    assert titles([(10 * i, loss) for i, loss in enumerate(losses)]) == [title]


def test_two_evaluations_say_nothing():
    assert titles([(1, 0.9), (2, 0.5)]) == []


def test_overfitting_is_shown_by_both_curves():
    (remark,) = _of_curves(
        [(10, 0.6), (20, 0.4), (30, 0.2)], [(10, 0.9), (20, 0.5), (30, 0.7)]
    )
    assert (
        "after step 20 the loss of the evaluation rose from 0.5 to 0.7" in remark.text
    )
    assert "while that of the training fell from 0.4 to 0.2" in remark.text
    assert "a smaller model would move it" in remark.text


def test_the_verdict_on_an_average_is_that_on_its_network(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.csv").write_text("age,late\n20,1\n")
    run = load(run_files.write(tmp_path, AVERAGE)).run
    assert verdict_of(run, {}, {}) == []
    with SummaryWriter(tmp_path / "runs/average/members/network/eval") as writer:
        for step, loss in ((10, 0.9), (20, 0.5), (30, 0.7)):
            writer.scalar("average_loss", loss, step)
    (remark,) = verdict_of(run, {}, {})
    assert remark.title == "overfitting"
    assert "a higher model.models.network.dnn.dropout" in remark.text


def test_a_model_worse_than_a_constant_is_told():
    assert is_worse_than({"average_loss": 0.85}, {"average_loss": 0.69})
    assert not is_worse_than({"average_loss": 0.5}, {"average_loss": 0.69})
    assert not is_worse_than({"average_loss": 0.5}, {})


def test_a_better_linear_model_means_underfitting():
    others = {"linear": {"average_loss": 0.4}, "lightgbm": {"average_loss": 0.45}}
    (remark,) = _of_others({"average_loss": 0.5}, others)
    assert remark.title == "underfitting"
    assert "a linear model has average_loss 0.4 on the same rows" in remark.text
    assert _of_others({"average_loss": 0.401}, others) == []


def test_numbers_have_errors_in_the_units_of_the_label():
    found = label_units({"average_loss": 9.0}, {"average_loss": 36.0})
    assert found.of_model == {"rmse": 3.0, "r2": 0.75}
    assert found.of_constant == {"rmse": 6.0, "r2": 0.0}
    assert label_units({"average_loss": 0.3, "accuracy": 0.9}, {}).of_model == {}
