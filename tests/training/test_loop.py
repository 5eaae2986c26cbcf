import numpy as np
import pytest

from estimax import training
from estimax.hooks import Hook, RunContext
from estimax.parallel.requests import STOP, Requests
from estimax.staging.batches import BatchStack


class CountingProgram:
    """A program that counts: its state is the number of batches that it was given."""

    observed = frozenset()

    def __init__(self):
        self.calls = []

    def step(self, state, batch):
        self.calls.append(1)
        return state + 1, {"loss": np.float32(state)}

    def loop(self, state, batches, start, stop):
        self.calls.append((start, stop))
        state += stop - start
        return state, {"loss": np.float32(state - 1)}


def loops(count, length):
    """So many batches, in stacks of `length`."""
    for first in range(0, count, length):
        numbers = range(first, min(first + length, count))
        yield BatchStack(
            arrays=None,
            examples=[2 for _ in numbers],
            positions=[{"at": i + 1} for i in numbers],
            capacity=length,
        )


class Every(Hook):
    """Wants to be called every n steps, and notes the steps and losses."""

    def __init__(self, n):
        self.n = n
        self.seen = []

    def next_step(self, step):
        return (step // self.n + 1) * self.n

    def before_run(self, context):
        return ["loss"]

    def after_run(self, context, values):
        self.seen.append((context.step, float(values["loss"])))


def run(count, hooks, *, loop=1, start=0):
    program = CountingProgram()
    context = RunContext(step=start)
    training.run(program, start, loops(count, loop), hooks, context)
    return program, context


def test_steps_run_until_the_data_ends():
    program, context = run(5, [])
    assert program.calls == [1] * 5
    assert (context.step, context.examples) == (5, 10)
    assert context.input_state == {"at": 5}


def test_a_stack_runs_in_one_call():
    program, context = run(10, [], loop=4)
    assert program.calls == [(0, 4), (0, 4), (0, 2)]
    assert (context.step, context.examples) == (10, 20)
    assert context.input_state == {"at": 10}


def test_a_hook_cuts_a_loop_short_at_the_step_it_asked_for():
    hook = Every(6)
    program, _ = run(12, [hook], loop=4)
    assert hook.seen == [(6, 5.0), (12, 11.0)]
    assert program.calls == [(0, 4), (0, 2), (2, 4), (0, 4)]


def test_the_position_is_that_of_the_last_trained_batch_of_a_stack():
    class StopsAtSix(Every):
        def after_run(self, context, values):
            context.request_stop()

    _, context = run(12, [StopsAtSix(6)], loop=4)
    assert context.input_state == {"at": 6}


def test_hooks_are_called_only_at_their_steps():
    often, seldom = Every(1), Every(3)
    run(6, [often, seldom])
    assert [step for step, _ in often.seen] == [1, 2, 3, 4, 5, 6]
    assert [step for step, _ in seldom.seen] == [3, 6]


def test_a_stop_asked_for_at_the_beginning_runs_no_step():
    class StopsAtOnce(Hook):
        def begin(self, context):
            context.request_stop()

    program, context = run(3, [StopsAtOnce()])
    assert program.calls == []
    assert context.step == 0


def test_a_value_that_the_model_does_not_log_is_told():
    class Wants(Hook):
        def before_run(self, context):
            return ["accuracy"]

    with pytest.raises(KeyError, match=r"does not log; it logs \['loss'\]"):
        run(1, [Wants()])


def test_a_batch_is_read_only_when_a_step_is_due():
    taken = []

    def watched():
        for batch in loops(100, 1):
            taken.append(batch)
            yield batch

    class StopsAtTwo(Hook):
        def after_run(self, context, values):
            if context.step == 2:
                context.request_stop()

    training.run(CountingProgram(), 0, watched(), [StopsAtTwo()], RunContext(0))
    assert len(taken) == 2


class Ending(Every):
    """Raises StopIteration from one phase of a step."""

    def __init__(self, phase, step):
        super().__init__(1)
        self.phase, self.step = phase, step

    def before_run(self, context):
        if self.phase == "before_run" and context.step + 1 == self.step:
            raise StopIteration
        return super().before_run(context)

    def after_run(self, context, values):
        super().after_run(context, values)
        if self.phase == "after_run" and context.step == self.step:
            raise StopIteration


@pytest.mark.parametrize("phase", ["before_run", "after_run"])
def test_in_a_cluster_other_hooks_go_on_when_one_ends_the_run(phase):
    first, ending, last = Every(1), Ending(phase, 2), Every(1)
    context = RunContext(step=0, requests=Requests())
    stacks = loops(3, 1)  # which end at the step that all have agreed on
    training.run(CountingProgram(), 0, stacks, [first, ending, last], context)
    every = [(1, 0.0), (2, 1.0), (3, 2.0)]
    assert first.seen == last.seen == every
    missed = every[1:2] if phase == "before_run" else []
    assert ending.seen == [one for one in every if one not in missed]
    assert context.requests.take() == [STOP]
