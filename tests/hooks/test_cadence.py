import pytest

from estimax.core.errors import ConfigError
from estimax.hooks import SecondOrStepTimer


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    "given", [{}, {"every_secs": 1, "every_steps": 1}, {"every_steps": 0}]
)
def test_exactly_one_interval_is_needed(given: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="give exactly one of steps"):
        SecondOrStepTimer(**given)


def test_never_twice_for_the_same_step() -> None:
    timer = SecondOrStepTimer(every_steps=1)
    timer.update_last_triggered_step(5)
    assert not timer.should_trigger_for_step(5)
    assert timer.should_trigger_for_step(6)


def test_seconds_trigger_when_they_have_passed() -> None:
    clock = Clock()
    timer = SecondOrStepTimer(every_secs=10, clock=clock)
    assert timer.should_trigger_for_step(1)
    timer.update_last_triggered_step(1)
    clock.now += 9.9
    assert not timer.should_trigger_for_step(2)
    clock.now += 0.1
    assert timer.should_trigger_for_step(3)


def test_elapsed_seconds_and_steps_are_told() -> None:
    clock = Clock()
    timer = SecondOrStepTimer(every_steps=10, clock=clock)
    assert timer.update_last_triggered_step(1) == (None, None)
    clock.now += 4
    assert timer.update_last_triggered_step(11) == (4, 10)
    assert timer.last_triggered_step() == 11


def test_reset_makes_the_next_use_trigger() -> None:
    timer = SecondOrStepTimer(every_steps=10)
    timer.update_last_triggered_step(1)
    timer.reset()
    assert timer.last_triggered_step() is None
    assert timer.should_trigger_for_step(2)


def test_next_step_is_where_the_timer_triggers() -> None:
    timer = SecondOrStepTimer(every_steps=100)
    assert timer.next_step(37) == 38
    timer.update_last_triggered_step(37)
    assert timer.next_step(37) == timer.next_step(100) == 137
    assert timer.next_step(200) == 201


def test_seconds_do_not_cut_the_loop_short() -> None:
    clock = Clock()
    timer = SecondOrStepTimer(every_secs=10, clock=clock)
    timer.update_last_triggered_step(37)
    assert timer.next_step(40) == 40
    assert not timer.is_due_next()
    clock.now += 10
    assert timer.is_due_next()
