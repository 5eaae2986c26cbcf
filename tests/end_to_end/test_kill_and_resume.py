"""A run that is killed, at whatever moment, ends like one that was left alone."""

import random
import signal
import time
from pathlib import Path

import pytest
from processes import differences

KILLED = -signal.SIGKILL
LONG = 120  # steps


def loops_of(length):
    """The option for so many steps in a call; None is as many as pay, the default."""
    return () if length is None else ("--iterations-per-loop", str(length))


# The undisturbed run has the default: how long loops are changes no bit.
@pytest.mark.parametrize("length", [None, pytest.param(1, marks=pytest.mark.slow)])
def test_twice_killed_run_ends_bit_identical(start_run, undisturbed, cache, length):
    run = start_run(*loops_of(length), "--pause", "0.03", env=cache)
    run.start()
    assert run.wait_until(lambda: run.has_saved(15))
    assert run.stop(signal.SIGKILL)[0] == KILLED
    run.start()
    # Steps that no checkpoint holds are lost, and made again.
    assert run.wait_until(lambda: (run.step or 0) >= 38)
    assert run.stop(signal.SIGKILL)[0] == KILLED
    run.finish()
    assert differences(run.model_dir, undisturbed) == []


def test_terminated_and_interrupted_run_ends_bit_identical(
    start_run, undisturbed, cache
):
    run = start_run("--pause", "0.03", "--save-steps", "1000", env=cache)
    run.start()
    assert run.wait_until(lambda: (run.step or 0) >= 13)
    code, step = run.stop(signal.SIGTERM)
    assert code == 128 + signal.SIGTERM
    assert run.has_saved(step)
    run.start()
    assert run.wait_until(lambda: (run.step or 0) >= 31)
    code, step = run.stop(signal.SIGINT)
    # Python ends of the signal itself after a KeyboardInterrupt: a shell shows 130.
    assert code == -signal.SIGINT
    assert run.has_saved(step)
    run.finish()
    assert differences(run.model_dir, undisturbed) == []


def test_second_start_compiles_nothing_anew(start_run, undisturbed, cache):
    # Else the same model would be another program in every process, and maybe round
    # differently as well.
    def programs():
        folder = Path(cache["JAX_COMPILATION_CACHE_DIR"])
        return {path.name for path in folder.glob("*-cache")}

    compiled = programs()
    start_run(steps=5, env=cache).finish()
    assert programs() == compiled != set()


MOMENTS = (
    "starting",
    "stepping",
    "writing",
    "written",
    "starting",
    "writing",
    "stepping",
    "written",
    "writing",
    "stepping",
)


@pytest.mark.slow
@pytest.mark.parametrize("length", [None, 1, 4])
def test_ten_times_killed_run_ends_bit_identical(start_run, length):
    # Without a compilation cache: every start is then one from nothing.
    options = (*loops_of(length), "--save-steps", "4")
    whole = start_run(*options, name="whole", steps=LONG)
    whole.finish()
    run = start_run(*options, "--pause", "0.05", name="killed", steps=LONG)
    chance = random.Random(length or 0)
    for moment in MOMENTS:
        run.start()
        wait_for(moment, run, chance)
        code, step = run.stop(signal.SIGKILL)
        torn = ", in the middle of a checkpoint" if run.is_writing() else ""
        print(f"killed {moment} at step {step}{torn}")
        assert code == KILLED, "it was done before it could be killed"
    run.finish()
    assert differences(run.model_dir, whole.model_dir, step=LONG) == []


def wait_for(moment, run, chance):
    """Wait for a moment of this kind, a little random each time."""
    if moment == "starting":
        # At the first step at the latest: a fast start leaves time to train to the end.
        end = time.monotonic() + chance.uniform(0.5, 6)
        run.wait_until(lambda: time.monotonic() >= end or run.step is not None)
        return
    assert run.wait_until(lambda: run.step is not None)
    # One or two checkpoints a start: there must be something left for the last kill.
    least = run.step + chance.randint(2, 7)
    assert run.wait_until(lambda: run.step >= least)
    if moment == "stepping":
        time.sleep(chance.uniform(0, 0.05))
    elif moment == "writing":
        assert run.wait_until(run.is_writing)
        time.sleep(chance.uniform(0, 0.002))
    elif moment == "written":
        before = run.newest_saved()
        assert run.wait_until(lambda: run.newest_saved() > before)
