"""Attacks with a full disk: a small tmpfs with a random number of free bytes.

Mounting needs root (CAP_SYS_ADMIN) and `unshare`; without them the attacks are skipped.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

from chaos import tiny
from chaos.attack import (
    Attack,
    AttackFailedError,
    AttackSkippedError,
    Note,
    Outcome,
    shortened,
)
from chaos.data_files import plain_rows
from chaos.trainers import leftovers, slow_rows
from estimax import checkpoints, export
from estimax.core.errors import EstimaxError

DISK_BYTES = 16 << 20
PAGE = 4096


class FullTraining(Attack):
    """Trains until the disk is full: an error says so, and training can resume."""

    tries = 15
    patience = 600.0
    isolated = True

    def prepare(self, folder: Path) -> None:
        self.disk = folder / "disk"
        self.disk.mkdir()
        _mount(self.disk)
        self.target = self.disk / "target"
        self.ballast = self.disk / "ballast"
        self.make(folder)
        before = _free(self.disk)
        self.work()
        self.needed = before - _free(self.disk)
        self.expected = self.read()

    def attempt(self, draw: random.Random, note: Note) -> Outcome:
        shutil.rmtree(self.target, ignore_errors=True)
        self.ballast.unlink(missing_ok=True)
        free = draw.randrange(0, int(1.1 * self.needed) // PAGE) * PAGE
        note(f"{free} bytes free of {self.needed} needed")
        self._fill(free)
        outcome = self._work_on_full_disk()
        self.check_rest()
        self.ballast.unlink()
        self.work()
        if self.read() != self.expected:
            raise AttackFailedError("the result differs from that with a free disk")
        if leftovers(self.disk):
            raise AttackFailedError(f"temporaries were left: {leftovers(self.disk)}")
        return outcome

    def _work_on_full_disk(self) -> Outcome:
        try:
            self.work()
        except (EstimaxError, OSError) as error:
            self._check_error(error)
            return Outcome.REFUSED
        return Outcome.HARMLESS

    def _check_error(self, error: Exception) -> None:
        """Check that an error names the file, and the lack of space as the cause."""
        text = "\n".join([str(error), *getattr(error, "__notes__", [])])
        if str(self.disk) not in text:
            raise AttackFailedError(
                f"the error names no file: {shortened(text)}"
            ) from error
        if os.strerror(errno.ENOSPC) not in text:
            raise AttackFailedError(
                f"the error names no cause: {shortened(text)}"
            ) from error

    def _fill(self, free: int) -> None:
        with open(self.ballast, "wb") as file:
            size = max(0, _free(self.disk) - free)
            os.posix_fallocate(file.fileno(), 0, size)

    def make(self, folder: Path) -> None:
        """Create what `work` needs."""
        # One estimator for all tries, so that its programs are compiled once.
        self.estimator = tiny.make_estimator(self.target)

    def work(self) -> None:
        """Write to the disk."""
        self.estimator.train(tiny.input_fn, max_steps=tiny.STEPS)

    def check_rest(self) -> None:
        """Check the files that are there after the disk was full."""
        checkpoints.restore_latest(self.target)

    def read(self) -> Any:
        """Return what was written, as values that compare with ==."""
        return tiny.final(self.target)


class FullExport(FullTraining):
    """Exports to a full disk: an error, and no incomplete bundle."""

    tries = 8

    def make(self, folder: Path) -> None:
        self.estimator = tiny.make_estimator(folder / "model")
        self.estimator.train(tiny.input_fn, max_steps=tiny.STEPS)

    def work(self) -> None:
        self.estimator.export_saved_model(self.target)

    def check_rest(self) -> None:
        for path in self.target.glob("[0-9]*"):
            export.load(path, self_test=True)

    def read(self) -> Any:
        bundle = export.load(self.target, self_test=True)
        return tiny.bits(bundle.predict(tiny.REQUEST))


class FullCache(FullTraining):
    """Writes a cache to a full disk: an error, and the next pass writes it."""

    tries = 20

    def make(self, folder: Path) -> None:
        pass

    def work(self) -> None:
        self.target.mkdir(exist_ok=True)
        self.rows = plain_rows(slow_rows(self.target))

    def check_rest(self) -> None:
        pass

    def read(self) -> Any:
        return self.rows, plain_rows(slow_rows(self.target))


def _mount(folder: Path) -> None:
    # The supervisor made a mount namespace for this process, which ends with it.
    if os.readlink("/proc/self/ns/mnt") == os.readlink(f"/proc/{os.getppid()}/ns/mnt"):
        raise AttackSkippedError("mounting a tmpfs needs root and `unshare --mount`")
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    subprocess.run(command, check=True)


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
