"""Identify the process that wrote a file, and tell whether it is still running.

    me = processes.current()
    processes.is_running(me)          # True, False if it has ended, None if unknown

A process id is not enough, because the kernel reuses ids; the start time tells two
processes with the same id apart. Ids can be compared only within one PID namespace of
one running kernel, here called a system. Every container and every boot is another
system.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """The identity of a process, unique over reboots, containers and reused ids."""

    host: str
    pid: int
    system: str  # 8 hex digits: the kernel's boot and the PID namespace
    started: str  # hex digits: the start time


def current() -> Process:
    """Return the identity of this process."""
    pid = os.getpid()
    if pid not in _known:  # a forked child has an id of its own
        _known.clear()
        _known[pid] = Process(
            socket.gethostname(), pid, _system(), _start_time(pid) or ""
        )
    return _known[pid]


def boot() -> str:
    """Return 8 hex digits that identify this boot of this machine."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:  # no Linux, or a sandbox that hides it
        text = socket.gethostname()
    return _digest(text.strip())


def is_running(process: Process) -> bool | None:
    """Return whether a process still runs; None if it cannot be seen from here.

    A process of another host, container or boot cannot be seen.
    """
    if process == current():
        return True
    if process.system != _system() or not process.started:
        return None
    started = _start_time(process.pid)
    if started is not None:
        return started == process.started
    # Without a start time, the process has ended or /proc hides it from this user.
    return exists(process.pid)


def exists(pid: int) -> bool:
    """Return whether any process with this id runs."""
    if sys.platform == "win32":  # os.kill(pid, 0) would stop the process there
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    fields = _stat(pid)
    return fields is not None and fields[0] in "ZX"


_known: dict[int, Process] = {}


def _system() -> str:
    """Return 8 hex digits that identify this boot and this PID namespace."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:  # no Linux, or a sandbox that hides it
        namespace = ""
    return _digest(f"{boot()} {namespace}")


def _start_time(pid: int) -> str | None:
    """Return the start time of a running process as hex digits, if it is known."""
    if os.path.exists("/proc/self/stat"):
        fields = _stat(pid)
        # A zombie has ended; only its parent has not yet waited for it.
        if fields is None or fields[0] in "ZX":
            return None
        return f"{int(fields[19]):x}"
    try:
        command = ["ps", "-o", "lstart=", "-p", str(pid)]
        shown = subprocess.run(command, capture_output=True, check=False).stdout
    except FileNotFoundError:  # Windows
        return None
    return _digest(shown.decode()) if shown.strip() else None


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat from the state on; None if unreadable."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (OSError, ValueError):
        return None
    # The second field is the name in parentheses, which may hold spaces and ")".
    return text.rpartition(")")[2].split()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
