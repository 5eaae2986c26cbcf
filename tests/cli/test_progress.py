"""The progress display, without a terminal."""

import io
import re

import numpy as np
import pytest
from rich.console import Console

from estimax.cli.training_progress import TrainingProgress
from estimax.hooks import RunContext


def plain_console():
    return Console(file=io.StringIO(), width=100)


def test_it_asks_to_be_called_at_multiples(tmp_path):
    progress = TrainingProgress(100, 25, plain_console())
    assert [progress.next_step(step) for step in (0, 24, 25, 30)] == [25, 25, 50, 50]


def test_lines_are_few_and_tell_step_loss_and_speed():
    console = plain_console()
    now = iter([0.0, 10.0, 11.0, 20.0, 30.0]).__next__
    progress = TrainingProgress(100, 10, console, clock=now)
    context = RunContext(step=0)
    progress.begin(context)
    for step in (10, 20, 30):
        context.step, context.examples = step, step * 32
        progress.after_run(context, {"loss": np.float32(0.5)})
    progress.end(context)
    lines = console.file.getvalue().splitlines()
    assert lines == [
        "step 10/100  loss 0.5000",
        "step 30/100  loss 0.5000  178 examples/s",
        "trained 30 steps in 30.0 s, last loss 0.5000 (step 30/100)",
    ]


def test_a_terminal_gets_a_bar():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with TrainingProgress(10, 5, console) as progress:
        context = RunContext(step=0)
        progress.begin(context)
        context.step, context.examples = 5, 160
        progress.after_run(context, {"loss": np.float32(0.25)})
        progress.end(context)
    assert "trained 5 steps" in console.file.getvalue()


@pytest.mark.parametrize("width", [10, 20, 40, 60, 80, 120])
def test_nothing_is_wider_than_the_terminal(width):
    console = Console(
        file=io.StringIO(), force_terminal=True, color_system=None, width=width
    )
    now = iter(range(9)).__next__
    with TrainingProgress(21_000, 5, console, clock=now) as progress:
        context = RunContext(step=0)
        progress.begin(context)
        for step in (5_000, 10_000):
            context.step, context.examples = step, step * 256
            progress.after_run(context, {"loss": np.float32(0.25)})
            progress._line._bar.refresh()  # else ten times a second
        progress.end(context)
    lines = re.split(
        r"[\r\n]+", re.sub(r"\x1b\[[\d;?]*\w", "", console.file.getvalue())
    )
    shown_lines = [line for line in lines if not line.startswith(("trained", "  "))]
    assert max(map(len, shown_lines)) <= width
    if width >= 40:
        assert any("step 10,000/21,000" in line[:width] for line in lines)
    if width >= 80:
        shown = "step 10,000/21,000  loss 0.2500  1,280,000 examples/s "
        assert any(shown in line for line in lines)
