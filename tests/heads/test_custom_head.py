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
