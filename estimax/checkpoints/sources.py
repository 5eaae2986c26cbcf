"""Where variables are read from: checkpoints of estimax and TensorFlow, and bundles.

source = open_source("runs/a")        # a model_dir, a checkpoint, an export
source.shapes                         # name -> shape
source.read("dnn/logits/kernel")
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import safetensors
from numpy.typing import NDArray

from estimax.checkpoints import format as formats
from estimax.checkpoints import listing, state_names
from estimax.core.errors import CheckpointError, MissingFileError
from estimax.formats import tensorflow_checkpoints
from estimax.storage import json_text

SlotNames = dict[str, dict[str, str]]  # variable -> slot ("accumulator") -> its name

_WEIGHTS = "weights.safetensors"  # of a bundle


class CheckpointReader(Protocol):
    """Reads named arrays from a checkpoint on disk."""

    @property
    def path(self) -> str:
        """The path of the checkpoint."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every array, by name."""

    def read(self, name: str) -> NDArray[Any]:
        """Return one array, with its checksum verified."""

    def slots(self, variables: Iterable[str]) -> SlotNames:
        """Return the names of the optimizer state of each variable that has some."""


def open_source(given: str | os.PathLike[str]) -> CheckpointReader:
    """Open a checkpoint, or the latest one of a model_dir, of estimax or TensorFlow.

    A bundle, or a folder of exported versions, can be opened as well.

    >>> import tempfile
    >>> import numpy as np
    >>> path = formats.write(tempfile.mkdtemp() + "/model.ckpt-1", {"w": np.ones(2)}, 1)
    >>> open_source(path).shapes
    {'w': (2,)}
    """
    # In this order: a bundle has a `manifest.json` as well, and the folder of a
    # SavedModel may lie beside checkpoints of estimax, which are preferred.
    path = Path(given)
    bundle = _bundle_in(path)
    if bundle is not None:
        return _BundleReader(bundle)
    if (path / formats.MANIFEST).exists():
        return _EstimaxReader(path)
    found = listing.latest(path)
    if found is not None:
        return _EstimaxReader(found)
    prefix = tensorflow_checkpoint(path)
    if prefix is not None:
        return _TensorFlowReader(prefix)
    raise MissingFileError(
        f"warm start: {os.fspath(given)!r} is neither a checkpoint nor a model_dir "
        "with one. Give the folder that a model was trained in, a model.ckpt-<step> in "
        "it, or an exported bundle; for a checkpoint of TensorFlow, the path without "
        ".index."
    )


def tensorflow_checkpoint(given: str | os.PathLike[str]) -> str | None:
    """Return the path prefix of a TensorFlow checkpoint; None if there is none."""
    path = Path(given)
    candidates = [path, path / "variables" / "variables"]
    with contextlib.suppress(OSError, UnicodeDecodeError):
        state = (path / listing.STATE_FILE).read_text()
        latest = re.search(r'^model_checkpoint_path: "(.*)"', state, re.MULTILINE)
        if latest:
            candidates.append(path / latest[1])
    for candidate in candidates:
        if Path(f"{candidate}.index").exists():
            return str(candidate)
    return None


def _bundle_in(path: Path) -> Path | None:
    """Return a bundle, or the newest one in a folder of versions; None if none is."""
    if (path / _WEIGHTS).exists():
        return path
    with contextlib.suppress(OSError):
        versions = [
            one
            for one in path.iterdir()
            if one.name.isdecimal() and (one / _WEIGHTS).exists()
        ]
        return max(versions, key=lambda one: int(one.name), default=None)
    return None


class _BundleReader:
    """Reads the weights of an exported bundle. It has no optimizer state."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._file = path / _WEIGHTS
        try:
            record = json_text.parse((path / formats.MANIFEST).read_bytes())
            self._hash = json_text.text(record["files"][_WEIGHTS], "sha256")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._damage_error(error) from error

    def _damage_error(self, reason: object) -> CheckpointError:
        return CheckpointError(
            f"warm start: the bundle {self.path} is damaged or incomplete: {reason}. "
            "Copy or export it again."
        )

    @cached_property
    def _weights(self) -> Any:
        """The file of weights, opened after its hash was compared."""
        with self._file.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != self._hash:
            raise self._damage_error(
                f"{_WEIGHTS} has another hash than its manifest says"
            )
        try:
            return safetensors.safe_open(self._file, framework="numpy")
        except (safetensors.SafetensorError, OSError) as error:
            raise self._damage_error(error) from error

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        opened = self._weights
        names = opened.keys()
        return {n: tuple(opened.get_slice(n).get_shape()) for n in names}

    def read(self, name: str) -> NDArray[Any]:
        array: NDArray[Any] = self._weights.get_tensor(name)
        return array

    def slots(self, variables: Iterable[str]) -> SlotNames:
        return {}


class _EstimaxReader:
    """Reads a checkpoint of estimax."""

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

    def slots(self, variables: Iterable[str]) -> SlotNames:
        return state_names.slots_of(self._manifest.arrays, variables)


class _TensorFlowReader:
    """Reads a checkpoint of tf.estimator, or the variables of a SavedModel."""

    def __init__(self, prefix: str) -> None:
        self.path = prefix
        self._entries = tensorflow_checkpoints.read_index(prefix)
        self.shapes: Mapping[str, tuple[int, ...]] = {
            name: self._entries[name.encode()].shape
            for name in tensorflow_checkpoints.names(self._entries)
        }

    def read(self, name: str) -> NDArray[Any]:
        return tensorflow_checkpoints.read_array(self.path, name, self._entries)

    def slots(self, variables: Iterable[str]) -> SlotNames:
        return tensorflow_checkpoints.slots_of(self.shapes, set(variables))
