"""The metrics of a constant answer, worked by hand."""

import dataclasses
import math

import pytest

from estimax.config.baseline import baseline
from estimax.config.load import load
from tests.cli.conftest import write_run


@pytest.fixture
def run(tmp_path):
    return load(write_run(tmp_path)).run


def with_head(run, text, tmp_path):
    return load(tmp_path / "run.yaml", [f"model.head={text}", "export=[]"]).run


def test_two_classes_have_the_share_of_the_larger_one(run):
    batches = [({}, [1, 1]), ({}, [1, 0])]
    found = baseline(run, lambda: batches)
    assert found["accuracy"] == 0.75
    assert found["auc"] == 0.5
    entropy = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    assert found["average_loss"] == pytest.approx(entropy)
    assert baseline(run, lambda: batches, 1)["accuracy"] == 1.0


def test_a_loss_with_class_weights_is_not_compared_with_the_entropy(run, tmp_path):
    run = with_head(run, "{type: binary, class_weights: {'1': 2}}", tmp_path)
    assert set(baseline(run, lambda: [({}, [1, 0])])) == {"accuracy", "auc"}


def test_a_number_has_its_variance(run, tmp_path):
    run = with_head(run, "{type: regression}", tmp_path)
    found = baseline(run, lambda: [({}, [1.0]), ({}, [3.0])])
    assert found == {"average_loss": 1.0}


def test_weighted_examples_have_no_baseline(run):
    data = dataclasses.replace(run.data, weight="w")
    assert baseline(dataclasses.replace(run, data=data), lambda: []) == {}
