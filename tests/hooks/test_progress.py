import logging
from pathlib import Path
from typing import Any

import pytest

from estimax.core.errors import ConfigError
from estimax.hooks import FinalOpsHook, LoggingTensorHook, StepCounterHook, summary


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, "estimax")
    return lambda: [record.getMessage() for record in caplog.records]


def test_speed_is_written_one_interval_after_the_first_step(
    tmp_path: Path, run: Any, lines: Any
) -> None:
    now = [0.0]
    run.on_step = lambda step: now.__setitem__(0, 0.25 * step)
    run([StepCounterHook(4, output_dir=tmp_path, clock=lambda: now[0])], steps=10)
    found = summary.read_scalars(tmp_path)
    assert found["global_step/sec"] == [(5, 4.0), (9, 4.0)]
    assert found["examples/sec"] == [(5, 32.0), (9, 32.0)]
    assert lines() == ["global_step/sec: 4, examples/sec: 32"] * 2
    assert run.fetches == []


def test_speed_needs_no_directory(run: Any) -> None:
    run([StepCounterHook(4)], steps=10)


def test_seconds_replace_the_default_steps(run: Any) -> None:
    run([StepCounterHook(every_n_secs=60)], steps=3)


def test_slow_input_is_told(run: Any, lines: Any) -> None:
    now = [0.0]
    hook = StepCounterHook(4, clock=lambda: now[0])
    after_run = hook.after_run

    def slow(context: Any, values: Any) -> None:
        now[0] += 1
        context.input_wait += 0.5
        after_run(context, values)

    hook.after_run = slow  # type: ignore[method-assign]
    run([hook], steps=5)
    assert lines()[-1].endswith("(50% of the time was spent waiting for input)")


def test_loss_is_logged_at_iterations_zero_n_and_2n(run: Any, lines: Any) -> None:
    run([LoggingTensorHook(["loss"], every_n_iter=4)], steps=10)
    assert [line.split(" (")[0] for line in lines()] == [
        "loss = 0.5, step = 0",
        "loss = 0.5, step = 4",
        "loss = 0.5, step = 8",
    ]
    assert run.fetches == [1, 5, 9]


def test_iterations_are_counted_from_each_begin(run: Any, lines: Any) -> None:
    hook = LoggingTensorHook(["loss"], every_n_iter=100)
    run([hook], steps=3)
    run([hook], steps=3)
    assert [line.split("step = ")[1] for line in lines()] == ["0", "3"]


def test_dict_gives_names_and_is_sorted(run: Any, lines: Any) -> None:
    run.logged_values = {"accuracy": 0.25}
    names = {"step": "global_step", "acc": "accuracy", "loss": "loss"}
    run([LoggingTensorHook(names, every_n_iter=10)], steps=1)
    assert lines() == ["acc = 0.25, loss = 0.5, step = 0"]


def test_formatter_makes_the_line(run: Any, lines: Any) -> None:
    hook = LoggingTensorHook(
        ["loss"], every_n_iter=10, formatter=lambda values: f"<{values['loss']}>"
    )
    run([hook], steps=1)
    assert lines() == ["<0.5>"]


def test_at_end_logs_once_more_and_looks_at_no_other_step(run: Any, lines: Any) -> None:
    run([LoggingTensorHook(["loss"], at_end=True)], steps=3)
    assert lines() == ["loss = 0.5, step = 3"]
    assert run.fetches == []


def test_at_end_comes_after_the_lines_of_an_interval(run: Any, lines: Any) -> None:
    run([LoggingTensorHook(["loss"], every_n_iter=2, at_end=True)], steps=3)
    assert [line.split(" (")[0] for line in lines()] == [
        "loss = 0.5, step = 0",
        "loss = 0.5, step = 2",
        "loss = 0.5, step = 3",
    ]


def test_seconds_fetch_only_when_they_have_passed(run: Any, lines: Any) -> None:
    now = [0.0]
    run.on_step = lambda step: now.__setitem__(0, float(step))
    run([LoggingTensorHook(["loss"], every_n_secs=3, clock=lambda: now[0])], steps=10)
    assert run.fetches == [1, 5, 9]


def test_some_interval_is_needed() -> None:
    with pytest.raises(ConfigError, match="give every_n_iter"):
        LoggingTensorHook(["loss"])
    with pytest.raises(ConfigError, match="above 0"):
        LoggingTensorHook(["loss"], every_n_iter=0)


def test_a_set_of_names_is_the_same_in_all_processes() -> None:
    # The order of a set of texts differs between processes.
    names = [f"value {index}" for index in range(9)]
    hook = LoggingTensorHook(set(names), every_n_secs=5)
    assert repr(hook) == f"LoggingTensorHook({names}, every_n_secs=5)"
    assert hook._request == LoggingTensorHook(names[::-1], every_n_secs=5)._request
    assert hook._request != LoggingTensorHook(names, every_n_secs=9)._request
    final = FinalOpsHook(set(names))
    assert final.requested == names
    assert repr(final) == f"FinalOpsHook({names})"
