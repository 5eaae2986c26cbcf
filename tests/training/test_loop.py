from types import SimpleNamespace

import numpy as np
import pytest

from estimax import training
from estimax.hooks import Hook, RunContext


class CountingProgram:
    """A program that counts: its state is the number of batches that it was given."""

    def __init__(self):
        self.calls = []

    def step(self, state, batch):
        self.calls.append(1)
        return state + 1, {"loss": np.float32(state)}

    def multi_step(self, state, batches):
        self.calls.append(len(batches))
        return state + len(batches), {"loss": np.float32(state + len(batches) - 1)}


def batches(count, layouts="same"):
    for i in range(count):
        layout = "short" if layouts == "last differs" and i == count - 1 else "full"
        arrays = SimpleNamespace(layout=layout)
        yield training.PlacedBatch(arrays, examples=2, position={"at": i + 1})


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


def run(count, hooks, *, loop=1, start=0, layouts="same"):
    program = CountingProgram()
    context = RunContext(step=start)
    data = batches(count, layouts)
    training.run(program, start, data, hooks, context, iterations_per_loop=loop)
    return program, context


def test_steps_run_until_the_data_ends():
    program, context = run(5, [])
    assert program.calls == [1] * 5
    assert (context.step, context.examples) == (5, 10)
    assert context.input_state == {"at": 5}


def test_full_loops_run_in_one_call_and_the_rest_step_by_step():
    program, _ = run(10, [], loop=4)
    assert program.calls == [4, 4, 1, 1]


def test_loops_end_at_multiples_of_their_length_wherever_a_run_began():
    program, _ = run(7, [], loop=4, start=2)
    assert program.calls == [1, 1, 4, 1]


def test_a_hook_cuts_a_loop_short_at_the_step_it_asked_for():
    hook = Every(6)
    program, _ = run(12, [hook], loop=4)
    assert hook.seen == [(6, 5.0), (12, 11.0)]
    assert program.calls == [4, 1, 1, 1, 1, 4]


def test_batches_of_another_shape_do_not_share_a_call():
    program, context = run(4, [], loop=4, layouts="last differs")
    assert program.calls == [1] * 4
    assert context.step == 4


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
        for batch in batches(100):
            taken.append(batch)
            yield batch

    class StopsAtTwo(Hook):
        def after_run(self, context, values):
            if context.step == 2:
                context.request_stop()

    training.run(CountingProgram(), 0, watched(), [StopsAtTwo()], RunContext(0))
    assert len(taken) == 2
