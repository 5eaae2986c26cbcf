"""Runs an attack in child processes and counts outcomes, crashes and hangs included.

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
# So many children may die before an attack is given up: each costs a preparation.
MOST_DEATHS = 8


@dataclass(frozen=True)
class Failure:
    """One try that showed a defect."""

    number: int
    damage: str
    message: str


@dataclass
class Report:
    """What came of an attack."""

    name: str
    counts: Counter[Outcome] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    skipped: str = ""  # why nothing was tried

    def fail(self, number: int, damage: str, message: str) -> None:
        """Count a failed try."""
        self.counts[Outcome.FAILED] += 1
        self.failures.append(Failure(number, damage, message))


def run_attack(name: str, seed: int, numbers: range) -> Report:
    """Try an attack with each of the numbers, as often as children have to be made."""
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
    """Run one child; returns the number to go on with."""
    attack = make_attack(report.name)
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        child = _Child(report.name, seed, first, end, Path(folder), attack.isolated)
        watch = _Watch(report, first)
        try:
            while (event := child.next_event(watch.patience)) is not None:
                watch.see(event, attack.patience)
        except TimeoutError:
            told = child.stop_and_tell()
            message = f"no end after {watch.patience:.0f} s\n{told}"
            report.fail(watch.number, watch.damage, message)
            return watch.number + 1
        finally:
            child.kill()
        if report.skipped or watch.number == end:
            return end
        told = f"the process ended with code {child.code}\n{child.log(40)}"
        report.fail(watch.number, watch.damage, told)
        return watch.number + 1 if watch.is_ready else end  # it cannot be prepared


@dataclass
class _Watch:
    """Where a child is, by its events."""

    report: Report
    number: int
    damage: str = ""
    patience: float = PREPARATION
    is_ready: bool = False

    def see(self, event: dict[str, Any], patience: float) -> None:
        """Note an event, and count the outcome if it is the end of a try."""
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
    """A process that runs tries, in a session of its own with all that it starts."""

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
        # A tmpfs that is mounted there vanishes with the process.
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
        """Wait for the next event; None at the end, TimeoutError if none comes."""
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
        """The exit code, negative for a signal."""
        return self._process.returncode

    def stop_and_tell(self) -> str:
        """End a child that hangs; returns where its threads were."""
        self._process.send_signal(signal.SIGABRT)  # faulthandler prints all threads
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        return self.log(60)

    def kill(self) -> None:
        """Kill the child and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._reading >= 0:
            os.close(self._reading)
            self._reading = -1

    def log(self, lines: int) -> str:
        """The last lines that the child printed."""
        text = self._log.read_text(errors="replace")
        return shortened("\n".join(text.splitlines()[-lines:]), 6000)


def can_isolate() -> bool:
    """Whether a child can have a mount namespace, and mount a tmpfs there."""
    mount = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def _python_path() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(":") if path]
