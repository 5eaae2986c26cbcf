"""The example of a head written by a user, through its own file."""

import runpy
from pathlib import Path

import pytest

from estimax import heads

EXAMPLE = Path(__file__).parents[2] / "examples/custom_head/quantile_head.py"


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(EXAMPLE))


def test_a_users_head_trains_and_covers_its_quantiles(example):
    found = example["main"]()
    assert found["below/0.1"] == pytest.approx(0.1, abs=0.05)
    assert found["below/0.9"] == pytest.approx(0.9, abs=0.05)


def test_a_users_head_has_the_members_of_the_protocol(example):
    assert isinstance(example["QuantileHead"](), heads.Head)


def test_a_users_head_inherits_weights_names_and_reductions(example):
    head = example["QuantileHead"]((0.5,), weight_column="w", name="eta")
    batch = {"features": {"w": [1.0, 0.0]}, "logits": [[1.0], [9.0]]}
    assert float(head.loss(labels=[3.0, 0.0], **batch)) == 0.5
    seen = head.update_metrics(head.metrics(), labels=[3.0, 0.0], **batch)
    assert float(seen["average_loss/eta"].compute()) == 1.0
    assert float(seen["below/0.5/eta"].compute()) == 0.0


def test_a_users_head_works_on_the_steps_of_sequences(example):
    head = heads.SequentialHeadWrapper(example["QuantileHead"]((0.5,)), "mask")
    features = {"mask": [[True, False]]}
    assert float(head.loss([[[1.0], [9.0]]], [[3.0, 0.0]], features)) == 1.0


def test_losses_that_are_already_reduced_are_refused(example):
    class Reduced(example["QuantileHead"]):
        def example_losses(self, labels, logits, features):
            return super().example_losses(labels, logits, features).mean()

    with pytest.raises(ValueError, match=r"shape \[1, 1\] or \[1, N\], got \[\]"):
        Reduced((0.5,)).loss([1.0], [[0.0]])
