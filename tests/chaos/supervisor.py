"""Run an attack in child processes and count the outcomes, with crashes and hangs.

    report = run_attack("checkpoints", seed=1, numbers=range(400))
    report.counts[Outcome.REFUSED], report.failures

A child that dies or hangs costs the try it was at; another child goes on behind it.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.attack import Outcome, shortened
from chaos.registry import make_attack

TESTS = Path(__file__).parents[1]
PREPARATION = 600.0  # seconds
# An attack is given up after this many children died, as each repeats the preparation.
MOST_DEATHS = 8


@dataclass(frozen=True)
class Failure:
    """A try that found a defect."""

    number: int
    damage: str
    message: str


@dataclass
class Report:
    """The outcomes of an attack."""

    name: str
    counts: Counter[Outcome] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    skipped: str = ""  # why nothing was tried

    def fail(self, number: int, damage: str, message: str) -> None:
        """Count a failed try."""
        self.counts[Outcome.FAILED] += 1
        self.failures.append(Failure(number, damage, message))


def run_attack(name: str, seed: int, numbers: range) -> Report:
    """Run the tries with these numbers, in a new child after each that died."""
    report = Report(name)
    first, deaths = numbers.start, 0
    while first < numbers.stop:
        next_number = _run_child(report, seed, first, numbers.stop)
        if report.skipped:
            break
        deaths += next_number < numbers.stop
        if deaths > MOST_DEATHS:
            print(f"{name}: given up at try {next_number}: {deaths} processes died")
            break
        first = next_number
    return report


def _run_child(report: Report, seed: int, first: int, end: int) -> int:
    """Run one child; return the number of the next try."""
    attack = make_attack(report.name)
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        child = _Child(report.name, seed, first, end, Path(folder), attack.isolated)
        watch = _Watch(report, first)
        try:
            while (event := child.next_event(watch.patience)) is not None:
                watch.see(event, attack.patience)
        except TimeoutError:
            told = child.abort()
            message = f"no end after {watch.patience:.0f} s\n{told}"
            report.fail(watch.number, watch.damage, message)
            return watch.number + 1
        finally:
            child.kill()
        if report.skipped or watch.number == end:
            return end
        message = f"the process ended with code {child.code}\n{child.log(40)}"
        report.fail(watch.number, watch.damage, message)
        # A child that died before its first try would die again.
        return watch.number + 1 if watch.is_ready else end


@dataclass
class _Watch:
    """The state of a child, from the events that it sends."""

    report: Report
    number: int
    damage: str = ""
    patience: float = PREPARATION
    is_ready: bool = False

    def see(self, event: dict[str, Any], patience: float) -> None:
        """Handle an event; count the outcome if it ends a try."""
        self.report.skipped = event.get("skipped", "")
        self.is_ready = True
        if "start" in event:
            self.number, self.damage, self.patience = event["start"], "", patience
        self.damage = event.get("damage", self.damage)
        if "outcome" in event:
            outcome = Outcome(event["outcome"])
            if outcome is Outcome.FAILED:
                self.report.fail(self.number, self.damage, event["message"])
            else:
                self.report.counts[outcome] += 1
            self.number += 1


class _Child:
    """A process that runs tries, in a session of its own with its children."""

    def __init__(
        self, name: str, seed: int, first: int, end: int, folder: Path, isolated: bool
    ) -> None:
        work = folder / "work"
        work.mkdir()
        self._log = folder / "log"
        self._reading, writing = os.pipe()
        self._unread = b""
        arguments = {
            "name": name,
            "seed": seed,
            "first": first,
            "end": end,
            "folder": str(work),
            "pipe": writing,
        }
        command = [sys.executable, "-m", "chaos.child"]
        # A tmpfs mounted in this namespace is removed with the process.
        prefix = ["unshare", "--mount"] if isolated and can_isolate() else []
        path = os.pathsep.join([str(TESTS), *_python_path()])
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                prefix + command,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[writing],
                start_new_session=True,
                env={
                    "XLA_FLAGS": "",
                    "JAX_PLATFORMS": "cpu",
                    **os.environ,
                    "PYTHONPATH": path,
                    "CHAOS_CHILD": json.dumps(arguments),
                },
            )
        os.close(writing)

    def next_event(self, patience: float) -> dict[str, Any] | None:
        """Return the next event; None at the end. Raise TimeoutError if none comes."""
        while b"\n" not in self._unread:
            with selectors.DefaultSelector() as selector:
                selector.register(self._reading, selectors.EVENT_READ)
                if not selector.select(patience):
                    raise TimeoutError
            data = os.read(self._reading, 1 << 16)
            if not data:
                self._process.wait()
                return None
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        return event

    @property
    def code(self) -> int | None:
        """Return the exit code, negative for a signal."""
        return self._process.returncode

    def abort(self) -> str:
        """End a child that hangs; return the stack traces of its threads."""
        self._process.send_signal(signal.SIGABRT)  # faulthandler prints the traces
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        return self.log(60)

    def kill(self) -> None:
        """Kill the child and its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._reading >= 0:
            os.close(self._reading)
            self._reading = -1

    def log(self, lines: int) -> str:
        """Return the last lines that the child printed."""
        text = self._log.read_text(errors="replace")
        return shortened("\n".join(text.splitlines()[-lines:]), 6000)


def can_isolate() -> bool:
    """Return whether a child can mount a tmpfs in a mount namespace of its own."""
    mount = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def _python_path() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(":") if path]
