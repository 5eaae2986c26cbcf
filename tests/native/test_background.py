"""Kernels are compiled beside a program, which goes on with the reference."""

import os
import subprocess
import sys
import time

import pytest

from estimax.storage import processes

START = """
import logging, os, time
logging.basicConfig(level="INFO")
import numpy as np
from estimax.native import background, distinct, kernel_cache, loading

ids, limits = np.array([[5, 2, 5, -1, 0]], np.int32), np.array([9], np.int32)

def numbered():
    return [array.tolist() for array in distinct.distinct_ids(ids, limits)]

def wait(condition):
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)

def worker():
    wait(lambda: background._compiler._pool and background._compiler._pool._processes)
    return background._compiler._pool._processes[0].pid

first = numbered()
"""
WAIT = (
    START
    + """
assert loading.is_loaded("distinct") != IS_NEW
wait(lambda: numbered() and loading.is_loaded("distinct"))
assert numbered() == first == [[[0, 2, 5, 9, 9]], [[2, 1, 2, -1, 0]]]
print("ready")
"""
)


@pytest.fixture
def environment(tmp_path):
    """A user whose caches are empty."""
    return os.environ | {
        "XDG_CACHE_HOME": str(tmp_path),
        "NUMBA_CACHE_DIR": str(tmp_path / "numba"),
        "ESTIMAX_NATIVE": "on",
    }


def _start(code, environment):
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _run(code, environment):
    program = _start(code, environment)
    out, errors = program.communicate(timeout=200)
    assert program.returncode == 0, errors
    return out, errors


def _has_ended(pid):
    until = time.monotonic() + 60
    while processes.exists(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return not processes.exists(pid)


def test_a_program_changes_to_the_kernels_when_they_are_compiled(environment, tmp_path):
    _, log = _run(WAIT.replace("IS_NEW", "True"), environment)
    assert log.count("compiling native kernels") == 1
    assert not (tmp_path / "estimax" / "kernels" / "compiling.lock").exists()
    _, log = _run(WAIT.replace("IS_NEW", "False"), environment)
    assert "compiling" not in log


def test_two_programs_compile_once(environment):
    code = WAIT.replace('assert loading.is_loaded("distinct") != IS_NEW\n', "")
    programs = [_start(code, environment) for _ in range(2)]
    for program in programs:
        out, errors = program.communicate(timeout=200)
        assert out == "ready\n", errors
        assert "WARNING" not in errors


def test_the_compiler_ends_with_the_program(environment):
    out, _ = _run(START + "print(worker())", environment)
    assert _has_ended(int(out))


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize("signal", ["SIGKILL", "SIGINT"])
def test_the_compiler_ends_with_a_program_that_is_killed(environment, signal):
    code = """
import signal
print(worker(), flush=True)
os.kill(os.getpid(), signal.SIGNAL)
time.sleep(100)
"""
    program = _start(START + code.replace("SIGNAL", signal), environment)
    out, _ = program.communicate(timeout=200)
    assert program.returncode != 0
    assert _has_ended(int(out))


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_a_compiler_that_dies_is_reported_once(environment):
    code = """
import signal
os.kill(worker(), signal.SIGKILL)
wait(lambda: "distinct" in loading._loaded)
assert loading._loaded["distinct"] is None
assert numbered() == numbered() == first
"""
    _, log = _run(START + code, environment)
    assert log.count("WARNING") == 1
    assert "'distinct' are off for this process: the compiler ended (SIGKILL)" in log


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_a_compiler_that_hangs_is_ended(environment):
    code = """
import signal
pid = worker()
os.kill(pid, signal.SIGSTOP)
wait(lambda: "distinct" in loading._loaded)
print(pid)
"""
    patch = "from estimax.native import background; background._MOST_SECONDS = 0.5\n"
    out, log = _run(patch + START + code, environment)
    assert "the compiler did not end within" in log
    assert _has_ended(int(out))


def test_caches_that_cannot_be_written_leave_the_reference(environment, tmp_path):
    (tmp_path / "file").write_text("")
    file = str(tmp_path / "file")
    code = 'wait(lambda: "distinct" in loading._loaded); assert numbered() == first'
    blocked = environment | {"XDG_CACHE_HOME": file, "NUMBA_CACHE_DIR": file}
    _, log = _run(START + code, blocked)
    assert log.count("WARNING") <= 1  # Numba may find another folder


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_gets_the_kernels_as_well(environment):
    code = """
pid = worker()
child = os.fork()
if child == 0:
    wait(lambda: numbered() and loading.is_loaded("distinct"))
    os._exit(0 if numbered() == first else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
wait(lambda: numbered() and loading.is_loaded("distinct"))
"""
    _run(START + code, environment)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_does_not_keep_the_compiler_alive(environment, tmp_path):
    code = """
import signal
pid = worker()
child = os.fork()
if child == 0:
    os.close(1), os.close(2)
    time.sleep(60)
    os._exit(0)
print(pid, child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    program = _start(START + code, environment)
    out, _ = program.communicate(timeout=200)
    pid, child = map(int, out.split())
    try:
        assert _has_ended(pid)
    finally:
        os.kill(child, 9)
