"""Where a warm start takes its arrays from: named arrays, each read when wanted.

source = open_source("runs/a")              # a model_dir: its latest checkpoint
source.shapes["dnn/logits/kernel"], source.read("dnn/logits/kernel")
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from estimax.checkpoints import format as formats
from estimax.checkpoints import manager, state_names, tensorflow_format
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
    """Open a checkpoint, or the latest one of a model_dir; TensorFlow's as well.

    >>> import tempfile
    >>> import numpy as np
    >>> path = formats.write(tempfile.mkdtemp() + "/model.ckpt-1", {"w": np.ones(2)}, 1)
    >>> open_source(path).shapes
    {'w': (2,)}
    """
    path = Path(given)
    if (path / formats.MANIFEST).exists():
        return _Folder(path)
    found = manager.latest(path)
    if found is not None:
        return _Folder(found)
    prefix = tensorflow_checkpoint(path)
    if prefix is not None:
        return _TensorFlow(prefix)
    raise MissingFileError(
        f"warm start: {os.fspath(given)!r} is neither a checkpoint nor a model_dir "
        "with one. Give the folder that a model was trained in, or one of the "
        "model.ckpt-<step> inside; TensorFlow's are named without .index."
    )


def tensorflow_checkpoint(given: str | os.PathLike[str]) -> str | None:
    """What the files of a TensorFlow checkpoint begin with, if there is one."""
    path = Path(given)
    candidates = [path, path / "variables" / "variables"]
    with contextlib.suppress(OSError, UnicodeDecodeError):
        state = (path / manager.STATE_FILE).read_text()
        latest = re.search(r'^model_checkpoint_path: "(.*)"', state, re.MULTILINE)
        if latest:
            candidates.append(path / latest[1])
    for candidate in candidates:
        if Path(f"{candidate}.index").exists():
            return str(candidate)
    return None


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
        return formats.read_entry(self._folder, self._manifest.arrays[name], name)

    def slots(self, variables: Iterable[str]) -> Slots:
        return state_names.slots_of(self._manifest.arrays, variables)


class _TensorFlow:
    """A checkpoint that tf.estimator wrote, or the variables of a SavedModel."""

    def __init__(self, prefix: str) -> None:
        self.path = prefix
        self._entries = tensorflow_format.read_index(prefix)
        self.shapes: Mapping[str, tuple[int, ...]] = {
            name: self._entries[name.encode()].shape
            for name in tensorflow_format.names(self._entries)
        }

    def read(self, name: str) -> NDArray[Any]:
        return tensorflow_format.read_array(self.path, name, self._entries)

    def slots(self, variables: Iterable[str]) -> Slots:
        return tensorflow_format.slots_of(self.shapes, set(variables))
