"""`estimax launch`: train one model in several processes on this machine.

Every process gets its role in TF_CONFIG, with addresses of the loopback interface, and
its output is printed with the role in front. If one ends with an error, the others are
given time to end by themselves, and are then stopped.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import typer

from estimax.cli.console import note
from estimax.core.errors import ConfigError, MissingFileError

# How long the other processes may take to end by themselves after one has failed. They
# hear of an error within 3 seconds. Of a process that was killed, or that ended before
# it was connected, they would hear late, but it has been named here.
_GRACE_SECONDS = 10.0
_KILL_SECONDS = 10.0
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Role:
    """One process of the job: its task in TF_CONFIG."""

    task_type: str
    index: int

    def __str__(self) -> str:
        is_one_of_many = self.task_type == "worker"
        return f"{self.task_type} {self.index}" if is_one_of_many else self.task_type


def launch(
    program: Path,
    arguments: Sequence[str],
    processes: int,
    *,
    evaluator: bool,
    port: int | None,
) -> None:
    """Run a program in several processes; exit with the status of the first failure."""
    if processes < 1:
        raise ConfigError(f"launch: --processes must be at least 1, got {processes}.")
    command = command_of(program, arguments)
    if not program.is_file():
        raise MissingFileError(f"launch: there is no file {program}.")
    if program.suffix != ".py":
        _check_run_file(program, arguments)
    jobs = {
        role: subprocess.Popen(
            command,
            env=os.environ | {"TF_CONFIG": json.dumps(config)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        for role, config in tf_configs(processes, evaluator, port or _free_port())
    }
    with _forwarding_signals(list(jobs.values())):
        printers = [
            threading.Thread(target=_print_lines, args=(role, job.stdout))
            for role, job in jobs.items()
        ]
        for printer in printers:
            printer.start()
        failed = wait_for_all(jobs, note)
        for printer in printers:
            printer.join()
    if failed:
        raise typer.Exit(failed if failed > 0 else 128 - failed)


def command_of(program: Path, arguments: Sequence[str]) -> list[str]:
    """Return the command of a Python program or of a run file.

    >>> command_of(Path("train.py"), ["--fast"])[1:]
    ['train.py', '--fast']
    """
    if program.suffix == ".py":
        command = [sys.executable, str(program)]
    elif program.suffix in (".yaml", ".yml"):
        command = [sys.executable, "-m", "estimax", "train", str(program)]
    else:
        raise ConfigError(
            f"launch: {program} is neither a run file (.yaml) nor a Python program "
            "(.py)."
        )
    return [*command, *arguments]


def _check_run_file(path: Path, arguments: Sequence[str]) -> None:
    """Raise what every process would raise, once and before any is started."""
    from estimax import config

    loaded = config.load(path, _overrides(arguments))
    if loaded.run.run.cluster is not None:
        raise ConfigError(
            f"{loaded.origin('run.cluster')}: run.cluster: describes the processes of "
            "a cluster, and estimax launch describes its own to each process that it "
            "starts. Remove the key, or start `estimax train` on each machine."
        )


def _overrides(arguments: Sequence[str]) -> list[str]:
    """Return the values of --set among the arguments of `estimax train`.

    >>> _overrides(["--set", "a=1", "--quiet", "--set=b=2"])
    ['a=1', 'b=2']
    """
    pairs = itertools.pairwise(arguments)
    found = [value for option, value in pairs if option == "--set"]
    joined = [text for text in arguments if text.startswith("--set=")]
    return [*found, *(text.removeprefix("--set=") for text in joined)]


def tf_configs(
    processes: int, evaluator: bool, port: int
) -> Iterator[tuple[Role, dict[str, object]]]:
    """Yield the role and TF_CONFIG of each process.

    With an evaluator the first process is the chief, which trains only. Without, it is
    the master, which evaluates as well. Only the first address is used.
    """
    first = "chief" if evaluator else "master"
    addresses = [f"{_LOOPBACK}:{port + i}" for i in range(processes)]
    cluster = {first: addresses[:1], "worker": addresses[1:]}
    roles = [Role(first, 0)]
    roles += [Role("worker", index) for index in range(processes - 1)]
    roles += [Role("evaluator", 0)] if evaluator else []
    for role in roles:
        task = {"type": role.task_type, "index": role.index}
        yield role, {"cluster": cluster, "task": task}


def wait_for_all(
    jobs: dict[Role, subprocess.Popen[str]],
    tell: Callable[..., None],
    grace_seconds: float = _GRACE_SECONDS,
) -> int:
    """Wait until all processes have ended; return the status of the first failure."""
    running = dict(jobs)
    failed, deadline = 0, None
    while running:
        for role, job in list(running.items()):
            status = job.poll()
            if status is None:
                continue
            del running[role]
            if status and not failed:
                failed, deadline = status, time.monotonic() + grace_seconds
                tell(f"{role} ended with {_describe_status(status)}", "red")
        if deadline is not None and time.monotonic() > deadline and running:
            names = ", ".join(map(str, running))
            tell(f"stopping {names}, which did not end by themselves", "red")
            _stop(list(running.values()))
        time.sleep(0.1)
    return failed


def _describe_status(status: int) -> str:
    """Return an exit status in words.

    >>> _describe_status(-9)
    'signal SIGKILL'
    """
    if status < 0:
        return f"signal {signal.Signals(-status).name}"
    return f"exit status {status}"


def _stop(jobs: Sequence[subprocess.Popen[str]]) -> None:
    for job in jobs:
        job.terminate()
    deadline = time.monotonic() + _KILL_SECONDS
    for job in jobs:
        try:
            job.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()


def _print_lines(role: Role, output: IO[str] | None) -> None:
    assert output is not None, "stdout is a pipe"
    for line in output:
        # One write for each line, so that lines of processes do not mix.
        sys.stdout.write(f"[{role}] {line}")
        sys.stdout.flush()


@contextlib.contextmanager
def _forwarding_signals(jobs: Sequence[subprocess.Popen[str]]) -> Iterator[None]:
    """Send SIGTERM to all processes; Ctrl-C reaches them from the terminal."""

    def forward(number: int, frame: object) -> None:
        for job in jobs:
            if job.poll() is None:
                job.send_signal(signal.SIGTERM)

    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, forward),
        signal.SIGINT: signal.signal(signal.SIGINT, lambda number, frame: None),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
