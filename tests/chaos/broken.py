"""Readers with a defect each, by which the harness is tested."""

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
    """A reader that notices every damage."""

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
    """Returns what is damaged as if it were right."""

    def damaged(self, folder: Path) -> bytes:
        return (folder / "file").read_bytes()


class ForeignException(Sound):
    """Lets an exception through that is not ours."""

    def damaged(self, folder: Path) -> bytes:
        raise KeyError("file")


class DiesBySignal(Sound):
    """Ends its process, as a fault in compiled code does."""

    def damaged(self, folder: Path) -> bytes:
        os.kill(os.getpid(), signal.SIGSEGV)
        raise AssertionError("unreachable")


class Hangs(Sound):
    """Waits for what never comes."""

    patience = 1.0

    def damaged(self, folder: Path) -> bytes:
        threading.Event().wait()
        raise AssertionError("unreachable")


class TakesMemory(Sound):
    """Fills far more memory than the file is worth, then refuses it."""

    memory = 64 << 20

    def damaged(self, folder: Path) -> bytes:
        np.ones(256 << 20, np.uint8)
        return super().damaged(folder)


class NamesNoFile(Sound):
    """Refuses without saying what."""

    def damaged(self, folder: Path) -> bytes:
        raise InputError("something is damaged.")
