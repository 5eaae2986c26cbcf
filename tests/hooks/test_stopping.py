from typing import Any

import pytest

from estimax.core.errors import ConfigError
from estimax.hooks import StopAtStepHook


def test_num_steps_are_relative_at_every_begin(run: Any) -> None:
    hook = StopAtStepHook(num_steps=3)
    assert run([hook]).step == 3
    assert run([hook]).step == 6


def test_last_step_is_absolute(run: Any) -> None:
    run([], steps=2)
    assert run([StopAtStepHook(last_step=5)]).step == 5


def test_reached_target_runs_no_step(run: Any) -> None:
    run([], steps=5)
    assert run([StopAtStepHook(last_step=5)]).step == 5


@pytest.mark.parametrize("given", [{}, {"num_steps": 1, "last_step": 1}])
def test_exactly_one_target_is_needed(given: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"give num_steps .* or last_step"):
        StopAtStepHook(**given)
