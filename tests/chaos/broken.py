"""Readers with one defect each, with which the harness itself is tested."""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path

import numpy as np

from chaos.attack import FileAttack
from chaos.mutations import mutate_file
from estimax.core.errors import InputError


class Sound(FileAttack):
    """A reader without a defect: it detects every damage."""

    tries = 3

    def make(self, folder: Path) -> None:
        (folder / "file").write_bytes(b"some content")

    def damage(self, folder: Path, draw: random.Random) -> str:
        return mutate_file(folder / "file", draw)

    def read(self, folder: Path) -> bytes:
        data = (folder / "file").read_bytes()
        return data if data == b"some content" else self.damaged(folder)

    def damaged(self, folder: Path) -> bytes:
        raise InputError(f"{folder / 'file'} is damaged.")


class WrongValues(Sound):
    """Returns damaged data as if it were valid."""

    def damaged(self, folder: Path) -> bytes:
        return (folder / "file").read_bytes()


class ForeignException(Sound):
    """Raises an exception that is not an `EstimaxError`."""

    def damaged(self, folder: Path) -> bytes:
        raise KeyError("file")


class DiesBySignal(Sound):
    """Ends its process by a signal, as a fault in compiled code does."""

    def damaged(self, folder: Path) -> bytes:
        os.kill(os.getpid(), signal.SIGSEGV)
        raise AssertionError("unreachable")


class Hangs(Sound):
    """Never returns."""

    patience = 1.0

    def damaged(self, folder: Path) -> bytes:
        threading.Event().wait()
        raise AssertionError("unreachable")


class TakesMemory(Sound):
    """Allocates far more memory than the size of the file, then raises an error."""

    memory = 64 << 20

    def damaged(self, folder: Path) -> bytes:
        np.ones(256 << 20, np.uint8)
        return super().damaged(folder)


class NamesNoFile(Sound):
    """Raises an error that does not name the file."""

    def damaged(self, folder: Path) -> bytes:
        raise InputError("something is damaged.")
