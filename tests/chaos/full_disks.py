"""Attacks by a full disk: a small tmpfs, filled to a random byte before the attack.

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
    """Trains until the disk is full; an error says so, and training can go on."""

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
        room = draw.randrange(0, int(1.1 * self.needed) // PAGE) * PAGE
        note(f"{room} bytes free of {self.needed} needed")
        self._fill(room)
        outcome = self._work_on_full_disk()
        self.check_rest()
        self.ballast.unlink()
        self.work()
        if self.read() != self.expected:
            raise AttackFailedError("differs from what comes of a disk with space")
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
        """The error says which file, and that there is no space."""
        text = "\n".join([str(error), *getattr(error, "__notes__", [])])
        if str(self.disk) not in text:
            raise AttackFailedError(
                f"the error names no file: {shortened(text)}"
            ) from error
        if os.strerror(errno.ENOSPC) not in text:
            raise AttackFailedError(
                f"the error names no cause: {shortened(text)}"
            ) from error

    def _fill(self, room: int) -> None:
        with open(self.ballast, "wb") as file:
            size = max(0, _free(self.disk) - room)
            os.posix_fallocate(file.fileno(), 0, size)

    def make(self, folder: Path) -> None:
        """Prepare what the work needs."""
        # One estimator for all tries, as its programs are compiled once.
        self.estimator = tiny.make_estimator(self.target)

    def work(self) -> None:
        """Write to the disk."""
        self.estimator.train(tiny.input_fn, max_steps=tiny.STEPS)

    def check_rest(self) -> None:
        """Check what is there after the disk was full."""
        checkpoints.restore_latest(self.target)

    def read(self) -> Any:
        """What was written, to compare with ==."""
        return tiny.final(self.target)


class FullExport(FullTraining):
    """Exports to a full disk: an error, and no half bundle."""

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
    """Fills a cache on a full disk: an error, and the next pass fills it."""

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
    # Into the mount namespace that the supervisor made: it goes with this process.
    if os.readlink("/proc/self/ns/mnt") == os.readlink(f"/proc/{os.getppid()}/ns/mnt"):
        raise AttackSkippedError("mounting a tmpfs needs root and `unshare --mount`")
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    subprocess.run(command, check=True)


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
