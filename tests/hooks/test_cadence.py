import pytest
from process_threads import processes_of

from estimax.core.errors import ConfigError
from estimax.hooks import RunContext, SecondOrStepTimer
from estimax.parallel.requests import Requests


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


class Together:
    """A timer in each of two processes, with clocks of their own."""

    def __init__(self, **interval):
        self.now = [0.0, 0.0]
        peers = processes_of(2)
        self.contexts = [RunContext(1, peers=p, requests=Requests()) for p in peers]
        self.timers = [
            SecondOrStepTimer(**interval, clock=lambda index=index: self.now[index])
            for index in range(2)
        ]

    def are_due(self, *agreed):
        for context in self.contexts:
            context.agreed = frozenset(agreed)
        pairs = zip(self.timers, self.contexts, strict=True)
        return [timer.is_due_for_all(context, "report") for timer, context in pairs]

    def trigger(self, step):
        for timer in self.timers:
            timer.update_last_triggered_step(step)

    def asked(self):
        return [context.requests.take() for context in self.contexts]


def test_the_clock_of_the_chief_decides_for_all_processes():
    both = Together(every_secs=10)
    assert both.are_due() == [True, True]  # the first step
    both.trigger(1)
    both.now[1] = 20.0
    assert both.are_due() == [False, False]
    assert both.asked() == [[], []]
    both.now[0] = 11.0
    assert both.are_due() == [False, False]
    assert both.are_due() == [False, False]
    assert both.asked() == [["report"], []]  # once
    assert both.are_due("report") == [True, True]
    both.trigger(5)
    assert both.are_due() == [False, False]
    assert both.asked() == [[], []]


def test_steps_need_no_request():
    both = Together(every_steps=10)
    both.trigger(1)
    assert both.are_due() == [True, True]  # called at the right step only
    assert both.asked() == [[], []]


def test_zero_seconds_are_every_step_in_a_cluster_too():
    both = Together(every_secs=0)
    both.trigger(1)
    assert both.are_due() == [True, True]
    assert both.asked() == [[], []]
