import dataclasses
import os
import subprocess
import sys

from estimax.storage import processes


def identity_of_a_child() -> tuple[subprocess.Popen[bytes], processes.Process]:
    program = (
        "import sys\n"
        "from estimax.storage import processes\n"
        "me = processes.current()\n"
        "print(me.host, me.pid, me.system, me.started, flush=True)\n"
        "sys.stdin.read()\n"
    )
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe)
    assert child.stdout is not None
    host, pid, system, started = child.stdout.readline().decode().split()
    return child, processes.Process(host, int(pid), system, started)


def test_this_process_runs() -> None:
    me = processes.current()
    assert me.pid == os.getpid()
    assert processes.is_running(me)


def test_a_killed_process_runs_no_more_even_before_its_parent_waits() -> None:
    child, identity = identity_of_a_child()
    with child:
        assert processes.is_running(identity)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # now a zombie
        assert processes.is_running(identity) is False
    assert processes.is_running(identity) is False


def test_a_reused_id_is_another_process() -> None:
    before = dataclasses.replace(processes.current(), pid=os.getppid(), started="1")
    assert processes.is_running(before) is False


def test_processes_of_other_systems_cannot_be_seen() -> None:
    elsewhere = dataclasses.replace(processes.current(), system="00000000")
    assert processes.is_running(elsewhere) is None


def test_a_forked_child_is_another_process() -> None:
    # In a process without threads: others must not fork.
    program = (
        "import os\n"
        "from estimax.storage import processes\n"
        "mine = processes.current()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    me = processes.current()\n"
        "    os._exit(0 if me.pid == os.getpid() and me != mine else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
