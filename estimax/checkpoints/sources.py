"""Where a warm start takes its arrays from: named arrays, each read when wanted.

source = open_source("runs/a")              # a model_dir: its latest checkpoint
source.shapes["dnn/logits/kernel"], source.read("dnn/logits/kernel")
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from estimax.checkpoints import format as formats
from estimax.checkpoints import manager, state_names, tensors
from estimax.core.errors import MissingFileError

Slots = dict[str, dict[str, str]]  # variable -> slot ("accumulator") -> its name


class Source(Protocol):
    """Named arrays on disk."""

    @property
    def path(self) -> str:
        """What was opened."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every array, by name."""

    def read(self, name: str) -> NDArray[Any]:
        """One array, verified."""

    def slots(self, variables: Iterable[str]) -> Slots:
        """The optimizer's arrays of each variable that has some."""


def open_source(given: str | os.PathLike[str]) -> Source:
    """Open a checkpoint, or the latest one of a model_dir."""
    path = Path(given)
    if not (path / formats.MANIFEST).exists():
        found = manager.latest(path)
        if found is None:
            raise MissingFileError(
                f"warm start: {os.fspath(given)!r} is neither a checkpoint nor a "
                "model_dir with one. Give the folder that a model was trained in, or "
                "one of the model.ckpt-<step> folders inside."
            )
        path = found
    return _Folder(path)


class _Folder:
    """An estimax checkpoint."""

    def __init__(self, path: Path) -> None:
        self._folder = path
        self._manifest = formats.read_manifest(path)

    @property
    def path(self) -> str:
        return str(self._folder)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: entry.shape for name, entry in self._manifest.arrays.items()}

    def read(self, name: str) -> NDArray[Any]:
        entry = self._manifest.arrays[name]
        return tensors.read(self._folder / entry.file, entry.place, name)

    def slots(self, variables: Iterable[str]) -> Slots:
        return state_names.slots_of(self._manifest.arrays, variables)
