import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from estimax import checkpoints
from estimax.hooks import CheckpointSaverHook, RunContext
from estimax.training.signals import stopping_on_signals


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def test_sigterm_saves_and_then_exits(tmp_path: Path, run: Any) -> None:
    run.on_step = lambda step: send(signal.SIGTERM) if step == 3 else None
    hook = CheckpointSaverHook(tmp_path, save_steps=100)
    begin = hook.begin
    entered: list[Any] = []

    def begin_with_signals(context: RunContext) -> None:
        entered.append(stopping_on_signals(context))
        entered[0].__enter__()
        begin(context)

    hook.begin = begin_with_signals  # type: ignore[method-assign]
    assert run([hook]).step == 3
    with pytest.raises(SystemExit) as caught:
        entered[0].__exit__(None, None, None)
    assert caught.value.code == 143
    assert checkpoints.latest(tmp_path) == tmp_path / "model.ckpt-3"


def interrupted(times: int) -> list[str]:
    """What a block still did when Ctrl-C was pressed so many times in it."""
    done: list[str] = []
    context = RunContext(step=0)
    try:
        with stopping_on_signals(context):
            for _ in range(times):
                send(signal.SIGINT)
            done.append(f"stop requested: {context.stop_requested}")
    except KeyboardInterrupt:
        done.append("interrupted")
    return done


def test_ctrl_c_is_a_keyboard_interrupt_after_the_block() -> None:
    assert interrupted(1) == ["stop requested: True", "interrupted"]


def test_second_signal_stops_at_once() -> None:
    assert interrupted(2) == ["interrupted"]


def test_handlers_are_restored() -> None:
    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(ZeroDivisionError), stopping_on_signals(RunContext(step=0)):
        raise ZeroDivisionError
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == before


def test_block_without_signals_ends_as_ever() -> None:
    with stopping_on_signals(RunContext(step=0)) as nothing:
        assert nothing is None


def test_other_thread_is_left_alone() -> None:
    seen: list[Any] = []

    def body() -> None:
        with stopping_on_signals(RunContext(step=0)):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


PROGRAM = """
import signal, time
from estimax.hooks import RunContext
from estimax.training.signals import stopping_on_signals
context = RunContext(step=0)
with stopping_on_signals(context):
    print("ready", flush=True)
    while not context.stop_requested:
        time.sleep(0.01)
    print("saved", flush=True)
print("not reached", flush=True)
"""


def test_terminated_process_finishes_the_block_and_reports_the_signal() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.terminate()
    rest, _ = child.communicate(timeout=60)
    assert rest == "saved\n"
    assert child.returncode == 143
